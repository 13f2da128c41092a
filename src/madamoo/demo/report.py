"""The whole demo: run everything, print the tables, write page and numbers."""

from __future__ import annotations

import json
import platform
import time
from functools import partial
from pathlib import Path

import plotly  # noqa: F401  of the page, and sklearn of the images: said now if absent, not after the work or by a worker
import sklearn  # noqa: F401
import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from madamoo import __version__
from madamoo.bench.training import gather, workers
from madamoo.files import write_text
from madamoo.presentation.page import write_page
from madamoo.presentation.style import ADAM, MADAM
from madamoo.presentation.tables import rich_table

from .page import make_page
from .quadratics import FIXED, run_fixed, run_switching
from .summary import Results, as_record, digits_table, findings, fixed_table, switching_table
from .training import CONTENDERS, plan, train


def report(out: Path, *, seeds: int, epochs: int, steps: int) -> None:
    """Run the demo and leave its results in the folder ``out``, which exists."""
    console = Console()
    begin = time.perf_counter()
    results = _run(console, seeds, epochs, steps)
    seconds = time.perf_counter() - begin

    tables = {
        "switching": switching_table(results.switching),
        "fixed": fixed_table(results.fixed),
        "digits": digits_table(results.runs),
    }
    for table in tables.values():
        console.print(rich_table(table))
    console.print()
    lines = findings(results)
    for line in lines:
        console.print(f"- {line}", highlight=False)

    facts = {
        "Command": f"madamoo demo --seeds {seeds} --epochs {epochs} --steps {steps}",
        "Versions": f"madamoo {__version__}, torch {torch.__version__}, Python {platform.python_version()}",
        "Time": f"{seconds:.0f} s for the runs",
    }
    page, numbers = write_page(make_page(results, tables, lines, facts), out / "index.html"), out / "results.json"
    record = {"facts": facts, "findings": lines, **as_record(results)}
    write_text(numbers, json.dumps(record, indent=1, allow_nan=False) + "\n")
    console.print(f"\nPage:    {page}\nNumbers: {numbers}", highlight=False, soft_wrap=True)


def _run(console: Console, seeds: int, epochs: int, steps: int) -> Results:
    """Everything that is compared, in worker processes, behind a progress bar."""
    switching = [partial(run_switching, contender, steps) for contender in CONTENDERS]
    # Under a fixed preference the control is MAdam itself.
    fixed = [partial(run_fixed, contender, preference, steps) for preference in FIXED for contender in (ADAM, MADAM)]
    training = [partial(train, solver, contender, seed, epochs) for solver, contender, seed in plan(seeds)]
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with workers() as pool, Progress(*columns, console=console) as progress:
        quadratics = progress.add_task("Tilted quadratics", total=len(switching) + len(fixed))
        images = progress.add_task("Two-digit images", total=len(training))
        return Results(
            gather(pool, switching, partial(progress.advance, quadratics)),
            gather(pool, fixed, partial(progress.advance, quadratics)),
            gather(pool, training, partial(progress.advance, images)),
        )
