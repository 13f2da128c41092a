"""The command ``madamoo tune``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from madamoo.bench.commands import count, parts, plainly, whole


@plainly
def tune(
    file: Annotated[
        Path, typer.Argument(help="A Python file with build(seed), which returns a Setup.", metavar="FILE.py")
    ],
    budget: Annotated[
        int, typer.Option(help="Trials for Adam, and as many for all others.", parser=count, metavar="COUNT")
    ] = 40,
    seeds: Annotated[int, typer.Option(help="Fresh seeds that decide.", parser=count, metavar="COUNT")] = 10,
    finalists: Annotated[
        int, typer.Option(help="Contenders that meet Adam on them.", parser=count, metavar="COUNT")
    ] = 3,
    solvers: Annotated[str, typer.Option(help="Comma-separated, with options as cagrad:c=0.2.")] = "",
    optimizers: Annotated[
        str, typer.Option(help="Comma-separated: adam, madam, soap, madam-eigen, msoap, or the file's own.")
    ] = "",
    rates: Annotated[
        str, typer.Option(help="The lowest and the highest learning rate.", metavar="LOW,HIGH")
    ] = "1e-4,1e-1",
    seed: Annotated[int, typer.Option(help="Of the search.", parser=whole, metavar="NUMBER")] = 0,
    workers: Annotated[int, typer.Option(help="Trials at a time.", parser=count, metavar="COUNT")] = 1,
    out: Annotated[Path, typer.Option(help="Folder for trials, page and result.", metavar="FOLDER")] = Path("tune-out"),
) -> None:
    """Find out which solver, optimizer and rate to use for your own training run, and how sure that is.

    Killed and started again, it goes on where it was.
    """
    from madamoo.presentation.progress import Lines

    from . import TrialError
    from . import tune as search

    with Lines(0) as lines:
        try:
            found = search(
                file,
                budget=budget,
                seeds=seeds,
                finalists=finalists,
                solvers=parts(solvers) or None,
                optimizers=parts(optimizers) or None,
                rates=_rates(rates),
                seed=seed,
                workers=workers,
                out=out,
                say=lambda phase, done, total: lines.tick(PHASES[phase], done, total),
            )
        except TrialError as error:
            typer.echo(f"madamoo: {error}", err=True)
            raise typer.Exit(1) from None
    for note in found.notes:
        typer.echo(f"Note: {note}", err=True)
    typer.echo(str(found))
    typer.echo(f"Page: {found.page}")


PHASES = {
    "adam": "rates for Adam with LS",
    "search": "solvers, optimizers and rates",
    "final": "finalists on fresh seeds",
    "cost": "what a step costs",
}


def _rates(text: str) -> tuple[float, float]:
    try:
        low, high = map(float, text.split(","))
    except ValueError:
        raise ValueError(f"--rates {text}: it must be two numbers, as 1e-4,1e-1") from None
    return low, high
