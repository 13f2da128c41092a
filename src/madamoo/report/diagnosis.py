"""The sections that a probe's rows make: conflict, signed effects, sign flips, curvature; of one run or of two."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from madamoo.diagnostics import summary
from madamoo.diagnostics._measure import METRICS
from madamoo.diagnostics._sinks import Row

from .figures import Series, binned, curves, dash, dots, heat_map, hue
from .page import Figure, Number, Panels, Section, Table
from .words import percent

LABELS = {
    "euclidean": "Euclidean",
    "adam": "Adam's metric",
    "preference": "Preference-conditioned",
    "realised": "The step taken",
}
SHORT = {"euclidean": "Euclidean", "adam": "Adam's", "preference": "preference", "realised": "step taken"}
HUES = {"euclidean": 6, "adam": 1, "preference": 0, "realised": 2}
Rows = Sequence[Row]


def sections(runs: Mapping[str, Rows]) -> list[Section]:
    """All that rows tell, the runs side by side; those without rows are left out."""
    known = {name: rows for name, rows in runs.items() if rows}
    if not known:
        return []
    return [conflict(known), effects(known), flips(known), curvature(known)]


def names_of(rows: Rows) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row["objectives"]))


def steps_of(rows: Rows) -> list[int]:
    return [row["step"] for row in rows]


def _titled(title: str, name: str, runs: Mapping[str, Rows]) -> str:
    return f"{title}: {name}" if len(runs) > 1 else title


def conflict(runs: Mapping[str, Rows]) -> Section:
    """Cosines between the objectives' gradients, and how often they are negative."""
    maps = [
        heat_map(
            _titled("Mean cosine between gradients", name, runs),
            names_of(rows),
            mean_cosines(rows),
            "Blue agrees, orange conflicts.",
        )
        for name, rows in runs.items()
    ]
    lines = [
        Series(name, *binned(steps_of(rows), [row["conflict_rate"] for row in rows]), hue(k, len(runs)))
        for k, (name, rows) in enumerate(runs.items())
    ]
    over = curves(
        "Conflict rate",
        lines,
        "step",
        "share of pairs",
        caption="Share of pairs of objectives whose gradients have a negative cosine.",
        percent=True,
    )
    return Section("Conflict", [Panels([*maps, over])])


def mean_cosines(rows: Rows) -> list[list[float | None]]:
    """Over the rows in which both objectives were there."""
    names = names_of(rows)
    found: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        for a, line in zip(row["objectives"], row["cosines"], strict=True):
            for b, value in zip(row["objectives"], line, strict=True):
                if value is not None:
                    found.setdefault((a, b), []).append(value)
    return [[fmean(found[a, b]) if (a, b) in found else None for b in names] for a in names]


def effects(runs: Mapping[str, Rows]) -> Section:
    """What the step under each metric does to each objective, to first order."""
    panels = []
    for metric in METRICS:
        for name, rows in runs.items():
            series = [s for k, n in enumerate(names_of(rows)) for s in _alignment(rows, metric, n, k)]
            if series:
                panels.append(
                    curves(_titled(LABELS[metric], name, runs), series, "step", "cosine", zero=True, height=300)
                )
    text = (
        "The effect of a step on an objective, as the cosine between its gradient and the step: above zero the step "
        "improves the objective, below zero it makes it worse. The direction is the same in all panels; only the "
        "metric that divides it differs. The step taken has momentum and learning rate in it. Lines are means over "
        "stretches of the run, and each dot is a measured step that makes an objective worse."
    )
    return Section("Signed effects", [text, Panels(panels)] if panels else [])


def _alignment(rows: Rows, metric: str, name: str, index: int) -> list[Series]:
    """A line of means, and the single cases below zero; nothing if the metric is not known."""
    steps, values = steps_of(rows), [(row["alignments"][metric] or {}).get(name) for row in rows]
    if all(v is None for v in values):
        return []
    below = [(x, v) for x, v in zip(steps, values, strict=True) if v is not None and v < 0]
    worse = Series(name, [x for x, _ in below], [v for _, v in below], index, mode="markers", listed=False, opacity=0.8)
    return [Series(name, *binned(steps, values), index, dash(index)), *([worse] if below else [])]


