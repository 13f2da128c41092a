"""The demo's figures, in colours of medium lightness and without a background: readable on white and on black."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import matplotlib
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from madamoo.bench.benchmarks.digits import Digits

from .contenders import ADAM, CONTENDERS, CONTROL, MADAM
from .quadratics import PHASES, PROBLEM, Fixed, Switching, optimum
from .summary import Results, differences
from .training import PROFILE, SOLVERS, Run

INK = "#767676"  # text and axes: the grey that stands out equally from white and from black; the page replaces it
COLOURS = {ADAM: "#c8650b", CONTROL: "#8c6bd8", MADAM: "#2a7fd4"}
LINES = {ADAM: "--", CONTROL: ":", MADAM: "-"}
SIZE = (5.2, 3.6)  # inches; small enough for the text to stay legible on a phone

STYLE: dict[Any, Any] = {
    "font.size": 10.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.2,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "svg.fonttype": "none",  # text stays text: small files that can be searched and read aloud
    "savefig.transparent": True,
    **{key: INK for key in ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")},
    **{key: INK for key in ("axes.titlecolor", "grid.color")},
}


def draw(results: Results) -> dict[str, tuple[Figure, str]]:
    """All figures by name, each with a description for those who cannot see it."""
    figures: dict[str, tuple[Figure, str]] = {}
    with matplotlib.rc_context(STYLE):
        figures["switching-gap"] = _gap(results.switching), "Loss above its minimum, by step, on a log scale"
        figures["switching-paths"] = _switching_paths(results.switching), "Paths as the preference switches"
        for k, preference in enumerate(dict.fromkeys(run.preference for run in results.fixed)):
            fixed = [run for run in results.fixed if run.preference == preference]
            figures[f"fixed-{k + 1}"] = _fixed_paths(fixed), f"Paths from three starts under preference {preference}"
        figures["fixed-distances"] = _fixed_distances(results.fixed), "Distance to the optimum, by step, on a log scale"
        figures["digits-samples"] = _samples(), "Six of the composed two-digit images with their labels"
        for solver in SOLVERS:
            runs = [run for run in results.runs if run.solver == solver]
            figures[f"digits-{solver.lower()}"] = _curves(runs, solver), f"Test accuracy by epoch with {solver}"
        figures["digits-differences"] = _differences(results.runs), f"{MADAM} minus {ADAM}, by solver and seed"
    return figures


def save(figure: Figure, folder: Path, name: str) -> str:
    """Write NAME.svg and NAME.png; returns the SVG's text."""
    # The salt makes the same figure the same file each time.
    with matplotlib.rc_context({**STYLE, "svg.hashsalt": name}):
        figure.savefig(folder / f"{name}.png", dpi=160)
        figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
    return (folder / f"{name}.svg").read_text(encoding="utf-8")


def _axes(title: str, x: str, y: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=SIZE, layout="constrained")
    axes = figure.add_subplot(title=title, xlabel=x, ylabel=y)
    return figure, axes


def _gap(runs: Sequence[Switching]) -> Figure:
    figure, axes = _axes("Switching preference", "step", "loss above the optimum")
    steps = runs[0].gaps.shape[1]
    for run in runs:
        gaps = run.gaps.ravel()
        axes.plot(
            np.arange(1, len(gaps) + 1), gaps, LINES[run.contender], c=COLOURS[run.contender], label=run.contender
        )
    axes.set_yscale("log")
    for k, preference in enumerate(PHASES):
        axes.axvline(k * steps, color=INK, lw=0.8)
        label = ", ".join(f"{p:g}" for p in preference)
        axes.text((k + 0.5) * steps, 0.98, label, transform=axes.get_xaxis_transform(), ha="center", va="top", size=9)
    axes.set_xlim(0, len(PHASES) * steps)
    axes.set_ylim(top=axes.get_ylim()[1] * 30)  # room for the preferences
    figure.legend(loc="outside lower center", ncols=len(runs))  # the curves leave no room inside
    return figure


def _switching_paths(runs: Sequence[Switching]) -> Figure:
    figure, axes = _axes("Switching preference: where they went", "$x_1$", "$x_2$")
    _pareto_set(axes)
    for run in runs:
        path = run.path.reshape(-1, 2)
        axes.plot(*path.T, LINES[run.contender], c=COLOURS[run.contender], label=run.contender, lw=1.3)
    for preference in PHASES[:2]:
        axes.plot(*optimum(preference).numpy(), "*", ms=13, c=INK)
    axes.legend(loc="upper right")
    axes.set_aspect("equal", adjustable="datalim")
    return figure


