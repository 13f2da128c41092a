"""The command ``madamoo``.

``import madamoo`` never comes here: what the command line needs is an extra. A new command is one line in
:func:`build_app`; what only that command needs is imported when it runs, so that the others work without.
"""

import sys
from typing import TYPE_CHECKING, Annotated

from . import __version__

if TYPE_CHECKING:
    import typer

# Modules that come with an extra, and the extra to name when one of them is absent.
EXTRAS = {
    "typer": "cli",
    "rich": "cli",
    "matplotlib": "demo",
    "filelock": "bench",
    "sklearn": "bench",
    "scipy": "bench",
    "PIL": "bench",
    "monai": "bench",
    "einops": "bench",
    "nibabel": "bench",
    "ray": "ray",
    "moocore": "bench",
    "plotly": "report",
    "optuna": "tune",
}


def build_app() -> "typer.Typer":
    """The command line with all its commands."""
    import typer

    from .bench import commands as bench
    from .demo.command import demo
    from .figures.command import figures
    from .report.command import report
    from .selftest.command import selftest
    from .tuning.command import tune

    def show_version(wanted: bool) -> None:
        if wanted:
            typer.echo(f"madamoo {__version__}")
            raise typer.Exit

    app = typer.Typer(
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_show_locals=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback()
    def madamoo(
        version: Annotated[
            bool, typer.Option("--version", help="Show the version.", callback=show_version, is_eager=True)
        ] = False,
    ) -> None:
        """Metric-aware multi-objective training for PyTorch."""

    train = (bench.run, bench.sweep, bench.ablation, bench.predict)
    read = (bench.table, bench.summary, bench.front, bench.collect, bench.data)
    for command in (demo, *train, tune, *read, figures, report, selftest):
        app.command()(command)
    return app


def main() -> None:
    """Entry point: run the command line; a missing extra is named in one line, without a traceback."""
    try:
        build_app()()
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        sys.exit(f"This command needs {package}, which is not installed: pip install 'madamoo[{EXTRAS[package]}]'")
