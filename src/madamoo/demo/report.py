"""The whole demo: run everything, print the tables, write page and numbers."""

from __future__ import annotations

import json
import platform
import time
from functools import partial
from pathlib import Path

import plotly  # noqa: F401  of the page, and sklearn of the images: told now if absent, not after the work or by a worker
import sklearn  # noqa: F401
import torch
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table as RichTable

from madamoo import __version__
from madamoo.bench.training import gather, workers
from madamoo.report.page import Table, write_page

from .contenders import ADAM, CONTENDERS, MADAM
from .page import make_page
from .quadratics import FIXED, run_fixed, run_switching
from .summary import Results, as_record, digits_table, findings, fixed_table, switching_table
from .training import plan, train


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
        console.print(_rich(table))
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
    numbers.write_text(json.dumps(record, indent=1, allow_nan=False) + "\n", encoding="utf-8")
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


def _rich(table: Table) -> RichTable:
    shown = RichTable(
        title=f"\n{table.title}",
        caption=table.caption,
        title_justify="left",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        collapse_padding=True,
        pad_edge=False,  # the widest table then fits 80 columns
    )
    for k, name in enumerate(table.header):
        shown.add_column(name, justify="right" if k else "left")
    for row in table.rows:
        shown.add_row(*map(str, row))
    return shown
