"""What the rows of a run say together, in numbers and in words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ._measure import DIAGONAL, METRICS
from ._sinks import Row


def summary(rows: Iterable[Row]) -> dict[str, Any]:
    """Facts of a run, from its rows; None where nothing is known.

    ``flip_rate[metric][objective]`` is the share of the measured steps that flip the objective under the metric, of
    those in which d itself would improve it; ``flip_rates[metric]`` is that of all objectives together.
    ``against[metric]`` is the share of all effects that are negative, whatever d promises; ``against_objective`` has
    that of d itself by objective.
    ``reach[metric]`` is the share of these cases in which the metric's condition number allows a flip by the lemma.
    Condition numbers are geometric means. ``weights_moved`` is the mean distance (half the sum of absolute differences,
    0 to 1) between the weights of two rows that follow each other, each divided by its sum.
    """
    rows = list(rows)
    if not rows:
        raise ValueError("rows must hold at least one row, got none: was a step taken since the probe was attached?")
    names = list(dict.fromkeys(name for row in rows for name in row["objectives"]))
    return {
        "rows": len(rows),
        "first_step": rows[0]["step"],
        "last_step": rows[-1]["step"],
        "objectives": names,
        "conflict_rate": _mean(row["conflict_rate"] for row in rows),
        "against": {m: _mean(_is_negative(row, m, n) for row in rows for n in names) for m in METRICS},
        "against_objective": {n: _mean(_is_negative(row, "euclidean", n) for row in rows) for n in names},
        "flip_rate": {m: {n: _mean(_of(row["flips"][m], n) for row in rows) for n in names} for m in METRICS[1:]},
        "flip_rates": {m: _mean(_of(row["flips"][m], n) for row in rows for n in names) for m in METRICS[1:]},
        "reach": {m: _mean(_reach(row, m, n) for row in rows for n in names) for m in DIAGONAL},
        "alignment": {m: {n: _mean(_of(row["alignments"][m], n) for row in rows) for n in names} for m in METRICS},
        "condition": {m: _geometric_mean(row["condition"][m] for row in rows) for m in DIAGONAL},
        "spread": {m: _geometric_mean(row["spread"][m] for row in rows) for m in DIAGONAL},
        "weights": {n: _mean(_of(row["weights"], n) for row in rows) for n in names},
        "weights_moved": _mean(_distance(a, b) for a, b in pairwise(rows)),
        "floored": _mean(row["floored"] for row in rows),
        "below_eps": _mean(row["below_eps"] for row in rows),
        "log_distance": _mean(_of(row["marginalisation"], "log_distance") for row in rows),
        "log_correlation": _mean(_of(row["marginalisation"], "log_correlation") for row in rows),
        "observed": sum(row["observed"] is not None for row in rows),
        "prediction": {n: _correlation(rows, n) for n in names},
        "seconds": {
            room: _mean(_of(row.get("seconds"), room) for row in rows)
            for room in dict.fromkeys(room for row in rows for room in row.get("seconds") or ())
        },
        "bytes": rows[-1].get("bytes"),
    }


def _of(values: Mapping[str, Any] | None, name: str) -> Any:
    return None if values is None else values.get(name)


def _is_negative(row: Row, metric: str, name: str) -> bool | None:
    effect = _of(row["effects"][metric], name)
    return None if effect is None else bool(effect < 0)


def _mean(values: Iterable[float | None]) -> float | None:
    known = [float(x) for x in values if x is not None]
    return math.fsum(known) / len(known) if known else None


def _geometric_mean(values: Iterable[float | None]) -> float | None:
    mean = _mean(math.log(x) for x in values if x is not None and x > 0)
    return None if mean is None else math.exp(mean)


def _reach(row: Row, metric: str, name: str) -> bool | None:
    """Whether the lemma lets a metric of this condition number flip the objective; None if d does not improve it."""
    effect, condition = _of(row["effects"]["euclidean"], name), row["condition"][metric]
    if effect is None or effect <= 0 or condition is None:
        return None
    threshold = _of(row["threshold"], name)  # None: no coordinate is against it, and no metric flips it
    return threshold is not None and bool(condition >= threshold)


def _distance(a: Row, b: Row) -> float | None:
    names = [n for n in a["objectives"] if a["weights"][n] is not None and _of(b["weights"], n) is not None]
    x, y = (np.array([row["weights"][n] for n in names], dtype=float) for row in (a, b))
    if not names or not np.abs(x).sum() or not np.abs(y).sum():
        return None
    return float(np.abs(x / np.abs(x).sum() - y / np.abs(y).sum()).sum() / 2)


def _correlation(rows: Sequence[Row], name: str) -> float | None:
    """Between the change of a loss that the gradients predict and the one observed."""
    pairs = [(_of(row["predicted"], name), _of(row["observed"], name)) for row in rows]
    known = np.array([(p, o) for p, o in pairs if p is not None and o is not None], dtype=float)
    if len(known) < 3 or (np.ptp(known, axis=0) == 0).any():
        return None
    return float(np.corrcoef(known.T)[0, 1])


_LABELS = {"adam": "Adam's metric", "preference": "the preference-conditioned metric"}


def describe(facts: Mapping[str, Any]) -> str:
    """A summary in a few plain sentences, a verdict and advice at its end."""
    text, advice = verdict(facts)
    return " ".join([*findings(facts), f"Verdict: {text}", *(["Advice:", *advice] if advice else [])])


# What counts as a difference, and as much or little, in the verdict; shares of steps or of the weights' sum.
ALIKE, RARE, OFTEN, STILL = 0.01, 0.02, 0.1, 0.02


def verdict(facts: Mapping[str, Any]) -> tuple[str, list[str]]:
    """What the facts come to for the one who trains, and what to do about it."""
    adam, conditioned = facts["flip_rates"]["adam"], facts["flip_rates"]["preference"]
    advice: list[str] = []
    if adam is None and conditioned is None:
        text = "The rows say nothing of the metrics."
        advice.append("Attach the probe with exact=True to see what Adam's metric does to each objective.")
    elif conditioned is None:
        text = f"Adam's metric flips {_percent(adam)} of the improvements that the direction promises."
        if adam > RARE:
            advice.append("MAdam is worth a trial: attach a probe to it and compare the two flip rates.")
        else:
            text += " There is little for another metric to mend."
            advice.append("Stay with Adam: what you change next should be the solver or the learning rate.")
    elif adam is None:
        text = (
            f"The preference-conditioned metric flips {_percent(conditioned)} of the improvements that the direction "
            "promises."
        )
        advice.append("Attach the probe with exact=True to compare it with Adam's metric.")
    else:
        rates = f"it flips {_percent(conditioned)} of the promised improvements, Adam's metric {_percent(adam)}"
        if conditioned < adam - ALIKE:
            text = f"The preference-conditioned metric keeps more of what the direction promises: {rates}."
            advice.append(
                "Train with MAdam, and check on validation data that it gains over the control (marginal), too."
            )
        elif conditioned > adam + ALIKE:
            text = f"The preference-conditioned metric keeps less of what the direction promises: {rates}."
            advice.append("Compare the validation losses of MAdam and Adam before you choose MAdam for this problem.")
        else:
            text = f"The preference-conditioned metric and Adam's treat the objectives alike: {rates}."
            advice.append("Decide between MAdam and Adam by their validation losses and their time per step.")
    return text, advice + _advice(facts)


def _advice(facts: Mapping[str, Any]) -> list[str]:
    found = []
    against = {n: x for n, x in _against(facts).items() if x > OFTEN}
    if against:
        name = max(against, key=lambda n: against[n])
        found.append(
            f"The direction itself works against {name} in {_percent(against[name])} of the steps: give it more "
            "weight, or take a solver whose direction raises no loss, such as UPGrad or MGDA."
        )
    conflict, moved = facts["conflict_rate"], facts["weights_moved"]
    if conflict is not None and conflict < RARE:
        found.append(
            "The objectives hardly conflict: constant weights (LS) should do as well as any solver, and cost least."
        )
    if moved is not None and 0 < moved < STILL:  # under constant weights the metric does so by itself
        found.append(
            'The weights hardly move: PreferenceMetric("marginal"), the control, gives nearly the same metric from one '
            "backward pass per step."
        )
    if facts["floored"] is not None and facts["floored"] > 0.5:
        found.append(
            "Most coordinates are at the floor of the metric: larger batches or a smaller beta would fill its averages."
        )
    poor = [n for n, r in facts["prediction"].items() if r is not None and r < 0.3]
    if poor:
        found.append(
            f"The gradients predict the change of {', '.join(poor[:4])} badly: at this learning rate first-order "
            "effects, and with them this diagnosis, say little."
        )
    return found


def _against(facts: Mapping[str, Any]) -> dict[str, float]:
    return {name: share for name, share in facts["against_objective"].items() if share is not None}


def findings(facts: Mapping[str, Any]) -> list[str]:
    """What is known, one finding each."""
    names = facts["objectives"]
    lines = [
        f"{facts['rows']} steps were measured, from {facts['first_step']} to {facts['last_step']}, on "
        f"{len(names)} objectives ({', '.join(names)})."
    ]
    if facts["conflict_rate"] is not None:
        lines.append(f"In {_percent(facts['conflict_rate'])} of all pairs, gradients point against each other.")
    if facts["against"]["euclidean"] is not None:
        share = _percent(facts["against"]["euclidean"])
        lines.append(
            f"The direction itself, that is the Euclidean metric, is against an objective in {share} of cases."
        )
    lines += [_of_metric(facts, metric, label) for metric, label in _LABELS.items()]
    if facts["flip_rates"]["realised"] is not None:
        worst = _worst(facts["flip_rate"]["realised"])
        lines.append(f"The steps really taken flip {_percent(facts['flip_rates']['realised'])}{worst}.")
    if facts["weights_moved"] is not None:
        lines.append(f"From row to row the weights move by {_percent(facts['weights_moved'])} of their sum.")
    if facts["log_distance"] is not None:
        lines.append(
            f"Adam's second moment is off the curvature of the present preference by a factor of "
            f"{_number(math.exp(min(facts['log_distance'], 700.0)))} in the mean."
        )
    if facts["floored"] is not None:
        lines.append(f"{_percent(facts['floored'])} of coordinates are at the floor of the metric.")
    predictions = {n: r for n, r in facts["prediction"].items() if r is not None}
    if predictions:
        listed = ", ".join(f"{r:.2f} ({n})" for n, r in predictions.items())
        lines.append(f"The predicted change of the losses correlates with the observed one: {listed}.")
    return lines


def _of_metric(facts: Mapping[str, Any], metric: str, label: str) -> str:
    rate, reach = facts["flip_rates"][metric], facts["reach"][metric]
    condition, spread = facts["condition"][metric], facts["spread"][metric]
    if rate is None:
        return f"Nothing is known of {label} in this run."
    text = f"Under {label}, {_percent(rate)} of the effects that the direction promises are flipped"
    text += f"{_worst(facts['flip_rate'][metric])}."
    if None not in (condition, spread, reach):
        text += (
            f" Its condition number is {_number(condition)} ({_number(spread)} between the 1st and the 99th "
            f"percentile), enough to allow a flip in {_percent(reach)} of cases."
        )
    return text


def _worst(rates: Mapping[str, float | None]) -> str:
    """Which objective it hits most, if it hits some more than others."""
    known = {name: rate for name, rate in rates.items() if rate is not None}
    if len(known) < 2 or len(set(known.values())) == 1:
        return ""
    name = max(known, key=lambda n: known[n])
    return f" (most often {name}: {_percent(known[name])})"


def _percent(share: float) -> str:
    if 0 < share < 1e-4:
        return "less than 0.01 %"
    return f"{100 * share:.3g} %"


def _number(value: float) -> str:
    """Three digits; thousands are written out, for they are read more easily than powers."""
    return f"{float(f'{value:.3g}'):,.0f}" if 1e3 <= value < 1e7 else f"{value:.3g}"
