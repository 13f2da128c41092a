"""From runs to numbers: statistics over seeds, the tables that terminal and page share, and what they say in words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from madamoo.bench import is_static
from madamoo.figures.experiments import AT_ONCE, PHASES
from madamoo.presentation.style import ADAM, CONTROL, MADAM, counted, plus_minus, vector
from madamoo.presentation.tables import Cell, Table, Value

from . import quadratics
from .quadratics import FIXED, FixedRun, SwitchingRun
from .training import CONTENDERS, PROFILE, SOLVERS, DigitsRun


@dataclass(frozen=True)
class Results:
    """Everything that was run."""

    switching: list[SwitchingRun]
    fixed: list[FixedRun]
    runs: list[DigitsRun]


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


def estimate(values: Sequence[float]) -> Estimate:
    return Estimate(fmean(values), stdev(values) if len(values) > 1 else math.nan, len(values))


def finals(runs: Sequence[DigitsRun], solver: str, contender: str) -> list[float]:
    """Final accuracies in the order of the seeds. Under constant weights the control's are MAdam's."""
    if contender == CONTROL and is_static(solver):
        contender = MADAM
    chosen = sorted((r for r in runs if (r.solver, r.contender) == (solver, contender)), key=lambda r: r.seed)
    return [r.final for r in chosen]


def differences(runs: Sequence[DigitsRun], solver: str, contender: str, baseline: str) -> list[float]:
    """Final accuracy of one optimizer minus that of another, seed by seed."""
    pairs = zip(finals(runs, solver, contender), finals(runs, solver, baseline), strict=True)
    return [a - b for a, b in pairs]


def checkpoints(steps: int) -> list[int]:
    """The numbers of steps after which distances are shown."""
    return sorted({max(1, steps // part) for part in (8, 4, 2, 1)})


def switching_table(runs: Sequence[SwitchingRun]) -> Table:
    """The gap l_lambda(x) - l*_lambda, phase by phase."""
    header = ["phase"]
    header += [f"{run.contender}\n{what}" for run in runs for what in ("mean", "end")]
    columns = [column for run in runs for column in (run.phase_means, run.phase_ends)]
    rows = [
        [f"{k + 1} {vector(preference)}", *(f"{column[k]:.2g}" for column in columns)]
        for k, preference in enumerate(PHASES)
    ]
    overall = [value for run in runs for value in (run.mean_after_switches, run.end_after_switches)]
    rows.append([f"2 to {len(PHASES)}, mean", *(f"{value:.2g}" for value in overall)])
    return Table(
        "Two tilted quadratics, switching preference: loss above the optimum",
        header,
        rows,
        f"Scalarised loss minus its minimum: mean over the {runs[0].gaps.shape[1]} steps of a phase (its preference in "
        f"brackets), and at its end. All at the same learning rate, {quadratics.LR}.",
    )


def fixed_table(runs: Sequence[FixedRun]) -> Table:
    """Distance to x*(lambda) as the steps go by."""
    marks = checkpoints(runs[0].paths.shape[1] - 1)
    rows = [
        [f"{vector(preference)}  {run.contender}", *(f"{run.distances[mark]:.2g}" for mark in marks)]
        for preference in FIXED
        for run in runs
        if run.preference == preference
    ]
    return Table(
        "Two tilted quadratics, fixed preference: distance to the optimum",
        ["preference", *(f"{mark} steps" for mark in marks)],
        rows,
        f"Mean over three starts. Both at the same learning rate, {quadratics.LR}.",
    )


def digits_table(runs: Sequence[DigitsRun]) -> Table:
    """Accuracy by solver and optimizer, and the differences seed by seed."""
    rows = []
    for solver in SOLVERS:
        row: list[Value] = [solver]
        for contender in CONTENDERS:
            same = contender == CONTROL and is_static(solver)
            score = estimate(finals(runs, solver, contender))
            row.append(Cell("as MAdam", value=math.nan) if same else plus_minus(score.mean, score.deviation))
        for baseline in (ADAM, CONTROL):
            same = baseline == CONTROL and is_static(solver)
            gain = estimate(differences(runs, solver, MADAM, baseline))
            row.append("-" if same else plus_minus(gain.mean, gain.error, sign=True))
        rows.append(row)
    epochs = len(runs[0].accuracy)
    seeds = len({r.seed for r in runs})
    return Table(
        "Two-digit images: test accuracy in per cent, mean of both tasks",
        ["solver", *CONTENDERS, f"{MADAM} -\n{ADAM}", f"{MADAM} -\n{CONTROL}"],
        rows,
        f"After {counted(epochs, 'epoch')}, {counted(seeds, 'seed')}. Accuracy: mean ± standard deviation; difference "
        "of "
        f"pairs with the same seed: mean ± standard error. All at the same learning rate, {PROFILE.lr}, which need "
        "not be each one's best. A few seeds are a demonstration, not evidence.",
    )


def findings(results: Results) -> list[str]:
    """What the numbers say, whichever way they went."""
    return [*_switching_findings(results.switching), *_digits_findings(results.runs)]


def _switching_findings(runs: Sequence[SwitchingRun]) -> list[str]:
    means = {run.contender: run.mean_after_switches for run in runs}
    ends = {run.contender: run.end_after_switches for run in runs}
    return [
        f"Switching preference, mean loss above the optimum after a switch: {_listed(means)}; "
        f"lowest with {min(means, key=means.__getitem__)}.",
        f"The same at the end of a phase: {_listed(ends)}; lowest with {min(ends, key=ends.__getitem__)}.",
    ]


def _digits_findings(runs: Sequence[DigitsRun]) -> list[str]:
    lines = []
    for solver in SOLVERS:
        gains = differences(runs, solver, MADAM, ADAM)
        ahead = sum(gain > 0 for gain in gains)
        lines.append(
            f"Two-digit images, {solver}: {MADAM} minus {ADAM} {fmean(gains):+.2f} points; "
            f"{MADAM} ahead on {ahead} of {counted(len(gains), 'seed')}."
        )
    plain = [r for r in runs if not r.rows] or runs  # a diagnosed run took longer
    seconds = {c: fmean(r.seconds for r in plain if r.contender == c) for c in (ADAM, MADAM)}
    lines.append(f"A training run took {seconds[MADAM] / seconds[ADAM]:.2f} times as long with {MADAM} as with {ADAM}.")
    return lines


def as_record(results: Results) -> dict[str, Any]:
    """The numbers behind the tables, for a JSON file."""
    return {
        "switching_quadratics": {
            "lr": quadratics.LR,
            **AT_ONCE,
            "steps_per_phase": results.switching[0].gaps.shape[1],
            "preferences": PHASES,
            "gap": {
                run.contender: {
                    "phase_means": run.phase_means,
                    "phase_ends": run.phase_ends,
                    "mean_after_switches": run.mean_after_switches,
                    "end_after_switches": run.end_after_switches,
                }
                for run in results.switching
            },
        },
        "fixed_quadratics": [
            {
                "optimizer": run.contender,
                "preference": run.preference,
                "distance": {mark: float(run.distances[mark]) for mark in checkpoints(run.paths.shape[1] - 1)},
            }
            for run in results.fixed
        ],
        "digits": {
            "lr": PROFILE.lr,
            "batch": PROFILE.batch,
            "accuracy": {
                solver: {c: _as_dict(estimate(finals(results.runs, solver, c))) for c in CONTENDERS}
                for solver in SOLVERS
            },
            "difference": {
                solver: {
                    f"{MADAM} - {b}": _as_dict(estimate(differences(results.runs, solver, MADAM, b)))
                    for b in (ADAM, CONTROL)
                }
                for solver in SOLVERS
            },
            "runs": [
                {
                    "solver": run.solver,
                    "optimizer": run.contender,
                    "seed": run.seed,
                    "seconds": run.seconds,
                    "accuracy_by_epoch_and_task": run.accuracy,
                }
                for run in results.runs
            ],
        },
    }


def _as_dict(e: Estimate) -> dict[str, float | int | None]:
    known = e.count > 1  # JSON has no NaN
    return {
        "mean": e.mean,
        "deviation": e.deviation if known else None,
        "standard_error": e.error if known else None,
        "seeds": e.count,
    }


def _listed(values: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.2g}" for name, value in values.items())
