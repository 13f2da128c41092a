"""The demo's own figures, in the style of every report, and its picture."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from madamoo.presentation import pictures
from madamoo.presentation.page import Slider
from madamoo.presentation.plots import Figure, Group, Series, axis_title, binned, curves, dots, layout, surfaces
from madamoo.presentation.style import ADAM, HUES, MADAM, MSOAP, STROKES, colour, counted

from .digits import DIGITS, PROFILE, TASKS, FrontRun, PlainRun
from .physics import OBJECTIVES, SIDE, PhysicsRun, exact, grid
from .summary import accuracy, contenders, gains, of

Points = list[list[float]]


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
    return Figure(f"{count} of the images", [trace], own, "With the labels of both tasks.", 130)


def mean_front(runs: Sequence[FrontRun], contender: str) -> Points:
    """Accuracies by position of the slider and task, averaged over seeds."""
    found = torch.stack([run.front.points for run in of(runs, contender)]).mean(0)
    return [[float(x) for x in row] for row in found]


def front_slider(runs: Sequence[FrontRun]) -> Slider:
    """The fronts, with a dot on each where the slider stands, and the accuracies there as bars."""
    names = contenders(runs)
    fronts = {name: mean_front(runs, name) for name in names}
    preferences = [[float(x) for x in row] for row in of(runs, names[0])[0].front.preferences]
    start = len(preferences) // 2
    lines = [_front_line(name, fronts[name]) for name in names]
    marks = [_front_mark(name, fronts[name][start]) for name in names]
    bars = [_bars(name, fronts[name][start]) for name in names]
    seeds = counted(len({run.seed for run in runs}), "seed")
    figure = Figure(
        "Test accuracy from one objective to the other",
        [*lines, *marks, *bars],
        _front_layout(fronts),
        f"One trained network per optimizer (means over {seeds}). Nothing is trained again when the slider moves.",
        420,
    )
    return Slider(
        figure,
        "Preference, from one task to the other",
        list(range(len(names), 3 * len(names))),
        [_position([fronts[name][k] for name in names]) for k in range(len(preferences))],
        [_text(preferences[k], {name: fronts[name][k] for name in names}) for k in range(len(preferences))],
        start,
        TASKS,
    )


def _position(points: Sequence[Sequence[float]]) -> dict[str, Any]:
    """Where the dots are, and how long the bars, at one position of the slider."""
    dots = {"x": [[point[0]] for point in points], "y": [[point[1]] for point in points]}
    return {
        "x": [*dots["x"], *([*TASKS] for _ in points)],
        "y": [*dots["y"], *([*point] for point in points)],
        "text": [*("" for _ in points), *([f"{x:.0f}" for x in point] for point in points)],
    }


def _text(preference: Sequence[float], points: dict[str, Sequence[float]]) -> str:
    parts = [f"{name} {' and '.join(f'{x:.1f}' for x in point)}" for name, point in points.items()]
    weights = ", ".join(f"{100 * a:.0f} % {task}" for a, task in zip(preference, TASKS, strict=True))
    return f"{weights}. Per cent read of each: {'; '.join(parts)}."


def _look(name: str) -> dict[str, Any]:
    return {"name": name, "legendgroup": name}


def _front_line(name: str, points: Points) -> dict[str, Any]:
    x, y = zip(*points, strict=True)
    line = {"color": colour(HUES[name]), "dash": STROKES[name], "width": 1.8}
    return {**_look(name), "type": "scatter", "mode": "lines", "x": list(x), "y": list(y), "line": line,
            "hovertemplate": "%{x:.1f}, %{y:.1f}<extra>%{fullData.name}</extra>"}  # fmt: skip


def _front_mark(name: str, point: Sequence[float]) -> dict[str, Any]:
    marker = {"color": colour(HUES[name]), "size": 12}
    return {**_look(name), "type": "scatter", "mode": "markers", "x": [point[0]], "y": [point[1]], "marker": marker,
            "showlegend": False, "hoverinfo": "skip"}  # fmt: skip


def _bars(name: str, point: Sequence[float]) -> dict[str, Any]:
    return {**_look(name), "type": "bar", "xaxis": "x2", "yaxis": "y2", "x": [*TASKS], "y": [*point],
            "text": [f"{x:.0f}" for x in point], "textposition": "outside", "cliponaxis": False, "showlegend": False,
            "marker": {"color": colour(HUES[name])},
            "hovertemplate": "%{y:.1f}<extra>%{fullData.name}</extra>"}  # fmt: skip


def _front_layout(fronts: dict[str, Points]) -> dict[str, Any]:
    """The fronts on the left, the bars on the right."""
    plain = layout()["xaxis"]
    titles = [axis_title(f"{task}, % read") for task in TASKS]
    return layout(
        xaxis={"title": titles[0], "domain": [0, 0.52]},
        yaxis={"title": titles[1]},
        xaxis2={**plain, "domain": [0.62, 1], "anchor": "y2"},
        yaxis2={**plain, "anchor": "x2", "range": [0, 108], "title": axis_title("% read")},
        bargap=0.25,
        showlegend=True,
    )


def physics_curves(runs: Sequence[PhysicsRun]) -> list[Figure]:
    """The error against the exact solution, and the two losses: a faint line per seed, and their geometric mean."""
    errors = [s for name in contenders(runs) for s in _seeds(name, [(r.steps, r.errors) for r in of(runs, name)])]
    figures = [curves("Relative error", errors, "step", "relative error", log=True, height=340)]
    for objective in OBJECTIVES:
        found = [
            s for name in contenders(runs)
            for s in _seeds(name, [(r.steps, r.losses[objective]) for r in of(runs, name)])
        ]  # fmt: skip
        figures.append(curves(f"Loss: {objective}", found, "step", "loss", log=True, height=340))
    return figures


def _seeds(name: str, lines: Sequence[tuple[list[int], list[float]]]) -> list[Series]:
    look: dict[str, Any] = {"colour": HUES[name], "dash": STROKES[name]}
    faint = [Series(name, x, y, **look, listed=False, width=0.8, opacity=0.35) for x, y in lines if len(lines) > 1]
    mean = [float(np.exp(np.mean(np.log(values)))) for values in zip(*(y for _, y in lines), strict=True)]
    return [*faint, Series(name, lines[0][0], mean, **look)]


def physics_maps(runs: Sequence[PhysicsRun]) -> list[Figure]:
    """The exact solution, and where two contenders are wrong, on one scale."""
    axis = [float(x) for x in torch.linspace(-1, 1, SIDE)]
    solution = exact(grid()).view(SIDE, SIDE).numpy()
    wrong = {f"Error: {name}": (axis, axis, of(runs, name)[0].wrong.numpy()) for name in (ADAM, MSOAP)}
    return [
        *surfaces({"Exact solution": (axis, axis, solution)}, "x", "y", "u", signed=True),
        *surfaces(wrong, "x", "y", "|u - exact|, first seed; one scale for both.", signed=False),
    ]


def conflict(runs: Mapping[str, Sequence[dict[str, Any]]]) -> list[Figure]:
    """How often the gradients conflict, and how often a promised improvement becomes a loss, over the run."""

    def over(name: str, values: Callable[[dict[str, Any]], float | None]) -> Series:
        rows = runs[name]
        x, y = binned([row["step"] for row in rows], [values(row) for row in rows], bins=10)
        return Series(name, x, y, HUES[name], STROKES[name])

    def flipped(row: dict[str, Any]) -> float | None:
        known = [x for x in (row["flips"]["realised"] or {}).values() if x is not None]
        return sum(known) / len(known) if known else None

    return [
        curves("Gradients that conflict", [over(n, lambda row: row["conflict_rate"]) for n in runs], "step",
               "share of steps", percent=True),
        curves("Improvements turned into losses by the step taken", [over(n, flipped) for n in runs], "step",
               "share of improvements", percent=True),
    ]  # fmt: skip


def plain_gains(runs: Sequence[PlainRun]) -> Figure:
    found = gains(runs, MADAM, ADAM, accuracy)
    groups = [Group(f"seed {k}", HUES[MADAM], [gain]) for k, gain in enumerate(found)]
    caption = f"One dot per seed; right of zero {MADAM} is ahead."
    figure = dots(f"{MADAM} minus {ADAM}", groups, ["LS"], "points of test accuracy", caption=caption, zero=True)
    most = max(1.0, *(1.2 * abs(gain) for gain in found))
    axis = {**figure.layout["xaxis"], "range": [-most, most]}
    return figure.with_layout(showlegend=False, xaxis=axis)


def draw_picture(fronts: Sequence[FrontRun], physics: Sequence[PhysicsRun], path: Path) -> Path:
    """The two findings side by side, as one picture."""

    def draw(figure: Any) -> None:
        left, right = figure.subplots(1, 2)
        for name in contenders(fronts):
            points = np.array(mean_front(fronts, name))
            left.plot(*points.T, label=name, **pictures.stroke(name))
        left.set(xlabel=f"{TASKS[0]}, % read", ylabel=f"{TASKS[1]}, % read")
        left.set_title("One network, every preference")
        for name in contenders(physics):
            for series in _seeds(name, [(r.steps, r.errors) for r in of(physics, name)]):
                look = {**pictures.stroke(name), "linewidth": series.width, "alpha": series.opacity}
                right.semilogy(series.x, series.y, **look)
        right.set(xlabel="step", ylabel="relative error")
        right.set_title("A physics-informed network")
        pictures.legend(figure, {name: pictures.stroke(name) for name in contenders(fronts)})

    return pictures.save(pictures.picture((8.0, 3.4), draw), path)
