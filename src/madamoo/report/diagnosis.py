"""The sections that a probe's rows make: conflict, signed effects, sign flips, curvature; of one run or of two."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from madamoo.diagnostics import METRICS, Row, summary
from madamoo.presentation import style
from madamoo.presentation.page import Panels, Section
from madamoo.presentation.plots import Figure, Group, Series, binned, curves, dots, heat_maps, hue, panels
from madamoo.presentation.style import METRIC_HUES, dash
from madamoo.presentation.tables import Cell, Table, number, share

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
    maps = heat_maps(
        {_titled("Mean cosine between gradients", n, runs): (names_of(r), mean_cosines(r)) for n, r in runs.items()},
        "Blue agrees, orange conflicts.",
    )
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
    parts = {
        _titled(f"{_named(metric)}", name, runs): [
            s for k, objective in enumerate(names_of(rows)) for s in _alignment(rows, metric, objective, k)
        ]
        for metric in METRICS
        for name, rows in runs.items()
    }
    known = {heading: series for heading, series in parts.items() if series}
    text = (
        "The effect of a step on an objective, as the cosine between its gradient and the step: above zero the step "
        "improves the objective, below zero it makes it worse. The direction is the same in all panels; only the "
        "metric that divides it differs. The step taken has momentum and learning rate in it. Lines are means over "
        "stretches of the run, and each dot is a measured step that makes an objective worse. All panels "
        "have one scale."
    )
    shown = panels(known, "step", "cosine", zero=True, height=300)
    return Section("Signed effects", [text, Panels(shown)] if shown else [])


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
    over = {
        _titled("Flip rate over the run", name, runs): [
            Series(_named(m), *binned(steps_of(rows), [_share(row["flips"][m]) for row in rows]), METRIC_HUES[m])
            for m in metrics
        ]
        for name, rows in runs.items()
    }
    known = {heading: [s for s in series if s.known] for heading, series in over.items()}
    shown = panels({heading: series for heading, series in known.items() if series}, "step", "flipped", percent=True)
    tables = [by_objective(_titled("By objective", name, runs), facts[name], metrics) for name in runs]
    return Section("Sign flips", [text, Panels([*shown, *_flip_dots(facts, metrics)]), *tables])


def _flip_dots(facts: Mapping[str, Mapping[str, Any]], metrics: Sequence[str]) -> list[Figure]:
    """Flip rates by objective: the metrics of one run beside each other, or a figure per metric with both runs."""
    names = list(dict.fromkeys(n for found in facts.values() for n in found["objectives"]))
    by_metric = {
        m: [Group(run, hue(k, len(facts)), [f["flip_rate"][m].get(n) for n in names])
            for k, (run, f) in enumerate(facts.items())]
        for m in metrics
    }  # fmt: skip
    if len(facts) == 1:
        groups = [Group(_named(m), METRIC_HUES[m], group.values) for m, (group,) in by_metric.items()]
        return [dots("Flip rate by objective", groups, names, "flipped", percent=True)]
    every = [group for groups in by_metric.values() for group in groups]
    return [
        dots(f"Flip rate by objective: {_named(m)}", groups, names, "flipped", percent=True, within=every)
        for m, groups in by_metric.items()
    ]


def _share(flipped: Mapping[str, bool | None] | None) -> float | None:
    known = [x for x in (flipped or {}).values() if x is not None]
    return sum(known) / len(known) if known else None


def by_objective(title: str, facts: Mapping[str, Any], metrics: Sequence[str]) -> Table:
    shown = [m for m in METRICS if any(x is not None for x in facts["alignment"][m].values())]
    short = {m: name.replace("-", "-\n") for m, name in style.METRICS.items()}
    header = [
        "objective",
        "weight",
        *(f"flipped:\n{short[m]}" for m in metrics),
        *(f"cosine:\n{short[m]}" for m in shown),
    ]
    rows = [
        [
            name,
            facts["weights"][name],
            *(share(facts["flip_rate"][m][name]) for m in metrics),
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
            label, tint = (_named(m), METRIC_HUES[m]) if len(runs) == 1 else (f"{style.METRICS[m]}, {name}", hue(k, 2))
            stroke = "dash" if m == "adam" and len(runs) > 1 else "solid"
            conditions.append(Series(label, steps, [row["spread"][m] for row in rows], tint, stroke))
        floors.append(Series(name, steps, [row["floored"] for row in rows], hue(k, len(runs))))
    shown = []
    figures: list[tuple[str, list[Series], str, str, dict[str, Any]]] = [
        (
            "Adam's second moment against the curvature",
            factor,
            "factor",
            "The mean factor between the average of d² and the curvature at the preference of the step, over all "
            "coordinates; 1 is agreement.",
            {},
        ),
        (
            "Spread of the metric",
            conditions,
            "99th by 1st percentile",
            "Of the entries of each metric. The larger, the easier it flips a sign.",
            {"log": True},
        ),
        (
            "At the floor",
            floors if any(y for s in floors for y in s.y) else [],  # the words say so; an empty figure says no more
            "coordinates",
            "Share of coordinates whose curvature is at its floor, (1 − β) d².",
            {"percent": True},
        ),
    ]
    for title, series, unit, caption, options in figures:
        known = [s for s in series if s.known]
        if known:
            shown.append(curves(title, known, "step", unit, caption=caption, **options))
    return Section("Curvature", [Panels(shown)] if shown else [])


def _named(metric: str) -> str:
    """A metric as a heading."""
    text = style.METRICS[metric]
    return {"adam": "Adam's metric", "realised": "The step taken"}.get(metric, text[0].upper() + text[1:])


def _exp(value: float | None) -> float | None:
    return None if value is None else math.exp(min(value, 700.0))


def facts_table(rows: Rows) -> list[tuple[str, Cell]]:
    """The facts that are one number per run, for a table of runs."""
    f = summary(rows)
    return [
        ("conflict rate", share(f["conflict_rate"])),
        ("against an objective: Euclidean", share(f["against"]["euclidean"])),
        *((f"flipped: {style.METRICS[m]}", share(f["flip_rates"][m])) for m in METRICS[1:]),
        ("weights moved, row to row", share(f["weights_moved"])),
        ("second moment off curvature, factor", number(_exp(f["log_distance"]))),
        ("condition number: Adam's", number(f["condition"]["adam"])),
        ("condition number: preference-conditioned", number(f["condition"]["preference"])),
        ("at the floor", share(f["floored"])),
    ]
