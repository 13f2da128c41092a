"""What a user sees while the lab works."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from madamoo.presentation.progress import Lines

from ..problems import Benchmark, Profile
from ..runs import Config
from ..training import reductions


def describe(config: Config, profile: Profile, folder: Path) -> Iterator[str]:
    yield (
        f"{config.benchmark}, profile {config.profile}: solver {config.solver}, optimizer {config.optimizer}, "
        f"rate {config.lr:g}, seed {config.seed}, {config.epochs} epochs of batches of {config.batch}, {config.model}"
    )
    for reduction in reductions(config, profile):
        yield f"Reduced: {reduction}"
    yield f"Folder: {folder}"


class Progress(Lines):
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


class Runs(Lines):
    """The runs of a sweep."""

    def done(self, config: Config, outcome: dict[str, Any] | Exception) -> None:
        text = type(outcome).__name__ if isinstance(outcome, Exception) else outcome["status"]
        self.tick(f"{config.solver} {config.optimizer} {config.lr:g} seed {config.seed}: {text}", self.count + 1)