def _fixed_paths(runs: Sequence[Fixed]) -> Figure:
    preference = runs[0].preference
    figure, axes = _axes(f"Preference ({preference[0]:g}, {preference[1]:g})", "$x_1$", "$x_2$")
    _contours(axes, preference)
    _pareto_set(axes)
    for run in sorted(runs, key=lambda run: run.contender == ADAM):  # Adam's dashes on top: the paths are close
        label = f"{run.contender}: ends {run.distances[-1]:.2g} away"
        for path in run.paths:
            axes.plot(*path.T, LINES[run.contender], c=COLOURS[run.contender], label=label)
            label = "_"  # one entry in the legend for all starts
    for start in runs[0].paths[:, 0]:
        axes.plot(*start, "o", c=INK, ms=5)
    axes.plot(*optimum(preference).numpy(), "*", ms=13, c=INK)
    axes.legend(loc="lower center")
    return figure


def _fixed_distances(runs: Sequence[Fixed]) -> Figure:
    figure, axes = _axes("Fixed preferences: distance to the optimum", "step", "distance")
    for contender in dict.fromkeys(run.contender for run in runs):
        distances = np.array([run.distances for run in runs if run.contender == contender])
        axes.plot(distances.T, c=COLOURS[contender], lw=0.7, alpha=0.6)
        axes.plot(distances.mean(axis=0), LINES[contender], c=COLOURS[contender], label=contender)
    axes.set_yscale("log")
    axes.legend(loc="lower left")
    return figure


def _pareto_set(axes: Axes) -> None:
    shares = np.linspace(0, 1, 101)
    points = torch.stack([optimum((float(s), float(1 - s))) for s in shares]).numpy()
    axes.plot(*points.T, c=INK, lw=1, alpha=0.7, label="Pareto set")


def _contours(axes: Axes, preference: tuple[float, float]) -> None:
    x, y = np.meshgrid(np.linspace(-3, 3, 121), np.linspace(-2, 3, 101))
    offsets = np.stack([x, y], axis=-1)[..., None, :] - PROBLEM.centres.numpy()
    values = 0.5 * np.einsum("yxki,kij,yxkj,k->yx", offsets, PROBLEM.hessians.numpy(), offsets, np.array(preference))
    levels = values.min() + np.geomspace(0.02, np.ptp(values), 9)
    axes.contour(x, y, values, levels, colors=INK, alpha=0.3, linewidths=0.8)


def _samples(count: int = 6) -> Figure:
    figure = Figure(figsize=(SIZE[0], 1.3), layout="constrained")
    data = Digits().load(None, PROFILE, seed=0).train
    for k, axes in enumerate(figure.subplots(1, count)):
        axes.imshow(data.inputs[k].numpy(), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        axes.set_title(" | ".join(str(int(y[k])) for y in data.targets), size=10.5)
        axes.axis("off")
    return figure


def _curves(runs: Sequence[Run], solver: str) -> Figure:
    figure, axes = _axes(solver, "epoch", "test accuracy (%)")
    for contender in CONTENDERS:
        curves = [run.curve for run in runs if run.contender == contender]
        if not curves:
            continue
        epochs = range(1, len(curves[0]) + 1)
        for curve in curves:
            axes.plot(epochs, curve, c=COLOURS[contender], lw=0.7, alpha=0.5)
        mean = [fmean(values) for values in zip(*curves, strict=True)]
        axes.plot(epochs, mean, LINES[contender], c=COLOURS[contender], label=contender)
    best = max(run.final for run in runs)
    axes.set_ylim(best - 25, best + 2)  # where the optimizers differ; the first epochs are below
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(loc="lower right")
    return figure


def _differences(runs: Sequence[Run]) -> Figure:
    figure, axes = _axes(f"{MADAM} minus {ADAM}, pairs with the same seed", "solver", "points of test accuracy")
    axes.axhline(0, color=INK, lw=1)
    for k, solver in enumerate(SOLVERS):
        gains = differences(runs, solver, MADAM, ADAM)
        axes.plot([k] * len(gains), gains, "o", c=COLOURS[MADAM], label="one seed" if k == 0 else "_")
        axes.plot([k - 0.2, k + 0.2], [fmean(gains)] * 2, c=COLOURS[MADAM], label="mean" if k == 0 else "_")
    axes.set_xticks(range(len(SOLVERS)), SOLVERS)
    axes.set_xlim(-0.5, len(SOLVERS) - 0.5)
    axes.legend()
    return figure
