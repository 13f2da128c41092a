"""What a search comes to."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from ._contenders import Contender
from ._cost import Cost
from ._statistics import Comparison

Say: TypeAlias = Callable[[str, int, int], None]
"""Gets the name of a phase, how many of its trials ended, and how many it has."""


class TrialError(RuntimeError):
    """An exception in the user's code, with the trial in which it came and its traceback."""


@dataclass(frozen=True)
class Finalist:
    """A contender on the fresh seeds: ``values`` has one validation number per seed, NaN where it diverged.

    Example:
        >>> Finalist(Contender("ls", "adam", 1e-3), (0.5, 0.25)).mean
        0.375
    """

    contender: Contender
    values: tuple[float, ...]
    comparison: Comparison | None = None  # None: it is the baseline
    cost: Cost | None = None

    @property
    def mean(self) -> float:
        return sum(self.values) / len(self.values)

    @property
    def gain(self) -> float:
        """Over the baseline; of one that diverged on some seeds no mean is known, and it comes last."""
        found = None if self.comparison is None else self.comparison.gain
        return -math.inf if found is None else found

    @property
    def diverged(self) -> int:
        return sum(map(math.isnan, self.values))


@dataclass(frozen=True)
class Tuned:
    """What to use, and what that rests on: the result of :func:`madamoo.tune`.

    Example:
        >>> adam = Finalist(Contender("ls", "adam", 1e-3), (0.5, 0.25))
        >>> found = Tuned(adam, adam, (), ())
        >>> found.use.solver, found.use.optimizer, found.use.lr, found.beats_adam
        ('ls', 'adam', 0.001, False)
    """

    winner: Finalist
    baseline: Finalist
    finalists: tuple[Finalist, ...]
    notes: tuple[str, ...] = ()
    page: Path | None = None

    @property
    def use(self) -> Contender:
        return self.winner.contender

    @property
    def beats_adam(self) -> bool:
        """Whether it is better than Adam with LS beyond chance."""
        return self.winner is not self.baseline

    def __str__(self) -> str:
        from ._words import verdict  # it needs what draws pages

        return verdict(self)


@dataclass(frozen=True)
class Settings:
    """What a folder of trials was made with; it can only be continued with the same."""

    solvers: list[str]
    optimizers: list[str]
    rates: list[float]
    budget: int
    seeds: int
    finalists: int
    seed: int
    steps: int
    higher_is_better: bool
