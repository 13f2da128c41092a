"""The demo's own figures, in the style of every report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any

import numpy as np

from madamoo.figures.experiments import PHASES, Array, Preference, gap, optimum
from madamoo.presentation.plots import Figure, Group, Series, axis_title, curves, dots, layout, line, panels
from madamoo.presentation.style import ADAM, HUES, MADAM, MUTED, PAPER, STROKES, colour, vector

from .quadratics import FixedRun, SwitchingRun
from .summary import differences
from .training import CONTENDERS, DIGITS, PROFILE, SOLVERS, DigitsRun


def switching_gap(runs: Sequence[SwitchingRun]) -> Figure:
    steps = runs[0].gaps.shape[1]
    series = [_line(run.contender, list(range(1, run.gaps.size + 1)), run.gaps.ravel()) for run in runs]
    figure = curves(
        "Switching preference",
        series,
        "step",
        "loss above the optimum",
        caption="The preference of each phase stands above it.",
        log=True,
        height=380,
    )
    marks = [
        {"x": (k + 0.5) * steps, "y": 1, "yref": "paper", "yanchor": "top", "showarrow": False, "text": vector(p)}
        for k, p in enumerate(PHASES)
    ]
    walls = [line(x0=k * steps, x1=k * steps, y0=0, y1=1, yref="paper") for k in range(1, len(PHASES))]
    return figure.with_layout(annotations=marks, shapes=walls)


def switching_paths(runs: Sequence[SwitchingRun]) -> Figure:
    paths = [_path(run.contender, run.path, run.contender) for run in runs]
    stars = [_star(preference) for preference in PHASES[:2]]
    caption = "Grey: the Pareto set. Stars: the optima of the two preferences."
    return _plane("Where they went", [_pareto_set(), *paths, *stars], caption)


def fixed_paths(groups: Iterable[Sequence[FixedRun]]) -> list[Figure]:
    """From each start, one figure per preference, all on one scale."""
    return [_fixed_paths(runs) for runs in groups]


def _fixed_paths(runs: Sequence[FixedRun]) -> Figure:
    preference = runs[0].preference
    data = [_contours(preference), _pareto_set()]
    for run in sorted(runs, key=lambda run: run.contender == ADAM):  # Adam's dashes on top: the paths are close
        name = f"{run.contender}: ends {run.distances[-1]:.2g} away"
        data += [{**_path(run.contender, path, name), "showlegend": k == 0} for k, path in enumerate(run.paths)]
    figure = _plane(f"Preference {vector(preference)}", [*data, _star(preference)], "")
    axes = {name: {**figure.layout[name], "range": span} for name, span in (("xaxis", [-3, 3]), ("yaxis", [-2, 3]))}
    return figure.with_layout(**axes)


def fixed_distances(runs: Sequence[FixedRun]) -> Figure:
    series = []
    for contender in dict.fromkeys(run.contender for run in runs):
        distances = np.array([run.distances for run in runs if run.contender == contender])
        series.append(_line(contender, list(range(distances.shape[1])), distances.mean(axis=0)))
    caption = "Mean over the three preferences and the starts."
    return curves("Distance to the optimum", series, "step", "distance", caption=caption, log=True, height=380)


def samples(count: int = 6) -> Figure:
    """Some of the images, one beside the other, with their labels."""
    data = DIGITS.load(None, PROFILE, seed=0).train
    size = data.inputs.shape[-1]
    gap = np.full((size, 2), np.nan)
    row = np.concatenate([part for k in range(count) for part in (data.inputs[k].numpy(), gap)], axis=1)
    labels = [
        {"x": k * (size + 2) + (size - 1) / 2, "y": -1.6, "showarrow": False,
         "text": " | ".join(str(int(y[k])) for y in data.targets)}
        for k in range(count)
    ]  # fmt: skip
    shade = [[0, "rgb(20,20,20)"], [1, "rgb(245,245,245)"]]  # the same in the dark: they are pictures
    trace = {"type": "heatmap", "z": row.tolist(), "colorscale": shade, "showscale": False, "hoverinfo": "skip"}
    hidden = {"visible": False}
    own = layout(
        xaxis={**hidden, "constrain": "domain"},
        yaxis={**hidden, "scaleanchor": "x", "autorange": "reversed"},
        margin={"l": 0, "r": 0, "t": 0, "b": 0},
        annotations=labels,
    )
    return Figure("Six of the images", [trace], own, "With the labels of both tasks.", 130)


def accuracy(runs: Sequence[DigitsRun]) -> list[Figure]:
    """Test accuracy by epoch, a panel per solver on one scale: the mean over seeds, and each of them faintly."""
    finals = [run.final for run in runs]
    bounds = (min(finals) - 20, max(finals) + 2)  # where the optimizers differ; the first epochs are below
    parts = {solver: _accuracies([run for run in runs if run.solver == solver]) for solver in SOLVERS}
    return panels(parts, "epoch", "test accuracy, %", bounds=bounds, log=False)


def _accuracies(runs: Sequence[DigitsRun]) -> list[Series]:
    series = []
    for contender in CONTENDERS:
        lines = [run.curve for run in runs if run.contender == contender]
        if lines:
            x = list(range(1, len(lines[0]) + 1))
            series += [_line(contender, x, y, listed=False, width=0.8, opacity=0.4) for y in lines if len(lines) > 1]
            series.append(_line(contender, x, [fmean(values) for values in zip(*lines, strict=True)]))
    return series


def gains(runs: Sequence[DigitsRun]) -> Figure:
    found = [differences(runs, solver, MADAM, ADAM) for solver in SOLVERS]
    groups = [Group(f"seed {k}", HUES[MADAM], [gain[k] for gain in found]) for k in range(len(found[0]))]
    caption = "One dot per seed; right of zero MAdam is ahead."
    figure = dots(f"{MADAM} minus {ADAM}", groups, SOLVERS, "points of test accuracy", caption=caption, zero=True)
    return figure.with_layout(showlegend=False)


def _line(contender: str, x: Sequence[int], y: Any, **style: Any) -> Series:
    return Series(contender, x, [float(v) for v in y], HUES[contender], STROKES[contender], **style)


def _plane(heading: str, data: Sequence[dict[str, Any]], caption: str) -> Figure:
    own = layout(
        xaxis={"title": axis_title("x₁")}, yaxis={"title": axis_title("x₂"), "scaleanchor": "x"}, showlegend=True
    )
    return Figure(heading, data, own, caption, 380)


def _path(contender: str, points: Array, name: str) -> dict[str, Any]:
    line = {"color": colour(HUES[contender]), "dash": STROKES[contender], "width": 1.5}
    x, y = points.T.tolist()
    return {"type": "scatter", "mode": "lines", "x": x, "y": y, "line": line, "name": name, "hoverinfo": "name"}


def _star(preference: Preference) -> dict[str, Any]:
    x, y = optimum(preference).tolist()
    marker = {"symbol": "star", "size": 14, "color": MUTED, "line": {"color": PAPER, "width": 1}}
    return {"type": "scatter", "mode": "markers", "x": [x], "y": [y], "marker": marker, "showlegend": False,
            "hovertext": f"optimum of {vector(preference)}", "hoverinfo": "text"}  # fmt: skip


def _pareto_set() -> dict[str, Any]:
    points = np.stack([optimum((s, 1 - s)) for s in np.linspace(0, 1, 51).tolist()])
    x, y = points.T.tolist()
    return {"type": "scatter", "mode": "lines", "x": x, "y": y, "line": {"color": MUTED, "width": 1},
            "showlegend": False, "hoverinfo": "skip"}  # fmt: skip


def _contours(preference: Preference) -> dict[str, Any]:
    x, y = np.linspace(-3, 3, 61), np.linspace(-2, 3, 51)
    z = np.log(gap(np.stack(np.meshgrid(x, y), axis=-1), preference) + 0.02)  # even steps of the logarithm
    contours = {"coloring": "none", "showlabels": False, "start": float(z.min()), "end": float(z.max()), "size": 0.6}
    return {
        "type": "contour",
        "x": x.tolist(),
        "y": y.tolist(),
        "z": z.round(4).tolist(),
        "contours": contours,
        "line": {"color": MUTED, "width": 0.5},
        "opacity": 0.5,
        "showscale": False,
        "showlegend": False,
        "hoverinfo": "skip",
    }
