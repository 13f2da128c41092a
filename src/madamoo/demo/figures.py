"""The demo's own figures, in the style of every report."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

import numpy as np
import torch

from madamoo.bench.problems.supervised.digits import Digits
from madamoo.report.figures import MUTED, PAPER, Series, colour, curves, dots, layout, title
from madamoo.report.page import Figure

from .contenders import ADAM, CONTENDERS, CONTROL, MADAM
from .quadratics import PHASES, PROBLEM, Array, Fixed, Switching, optimum
from .summary import differences
from .training import PROFILE, SOLVERS, Run

HUES = {ADAM: 1, CONTROL: 2, MADAM: 0}
DASHES = {ADAM: "dash", CONTROL: "dot", MADAM: "solid"}


def switching_gap(runs: Sequence[Switching]) -> Figure:
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
        {"x": (k + 0.5) * steps, "y": 1, "yref": "paper", "yanchor": "top", "showarrow": False, "text": _vector(p)}
        for k, p in enumerate(PHASES)
    ]
    walls = [
        {"type": "line", "x0": k * steps, "x1": k * steps, "y0": 0, "y1": 1, "yref": "paper",
         "line": {"color": MUTED, "width": 1}}
        for k in range(1, len(PHASES))
    ]  # fmt: skip
    return Figure(
        figure.title,
        figure.data,
        {**figure.layout, "annotations": marks, "shapes": walls},
        figure.caption,
        figure.height,
    )


def switching_paths(runs: Sequence[Switching]) -> Figure:
    paths = [_path(run.contender, run.path.reshape(-1, 2), run.contender) for run in runs]
    stars = [_star(preference) for preference in PHASES[:2]]
    caption = "Grey: the Pareto set. Stars: the optima of the two preferences."
    return _plane("Where they went", [_pareto_set(), *paths, *stars], caption)


def fixed_paths(runs: Sequence[Fixed]) -> Figure:
    """From each start, under one preference."""
    preference = runs[0].preference
    data = [_contours(preference), _pareto_set()]
    for run in sorted(runs, key=lambda run: run.contender == ADAM):  # Adam's dashes on top: the paths are close
        name = f"{run.contender}: ends {run.distances[-1]:.2g} away"
        data += [{**_path(run.contender, path, name), "showlegend": k == 0} for k, path in enumerate(run.paths)]
    return _plane(f"Preference ({_vector(preference)})", [*data, _star(preference)], "")


def fixed_distances(runs: Sequence[Fixed]) -> Figure:
    series = []
    for contender in dict.fromkeys(run.contender for run in runs):
        distances = np.array([run.distances for run in runs if run.contender == contender])
        series.append(_line(contender, list(range(distances.shape[1])), distances.mean(axis=0)))
    caption = "Mean over the three preferences and the starts."
    return curves("Distance to the optimum", series, "step", "distance", caption=caption, log=True, height=380)


def samples(count: int = 6) -> Figure:
    """Some of the images, one beside the other, with their labels."""
    data = Digits().load(None, PROFILE, seed=0).train
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


def accuracy(runs: Sequence[Run], solver: str) -> Figure:
    """Test accuracy by epoch: the mean over seeds, and each of them faintly."""
    series = []
    for contender in CONTENDERS:
        lines = [run.curve for run in runs if (run.solver, run.contender) == (solver, contender)]
        if lines:
            x = list(range(1, len(lines[0]) + 1))
            series += [_line(contender, x, y, listed=False, width=0.8, opacity=0.4) for y in lines if len(lines) > 1]
            series.append(_line(contender, x, [fmean(values) for values in zip(*lines, strict=True)]))
    best = max(run.final for run in runs if run.solver == solver)
    bounds = (best - 25, best + 2)  # where the optimizers differ; the first epochs are below
    return curves(solver, series, "epoch", "test accuracy, %", bounds=bounds, log=False)


def gains(runs: Sequence[Run]) -> Figure:
    found = [differences(runs, solver, MADAM, ADAM) for solver in SOLVERS]
    groups = [(f"seed {k}", HUES[MADAM], [gain[k] for gain in found]) for k in range(len(found[0]))]
    caption = "A dot a seed; right of zero MAdam is ahead."
    figure = dots(f"{MADAM} minus {ADAM}", groups, SOLVERS, "points of test accuracy", caption=caption, zero=True)
    return Figure(figure.title, figure.data, {**figure.layout, "showlegend": False}, figure.caption, 320)


def _line(contender: str, x: Sequence[int], y: Any, **style: Any) -> Series:
    return Series(contender, x, [float(v) for v in y], HUES[contender], DASHES[contender], **style)


def _plane(heading: str, data: Sequence[dict[str, Any]], caption: str) -> Figure:
    own = layout(xaxis={"title": title("x₁")}, yaxis={"title": title("x₂"), "scaleanchor": "x"}, showlegend=True)
    return Figure(heading, data, own, caption, 380)


def _path(contender: str, points: Array, name: str) -> dict[str, Any]:
    line = {"color": colour(HUES[contender]), "dash": DASHES[contender], "width": 1.5}
    x, y = points.T.tolist()
    return {"type": "scatter", "mode": "lines", "x": x, "y": y, "line": line, "name": name, "hoverinfo": "name"}


def _star(preference: tuple[float, float]) -> dict[str, Any]:
    x, y = optimum(preference).tolist()
    marker = {"symbol": "star", "size": 14, "color": MUTED, "line": {"color": PAPER, "width": 1}}
    return {"type": "scatter", "mode": "markers", "x": [x], "y": [y], "marker": marker, "showlegend": False,
            "hovertext": f"optimum of ({_vector(preference)})", "hoverinfo": "text"}  # fmt: skip


def _pareto_set() -> dict[str, Any]:
    points = torch.stack([optimum((s, 1 - s)) for s in np.linspace(0, 1, 51).tolist()])
    x, y = points.T.tolist()
    return {"type": "scatter", "mode": "lines", "x": x, "y": y, "line": {"color": MUTED, "width": 1},
            "showlegend": False, "hoverinfo": "skip"}  # fmt: skip


def _contours(preference: tuple[float, float]) -> dict[str, Any]:
    x, y = np.linspace(-3, 3, 61), np.linspace(-2, 3, 51)
    offsets = np.stack(np.meshgrid(x, y), axis=-1)[..., None, :] - PROBLEM.centres.numpy()
    values = 0.5 * np.einsum("yxki,kij,yxkj,k->yx", offsets, PROBLEM.hessians.numpy(), offsets, np.array(preference))
    z = np.log(values - values.min() + 0.02)  # even steps of the logarithm
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


def _vector(preference: Sequence[float]) -> str:
    return ", ".join(f"{p:g}" for p in preference)
