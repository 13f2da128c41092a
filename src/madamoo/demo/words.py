"""What the numbers say in sentences, whichever way they went."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from madamoo import diagnostics
from madamoo.presentation.style import ADAM, MADAM, MSOAP, SOAP, counted

from .digits import TASKS, FrontRun, PlainRun
from .physics import OBJECTIVES, PhysicsRun
from .summary import Results, accuracy, area, balanced, closeness, estimate, gains, mean_error, of

AHEAD, LEVEL, BEHIND = "ahead of", "level with", "behind"
RARE = 0.02  # a share of improvements that is little, as in the verdicts of madamoo.diagnostics


def standing(differences: Sequence[float]) -> str:
    """How one stands to another, given what it has more by seed: level unless two standard errors away from zero."""
    if len(differences) == 1:  # a direction and no more, which the sentence says
        return AHEAD if differences[0] > 0 else BEHIND if differences[0] < 0 else LEVEL
    return {1: AHEAD, 0: LEVEL, -1: BEHIND}[estimate(differences).sign]


def on_seeds(differences: Sequence[float]) -> str:
    if len(differences) == 1:
        return "on the one seed that was run, which shows a direction and no more"
    return f"better on {sum(d > 0 for d in differences)} of {counted(len(differences), 'seed')}"


def rules(results: Results) -> str:
    """How it was compared, in one sentence or two."""
    seeds = counted(len({run.seed for run in results.fronts}), "seed")
    return (
        f"{seeds[0].upper() + seeds[1:]}. Each optimizer has the better of two learning rates, chosen on the first "
        'seed without test data. "Level" is a difference of less than two standard errors.'
    )


def findings(results: Results) -> list[str]:
    """The demo in a few sentences."""
    fronts, physics = front_findings(results.fronts), physics_findings(results.physics)
    return [
        f"One network for every preference: {fronts[0]}",
        f"Physics-informed network: {physics[0]}",
        f"Against {SOAP}, which has the eigenbasis and knows no preference: on the fronts, {fronts[2]} On the "
        f"physics-informed network, {physics[1]}",
        f"Constant weights: {plain_finding(results.plain)}",
    ]


def front_findings(runs: Sequence[FrontRun]) -> list[str]:
    """MSOAP and MAdam against Adam; MSOAP against SOAP."""
    lines = [_compared_fronts(runs, *pair) for pair in ((MSOAP, ADAM), (MADAM, ADAM), (MSOAP, SOAP))]
    mine, base = ([fmean(v) for v in zip(*map(balanced, of(runs, name)), strict=True)] for name in (MSOAP, ADAM))
    read = " and ".join(
        f"{x:.0f} % of the {task}s ({ADAM}: {y:.0f} %)" for task, x, y in zip(TASKS, mine, base, strict=True)
    )
    lines[0] += f" At equal preference it reads {read}."
    return lines


def _compared_fronts(runs: Sequence[FrontRun], name: str, baseline: str) -> str:
    found = gains(runs, name, baseline, area)
    sizes = [fmean(run.hypervolume for run in of(runs, one)) for one in (name, baseline)]
    return (
        f"{name} is {standing(found)} {baseline}: hypervolume {sizes[0]:.3f} against {sizes[1]:.3f}, {on_seeds(found)}."
    )


def physics_findings(runs: Sequence[PhysicsRun]) -> list[str]:
    """MSOAP against Adam, and against SOAP."""
    lines = []
    for baseline in (ADAM, SOAP):
        found = gains(runs, MSOAP, baseline, closeness)
        sizes = [mean_error(of(runs, name)) for name in (MSOAP, baseline)]
        lines.append(
            f"{MSOAP} is {standing(found)} {baseline}: relative error {100 * sizes[0]:.2g} % against "
            f"{100 * sizes[1]:.2g} %, {times(fmean(found))}, {on_seeds(found)}."
        )
    return lines


def times(log: float) -> str:
    """A factor between two errors, given the logarithm of the other one by the one in question."""
    factor = math.exp(abs(log))
    if factor < 1.05:
        return "about the same"
    return f"{factor:.2g} times {'smaller' if log > 0 else 'larger'}"


def plain_finding(runs: Sequence[PlainRun]) -> str:
    found = gains(runs, MADAM, ADAM, accuracy)
    verdict = {AHEAD: "a gain, in this run", LEVEL: "nothing is gained", BEHIND: "a loss"}[standing(found)]
    return (
        f"{MADAM} minus {ADAM} is {fmean(found):+.2f} points of accuracy, from {min(found):+.2f} to {max(found):+.2f} "
        f"over {counted(len(found), 'seed')}: {verdict}."
    )


Rows = Sequence[dict[str, Any]]


def conflict_findings(runs: Mapping[str, Rows]) -> list[str]:
    """Conflict and sign flips of the diagnosed runs."""
    facts = {name: diagnostics.summary(rows) for name, rows in runs.items()}
    lines = [_conflict(name, found) for name, found in facts.items()]
    flips = [found["flip_rates"]["adam"] for found in facts.values() if found["flip_rates"]["adam"] is not None]
    if flips and max(flips) < RARE:
        lines.append(f"Flips by {ADAM}'s metric are rare in this run: what separates the optimizers here is not these.")
    elif flips:
        most = _percent(max(flips))
        lines.append(f"{ADAM}'s metric undoes up to {most} of what the direction promises in this run.")
    return lines


def _conflict(name: str, facts: Mapping[str, Any]) -> str:
    text = (
        f"{name}: in {_percent(facts['conflict_rate'] or 0.0)} of {facts['rows']} measured steps the gradients of "
        f"{' and '.join(OBJECTIVES)} point against each other."
    )
    flipped = [
        f"{_flips(facts['flip_rate'][metric], rate)} by {label}"
        for metric, label in (
            ("adam", f"{ADAM}'s metric"),
            ("preference", "the metric in the eigenbasis, momentum included"),
            ("realised", "the step really taken, which has momentum in it"),
        )
        if (rate := facts["flip_rates"][metric]) is not None
    ]
    return f"{text} Improvements that the direction promises and that are turned into a loss: {'; '.join(flipped)}."


def _flips(by_objective: Mapping[str, float | None], rate: float) -> str:
    if not rate:
        return "none"
    worst = max(by_objective, key=lambda name: by_objective[name] or 0.0)
    return f"{_percent(rate)} (most often of {worst})"


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 0.1 else f"{100 * share:.0f} %"
