"""From runs to numbers: means over seeds, differences between contenders seed by seed, and the tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from madamoo.presentation.style import ADAM, plus_minus, rate_text
from madamoo.presentation.tables import Cell, Table, Value

from .contest import R, Run, chosen
from .digits import TASKS, FrontRun, PlainRun
from .physics import OBJECTIVES, PhysicsRun


@dataclass(frozen=True)
class Results:
    """Everything that was run, at all rates."""

    fronts: list[FrontRun]
    physics: list[PhysicsRun]
    plain: list[PlainRun]

    @property
    def seconds(self) -> float:
        """Of the processor, for all runs."""
        return math.fsum(run.seconds for runs in (self.fronts, self.physics, self.plain) for run in runs)


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds, and how far it can be trusted: NaN if there was one seed only."""

    mean: float
    deviation: float
    count: int

    @property
    def error(self) -> float:
        """The standard error of the mean."""
        return self.deviation / math.sqrt(self.count)

    @property
    def sign(self) -> int:
        """1 or -1 if the mean is more than two standard errors from zero, 0 if it is not or if there is one seed."""
        return 0 if math.isnan(self.error) or abs(self.mean) <= 2 * self.error else int(math.copysign(1, self.mean))


def estimate(values: Sequence[float]) -> Estimate:
    return Estimate(fmean(values), stdev(values) if len(values) > 1 else math.nan, len(values))


def of(runs: Sequence[R], contender: str) -> list[R]:
    """The contender's runs at its chosen rate, by seed."""
    return sorted((run for run in chosen(runs) if run.contender == contender), key=lambda run: run.seed)


def contenders(runs: Sequence[Run]) -> list[str]:
    return list(dict.fromkeys(run.contender for run in runs))


def gains(runs: Sequence[R], contender: str, baseline: str, value: Callable[[R], float]) -> list[float]:
    """What a contender has more than another, seed by seed."""
    pairs = zip(of(runs, contender), of(runs, baseline), strict=True)
    return [value(a) - value(b) for a, b in pairs]


# What each comparison is about; more is better in all of them.
def area(run: FrontRun) -> float:
    return run.hypervolume


def accuracy(run: PlainRun) -> float:
    return run.accuracy


def closeness(run: PhysicsRun) -> float:
    """Minus the logarithm of the error: differences are factors. A run that diverged is off by everything."""
    return -math.log(run.error) if math.isfinite(run.error) else -math.log(1e3)


def balanced(run: FrontRun) -> list[float]:
    """The accuracies of both tasks at equal preference."""
    return [float(x) for x in run.front.points[len(run.front) // 2]]


def mean_error(runs: Sequence[PhysicsRun]) -> float:
    """The geometric mean of the errors."""
    return math.exp(-fmean(closeness(run) for run in runs))


def _gain(runs: Sequence[R], contender: str, value: Callable[[R], float], digits: int) -> Value:
    if contender == ADAM:
        return Cell("", value=math.nan)
    found = estimate(gains(runs, contender, ADAM, value))
    return Cell(plus_minus(found.mean, found.error, digits, sign=True), value=found.mean)


def front_table(runs: Sequence[FrontRun]) -> Table:
    rows: list[list[Value]] = []
    for name in contenders(runs):
        mine = of(runs, name)
        score = estimate([run.hypervolume for run in mine])
        middle = [fmean(values) for values in zip(*(balanced(run) for run in mine), strict=True)]
        rows.append(
            [
                name,
                Cell(plus_minus(score.mean, score.deviation, 3), value=score.mean),
                *(Cell(f"{x:.1f}", value=x) for x in middle),
                _gain(runs, name, area, 3),
                Cell(rate_text(mine[0].lr), value=mine[0].lr),
            ]
        )
    return Table(
        "One network for every preference, on test images",
        ["optimizer", "hypervolume", *(f"{task},\n% read" for task in TASKS), f"hypervolume\n- {ADAM}'s", "rate"],
        rows,
        "Hypervolume: the area below the front, 1 at best; mean ± standard deviation. Accuracies are at equal "
        "preference. Differences between runs of one seed: mean ± standard error.",
    )


def physics_table(runs: Sequence[PhysicsRun]) -> Table:
    rows: list[list[Value]] = []
    for name in contenders(runs):
        mine = of(runs, name)
        error = mean_error(mine)
        factor = math.exp(fmean(gains(runs, name, ADAM, closeness)))
        last = [fmean(run.losses[objective][-1] for run in mine) for objective in OBJECTIVES]
        rows.append(
            [
                name,
                Cell(f"{100 * error:.2g} %", value=error),
                Cell("" if name == ADAM else f"{factor:.2g}", value=math.nan if name == ADAM else factor),
                *(Cell(f"{x:.1e}", value=x) for x in last),
                Cell(rate_text(mine[0].lr), value=mine[0].lr),
            ]
        )
    return Table(
        "A physics-informed network, against the exact solution",
        ["optimizer", "relative\nerror", f"{ADAM}'s error\nis so many times", *(f"loss:\n{n}" for n in OBJECTIVES),
         "rate"],
        rows,
        "Geometric means of the errors, means of the last losses.",
    )  # fmt: skip


def plain_table(runs: Sequence[PlainRun]) -> Table:
    rows: list[list[Value]] = []
    for name in contenders(runs):
        mine = of(runs, name)
        score = estimate([run.accuracy for run in mine])
        rows.append(
            [
                name,
                Cell(plus_minus(score.mean, score.deviation), value=score.mean),
                _gain(runs, name, accuracy, 2),
                Cell(rate_text(mine[0].lr), value=mine[0].lr),
            ]
        )
    return Table(
        "Constant weights: test accuracy in per cent, mean of both tasks",
        ["optimizer", "accuracy", f"minus {ADAM}'s", "rate"],
        rows,
        "Mean ± standard deviation; differences between runs of one seed: mean ± standard error.",
    )


def as_record(results: Results) -> dict[str, Any]:
    """The numbers behind tables and figures, for a JSON file."""
    return {
        "fronts": [
            {**_record(run), "hypervolume": run.hypervolume, "front": run.front.to_dict()} for run in results.fronts
        ],
        "physics": [
            {**_record(run), "steps": run.steps, "losses": run.losses, "errors": run.errors} for run in results.physics
        ],
        "constant_weights": [{**_record(run), "accuracy": run.accuracy} for run in results.plain],
    }


def _record(run: Run) -> dict[str, Any]:
    return {"optimizer": run.contender, "lr": run.lr, "seed": run.seed, "score": run.score, "cpu_seconds": run.seconds}
