"""What a user sees while the lab works: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from ..problems import Benchmark, Profile
from ..runs import Config
from ..training import reductions

PAUSE = 5.0  # seconds between two lines where there is no terminal


def describe(config: Config, profile: Profile, folder: Path) -> Iterator[str]:
    yield (
        f"{config.benchmark}, profile {config.profile}: solver {config.solver}, optimizer {config.optimizer}, "
        f"rate {config.lr:g}, seed {config.seed}, {config.epochs} epochs of batches of {config.batch}, {config.model}"
    )
    for reduction in reductions(config, profile):
        yield f"Reduced: {reduction}"
    yield f"Folder: {folder}"


class _Lines:
    """A bar on a terminal; elsewhere lines, not more often than every few seconds."""

    def __init__(self, total: int) -> None:
        self.total, self.count, self.last = total, 0, 0.0
        self.console = Console(stderr=True, highlight=False, soft_wrap=True)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self.bar = Bar(*columns, TimeRemainingColumn(), console=self.console, transient=True)
        self.task = self.bar.add_task("", total=total)

    def __enter__(self) -> Any:
        if self.console.is_terminal:
            self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.console.is_terminal:
            self.bar.stop()

    def tick(self, text: str, count: int) -> None:
        self.count = count
        if self.console.is_terminal:
            self.bar.update(self.task, completed=count, description=text)
        elif time.monotonic() - self.last > PAUSE or count == self.total:
            self.last = time.monotonic()
            self.console.print(f"{count}/{self.total}  {text}")


class Progress(_Lines):
    """The epochs of one run."""

    def __init__(self, problem: Benchmark, epochs: int) -> None:
        super().__init__(epochs)
        self.problem = problem
        self.rows: list[dict[str, Any]] = []

    def epoch(self, row: dict[str, Any]) -> None:
        self.rows.append(row)
        primary = self.problem.primary
        if row["validation"] is None:
            text = "the validation loss is not finite"
        else:
            value = row["validation"][primary.name]
            text = f"validation loss {row['validation_loss']:.4g}, {primary.name} {value:.{primary.digits}f}"
        self.tick(text, row["epoch"])


class Runs(_Lines):
    """The runs of a sweep."""

    def done(self, config: Config, outcome: dict[str, Any] | Exception) -> None:
        text = type(outcome).__name__ if isinstance(outcome, Exception) else outcome["status"]
        self.tick(f"{config.solver} {config.optimizer} {config.lr:g} seed {config.seed}: {text}", self.count + 1)
