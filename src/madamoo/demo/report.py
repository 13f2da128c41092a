"""The whole demo: run everything, print the tables, write page, picture and numbers."""

from __future__ import annotations

import json
import platform
import time
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib  # noqa: F401  of the picture, plotly of the page, and sklearn of the images: said now if absent
import plotly  # noqa: F401
import sklearn  # noqa: F401
import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from madamoo import __version__
from madamoo.bench.training import cores, gather, workers
from madamoo.files import write_text
from madamoo.presentation.page import write_page
from madamoo.presentation.tables import finite, rich_table

from . import digits, physics
from .contest import Contest
from .figures import draw_picture
from .page import make_page
from .summary import Results, as_record, front_table, physics_table, plain_table
from .words import findings, rules


def report(out: Path, *, seeds: int, epochs: int, steps: int) -> None:
    """Run the demo and leave its results in the folder ``out``, which exists."""
    console = Console()
    begin = time.perf_counter()
    results = run(console, seeds, epochs, steps)
    seconds = time.perf_counter() - begin

    tables = {
        "fronts": front_table(results.fronts),
        "physics": physics_table(results.physics),
        "plain": plain_table(results.plain),
    }
    for table in tables.values():
        console.print(rich_table(table))
    console.print()
    lines = findings(results)
    for line in lines:
        console.print(f"- {line}", highlight=False)
    console.print(rules(results), highlight=False)

    facts = {
        "Command": f"madamoo demo --seeds {seeds} --epochs {epochs} --steps {steps}",
        "Versions": f"madamoo {__version__}, torch {torch.__version__}, Python {platform.python_version()}",
        "Time": f"{seconds:.0f} s on {cores()} cores for the runs; {results.seconds:.0f} s of the processor",
    }
    page = write_page(make_page(results, tables, lines, facts), out / "index.html")
    picture = draw_picture(results.fronts, results.physics, out / "picture.svg")
    numbers = out / "results.json"
    record = finite({"facts": facts, "findings": lines, **as_record(results)})
    write_text(numbers, json.dumps(record, indent=1, allow_nan=False) + "\n")
    console.print(f"\nPage:    {page}\nPicture: {picture}\nNumbers: {numbers}", highlight=False, soft_wrap=True)


def run(console: Console, seeds: int, epochs: int, steps: int) -> Results:
    """Everything that is compared, in worker processes, behind a progress bar."""
    contests: list[Contest[Any]] = [
        Contest(partial(digits.train_front, epochs=epochs), digits.FRONT_CONTENDERS, digits.FRONT_RATES, seeds),
        Contest(partial(physics.train_physics, steps=steps), physics.CONTENDERS, physics.RATES, seeds),
        Contest(partial(digits.train_plain, epochs=epochs), digits.PLAIN_CONTENDERS, digits.PLAIN_RATES, seeds),
    ]
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with workers() as pool, Progress(*columns, console=console) as progress:
        first = [contest.first() for contest in contests]
        others = seeds - 1
        total = sum(len(calls) + others * len(c.contenders) for calls, c in zip(first, contests, strict=True))
        task = progress.add_task("Training", total=total)
        tick = partial(progress.advance, task)
        # All contests of a stage at once, so that no core waits for the longest run of one of them.
        found = _split(gather(pool, [call for calls in first for call in calls], tick), [len(c) for c in first])
        rest = [contest.rest(runs) for contest, runs in zip(contests, found, strict=True)]
        more = _split(gather(pool, [call for calls in rest for call in calls], tick), [len(c) for c in rest])
    return Results(*(a + b for a, b in zip(found, more, strict=True)))


def _split(runs: list[Any], sizes: list[int]) -> list[list[Any]]:
    ends = [sum(sizes[: k + 1]) for k in range(len(sizes))]
    return [runs[end - size : end] for size, end in zip(sizes, ends, strict=True)]
