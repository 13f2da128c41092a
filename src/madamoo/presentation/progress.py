"""What a user sees while a command works: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

PAUSE = 5.0  # seconds between two lines where there is no terminal


class Lines:
    """A bar on a terminal; elsewhere lines, not more often than every few seconds."""

    def __init__(self, total: int) -> None:
        self.total, self.count, self.last = total, 0, 0.0
        self.console = Console(stderr=True, highlight=False, soft_wrap=True)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self.bar = Progress(*columns, TimeRemainingColumn(), console=self.console, transient=True)
        self.task = self.bar.add_task("", total=total)

    def __enter__(self) -> Any:
        if self.console.is_terminal:
            self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.console.is_terminal:
            self.bar.stop()

    def tick(self, text: str, count: int, total: int | None = None) -> None:
        """So many of ``total`` are done, which by default is what it was."""
        self.count, self.total = count, self.total if total is None else total
        if self.console.is_terminal:
            self.bar.update(self.task, completed=count, total=self.total, description=text)
        elif time.monotonic() - self.last > PAUSE or count == self.total:
            self.last = time.monotonic()
            self.console.print(f"{count}/{self.total}  {text}")
