"""Who is compared, and at which learning rate: everyone's is chosen in the same way."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from torch import Tensor

from madamoo import MSOAP as Msoap
from madamoo import MAdam, MultiObjective
from madamoo.presentation.style import ADAM, MADAM, MSOAP, SOAP
from madamoo.relatives import SOAP as Soap
from madamoo.solvers import Solver

BUILD: dict[str, Callable[[list[Tensor], float, Solver], MultiObjective]] = {
    ADAM: lambda p, lr, solver: MAdam(p, lr=lr, solver=solver, metric=None),
    MADAM: lambda p, lr, solver: MAdam(p, lr=lr, solver=solver),
    MSOAP: lambda p, lr, solver: Msoap(p, lr=lr, solver=solver),
    SOAP: lambda p, lr, solver: MultiObjective(Soap(p, lr=lr), solver),
}


@dataclass(frozen=True)
class Run:
    """One training run. ``score`` chooses the learning rate and is never of test data; more is better."""

    contender: str
    lr: float
    seed: int
    score: float
    seconds: float  # of the processor


R = TypeVar("R", bound=Run)


@dataclass(frozen=True)
class Contest(Generic[R]):
    """One comparison: ``train(contender, lr, seed)`` for all contenders, each at the better of two rates."""

    train: Callable[[str, float, int], R]
    contenders: Sequence[str]
    rates: Sequence[float]
    seeds: int

    def first(self) -> list[Callable[[], R]]:
        """The runs of the first seed, at both rates."""
        return [partial(self.train, c, lr, 0) for c in self.contenders for lr in self.rates]

    def rest(self, first: Sequence[R]) -> list[Callable[[], R]]:
        """The runs of the other seeds, at the rates that the first chose."""
        rates = best_rates(first)
        return [partial(self.train, c, rates[c], seed) for c in self.contenders for seed in range(1, self.seeds)]


def best_rates(runs: Iterable[Run]) -> dict[str, float]:
    """By contender, the rate with the best score on the first seed; a run that diverged has the worst."""
    best: dict[str, Any] = {}
    for run in runs:
        if run.seed == 0 and (run.contender not in best or _rank(run) > _rank(best[run.contender])):
            best[run.contender] = run
    return {name: run.lr for name, run in best.items()}


def _rank(run: Run) -> float:
    return run.score if math.isfinite(run.score) else -math.inf


def chosen(runs: Iterable[R]) -> list[R]:
    """The runs at the chosen rates: those that tables and figures show."""
    runs = list(runs)
    rates = best_rates(runs)
    return [run for run in runs if run.lr == rates[run.contender]]