def flips(runs: Mapping[str, Rows]) -> Section:
    facts = {name: summary(rows) for name, rows in runs.items()}
    metrics = [m for m in METRICS[1:] if any(f["flip_rates"][m] is not None for f in facts.values())]
    if not metrics:
        return Section("Sign flips", ["The direction improves no objective in any measured step: nothing can flip."])
    text = (
        "A metric flips an objective when the direction would improve it and the step under the metric makes it "
        "worse. Rates are shares of the measured steps in which the direction improves the objective."
    )
    panels: list[Figure] = []
    for name, rows in runs.items():
        series = [
            Series(LABELS[m], *binned(steps_of(rows), [_share(row["flips"][m]) for row in rows]), HUES[m])
            for m in metrics
        ]
        series = [s for s in series if any(v is not None for v in s.y)]
        if series:
            panels.append(
                curves(_titled("Flip rate over the run", name, runs), series, "step", "flipped", percent=True)
            )
    if len(runs) == 1:
        ((_, found),) = facts.items()
        groups = [(LABELS[m], HUES[m], [found["flip_rate"][m][n] for n in found["objectives"]]) for m in metrics]
        panels.append(dots("Flip rate by objective", groups, found["objectives"], "flipped", percent=True))
    else:
        names = list(dict.fromkeys(n for f in facts.values() for n in f["objectives"]))
        for m in metrics:
            pairs = [
                (name, hue(k, 2), [f["flip_rate"][m].get(n) for n in names])
                for k, (name, f) in enumerate(facts.items())
            ]
            panels.append(dots(f"Flip rate by objective: {LABELS[m]}", pairs, names, "flipped", percent=True))
    tables = [by_objective(_titled("By objective", name, runs), facts[name], metrics) for name in runs]
    return Section("Sign flips", [text, Panels(panels), *tables])


def _share(flipped: Mapping[str, bool | None] | None) -> float | None:
    known = [x for x in (flipped or {}).values() if x is not None]
    return sum(known) / len(known) if known else None


def by_objective(title: str, facts: Mapping[str, Any], metrics: Sequence[str]) -> Table:
    shown = [m for m in METRICS if any(x is not None for x in facts["alignment"][m].values())]
    header = ["objective", "weight", *(f"flipped:\n{SHORT[m]}" for m in metrics)]
    header += [f"cosine:\n{SHORT[m]}" for m in shown]
    rows = [
        [
            name,
            facts["weights"][name],
            *(Number(facts["flip_rate"][m][name], percent(facts["flip_rate"][m][name])) for m in metrics),
            *(facts["alignment"][m][name] for m in shown),
        ]
        for name in facts["objectives"]
    ]
    return Table(title, header, rows, "Means over the measured steps.")


def curvature(runs: Mapping[str, Rows]) -> Section:
    """How far Adam's second moment is from the curvature at the active preference; condition numbers; floors."""
    factor, conditions, floors = [], [], []
    for k, (name, rows) in enumerate(runs.items()):
        steps = steps_of(rows)
        away = [_exp((row["marginalisation"] or {}).get("log_distance")) for row in rows]
        factor.append(Series(name, steps, away, hue(k, len(runs))))
        for m in ("adam", "preference"):
            label, tint = (LABELS[m], HUES[m]) if len(runs) == 1 else (f"{SHORT[m]}, {name}", hue(k, 2))
            style = "dash" if m == "adam" and len(runs) > 1 else "solid"
            conditions.append(Series(label, steps, [row["spread"][m] for row in rows], tint, style))
        floors.append(Series(name, steps, [row["floored"] for row in rows], hue(k, len(runs))))
    found = [
        curves(
            "Adam's second moment against the curvature",
            factor,
            "step",
            "factor",
            caption="The mean factor between the average of d² and the curvature at the preference of the step, over "
            "all coordinates; 1 is agreement.",
        ),
        curves(
            "Spread of the metric",
            conditions,
            "step",
            "99th by 1st percentile",
            caption="Of the entries of each metric. The larger, the easier it flips a sign.",
            log=True,
        ),
        curves(
            "At the floor",
            floors,
            "step",
            "coordinates",
            caption="Share of coordinates whose curvature is at its floor, (1 − β) d².",
            percent=True,
        ),
    ]
    if not any(y for s in floors for y in s.y):  # the words say so; an empty figure says no more
        found.pop()
    kept = [f for f in found if any(y is not None for trace in f.data for y in trace["y"])]
    for figure in kept:  # a run of which nothing is known has no place in the legend
        for trace in figure.data:
            if isinstance(trace, dict) and all(y is None for y in trace["y"]):
                trace["showlegend"] = False
    return Section("Curvature", [Panels(kept)] if kept else [])


def _exp(value: float | None) -> float | None:
    return None if value is None else math.exp(min(value, 700.0))


def facts_table(rows: Rows) -> list[tuple[str, Number]]:
    """The facts that are one number a run, for a table of runs."""
    f = summary(rows)

    def rate(value: float | None) -> Number:
        return Number(value, percent(value))

    def number(value: float | None) -> Number:
        return Number(value, "" if value is None else f"{value:.3g}")

    return [
        ("conflict rate", rate(f["conflict_rate"])),
        ("against an objective: Euclidean", rate(f["against"]["euclidean"])),
        *((f"flipped: {LABELS[m]}", rate(f["flip_rates"][m])) for m in METRICS[1:]),
        ("weights moved, row to row", rate(f["weights_moved"])),
        ("second moment off curvature, factor", number(_exp(f["log_distance"]))),
        ("condition number: Adam's metric", number(f["condition"]["adam"])),
        ("condition number: Preference-conditioned", number(f["condition"]["preference"])),
        ("at the floor", rate(f["floored"])),
    ]
