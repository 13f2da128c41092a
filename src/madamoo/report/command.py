"""The command ``madamoo report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from madamoo.bench.commands import Own


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            help="A run's folder, a folder of runs, or what a probe wrote (diagnostics.jsonl, or its folder).",
            metavar="RUN_OR_FOLDER",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The page.", metavar="PAGE")] = Path("report.html"),
    compare: Annotated[bool, typer.Option("--compare", help="Put two runs side by side.")] = False,
    benchmark: Own = None,
) -> None:
    """Write one HTML page on a run, on a folder of runs, or on two runs side by side; it needs no network."""
    from madamoo.presentation.page import write_page

    from .make import make_page

    if len(runs) != (2 if compare else 1):
        wanted = "--compare takes two runs" if compare else "name one run or folder, or two with --compare"
        typer.echo(f"madamoo: {wanted}; {len(runs)} were given", err=True)
        raise typer.Exit(2)
    try:
        page, notes = make_page(runs, benchmark or ())
        write_page(page, out)
    except ValueError as error:
        typer.echo(f"madamoo: {error}", err=True)
        raise typer.Exit(2) from None
    except OSError as error:
        typer.echo(f"madamoo: cannot read or write {error.filename or out}: {error.strerror or error}", err=True)
        raise typer.Exit(1) from None
    for note in notes:
        typer.echo(f"madamoo: {note}", err=True)
    typer.echo(f"Page: {out}")
