"""The figures: sized for the width of a page, in colours that the colour-blind can tell apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Ellipse

from madamoo.pareto._drawing import COLOURS as OKABE_ITO
from madamoo.pareto._drawing import INK
from madamoo.pareto._drawing import STYLE as BASE

from .claims import COMPARED, SHOWN, Phases, Signs, Trajectories, at
from .experiments import (
    ADAM,
    ADAMS,
    COARSE,
    CONDITIONED,
    CONTROL,
    EUCLIDEAN,
    MADAM,
    PHASES,
    PROBLEM,
    RATE,
    SILENT,
    STEPS,
    UNEVEN,
    A,
    Array,
    B,
    Preference,
    gap,
    optimum,
)

WIDTH = 7.2  # inches; text of 8 and 9 points stays legible when a column of 5.5 inches shrinks it
BLUE, VERMILION, GREEN = OKABE_ITO[:3]
COLOURS = {ADAM: VERMILION, CONTROL: GREEN, MADAM: BLUE, ADAMS: VERMILION, CONDITIONED: BLUE, EUCLIDEAN: "black"}
LINES: dict[str, Any] = {
    ADAM: (0, (4, 1.5)),
    CONTROL: (0, (1, 1.2)),
    MADAM: "-",
    ADAMS: (0, (4, 1.5)),
    CONDITIONED: "-",
    EUCLIDEAN: ":",
}
STYLE: dict[Any, Any] = {
    **BASE,
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "axes.grid": False,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 9,
    "lines.linewidth": 1.5,
}
OLD, NEW = "#8c8c8c", "black"


def save(figure: Figure, path: Path) -> Path:
    """Write the figure; the ending says in which format. The same figure gives the same file."""
    with matplotlib.rc_context(STYLE):
        figure.savefig(
            path, dpi=200, metadata={".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(path.suffix)
        )
    return path


def mismatch(phases: Phases, signs: Signs) -> Figure:
    """One switch, without noise and with unequal noise, and the signed effects."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 3.0), layout="constrained")
        grid = figure.add_gridspec(2, 3, width_ratios=(1, 1, 1.35))
        for column, noise in enumerate((SILENT, UNEVEN)):
            axes = figure.add_subplot(grid[:, column])
            _switch(axes, phases, noise)
            axes.set_title(("a  no noise", "b  unequal noise")[column], loc="left")
        above = figure.add_subplot(grid[0, 2])
        below = figure.add_subplot(grid[1, 2], sharex=above)
        for objective, axes in enumerate((above, below)):
            _signs(axes, signs, objective)
        above.set_title("c  signed effect on each objective", loc="left")
        above.tick_params(labelbottom=False)
        below.set_xlabel("step")
        handles = [
            *(_handle(v) for v in COMPARED),
            _handle(EUCLIDEAN),
            *_stars("optimum of $\\lambda_A$, of $\\lambda_B$"),
        ]
        figure.legend(
            handles=handles, loc="outside lower center", ncols=len(handles), handlelength=2.2, columnspacing=1.4
        )
    return figure


def _switch(axes: Axes, phases: Phases, noise: str) -> None:
    """The way from the first optimum to the second; what came before the switch is thin."""
    runs, k = phases.main, at(phases.main.rates, RATE)
    _landscape(axes, B, (-1.35, 1.35), (-0.1, 2.7))
    for variant in COMPARED:
        path = runs.paths[variant][k, : 2 * STEPS + 1, runs.runs(noise).start]
        axes.plot(*path[: STEPS + 1].T, color=COLOURS[variant], lw=0.7, alpha=0.7)
        axes.plot(*path[STEPS:].T, color=COLOURS[variant], ls=LINES[variant])
        axes.plot(*path[STEPS], "o", color=COLOURS[variant], ms=3.5, mfc="white", mew=0.8, zorder=4)
        axes.plot(*path[-1], "o", color=COLOURS[variant], ms=4, mec="white", mew=0.6, zorder=5)
    _star(axes, A, OLD)
    _star(axes, B, NEW)
    axes.set_xlabel("$x_1$")
    axes.set_ylabel("$x_2$")


def _signs(axes: Axes, signs: Signs, objective: int) -> None:
    for metric in (EUCLIDEAN, ADAMS, CONDITIONED):
        values = signs.shown(metric)[:, objective]
        steps = np.arange(1, len(values) + 1)
        axes.plot(steps, values, color=COLOURS[metric], ls=LINES[metric], lw=1.2)
        axes.fill_between(steps, values, 0, where=list(values < 0), color=COLOURS[metric], alpha=0.25, lw=0)
    axes.axhline(0, color=INK, lw=0.6)
    axes.axvline(STEPS, color=INK, lw=0.6, ls="--")
    axes.set_xlim(0, 2 * STEPS)
    axes.set_ylim(-0.35, 1.05)
    axes.set_ylabel(f"$\\cos(g_{objective + 1}, M^{{-1}}d)$")


def phases(runs: Phases) -> Figure:
    """Six phases: where Adam and MAdam went in each, and their gaps."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 4.9), layout="constrained")
        parts: Any = figure.subfigures(2, 1, height_ratios=(1.15, 1))
        top, bottom = parts
        grid = top.subplots(2, len(PHASES), sharex=True, sharey=True)
        for row, variant in zip(grid, (ADAM, MADAM), strict=True):
            for k, axes in enumerate(row):
                _phase(axes, runs, variant, k)
            row[0].set_ylabel(f"{variant}\n$x_2$")
        for k, axes in enumerate(grid[0]):
            axes.set_title(f"phase {k + 1}: $\\lambda_{'AB'[k % 2]}$")
        for axes in grid[1]:
            axes.set_xlabel("$x_1$")
        for noise, axes in zip((SILENT, UNEVEN), bottom.subplots(1, 2), strict=True):
            _gaps(axes, runs, noise)
        handles = [*(_handle(v) for v in COMPARED), *_stars("optimum of the phase before, of this phase")]
        figure.legend(
            handles=handles, loc="outside lower center", ncols=len(handles), handlelength=2.2, columnspacing=1.4
        )
    return figure


def _phase(axes: Axes, runs: Phases, variant: str, k: int) -> None:
    main = runs.main
    path = main.paths[variant][at(main.rates, RATE), k * STEPS : (k + 1) * STEPS + 1, 0]
    _landscape(axes, PHASES[k], (-1.3, 1.3), (0.1, 2.7))
    if k:
        _star(axes, PHASES[k - 1], OLD, size=7)
    _star(axes, PHASES[k], NEW, size=7)
    axes.plot(*path.T, color=COLOURS[variant], lw=1.3)
    axes.plot(*path[-1], "o", color=COLOURS[variant], ms=3.5, mec="white", mew=0.5, zorder=5)
    axes.set_xticks([-1, 0, 1])
    axes.set_yticks([1, 2])


def _gaps(axes: Axes, runs: Phases, noise: str) -> None:
    main = runs.main
    for variant in COMPARED:
        gaps = main.gaps(variant, noise)[at(main.rates, RATE), :, 1:].mean(axis=-1).ravel()
        axes.plot(np.arange(1, len(gaps) + 1), gaps, color=COLOURS[variant], ls=LINES[variant], lw=1.2)
    axes.set_yscale("log")
    for k in range(1, len(PHASES)):
        axes.axvline(k * STEPS, color=INK, lw=0.6, ls="--")
    axes.set_xlim(0, len(PHASES) * STEPS)
    axes.set_ylim(1e-4, 3)
    axes.set_xlabel("step")
    axes.set_ylabel("loss gap")
    axes.set_title({SILENT: "no noise", UNEVEN: "unequal noise"}[noise], loc="left")


def trajectories(paths: Trajectories) -> Figure:
    """Preferences down, steps across: three runs of each, and the mean distances to the optimum."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 5.3), layout="constrained")
        grid = figure.subplots(len(paths), len(SHOWN), sharex=True, sharey=True)
        for row, (preference, by_variant) in zip(grid, paths.items(), strict=True):
            for steps, axes in zip(SHOWN, row, strict=True):
                _trajectory(axes, preference, by_variant, steps)
            row[0].set_ylabel(f"$\\lambda$ = ({preference[0]:g}, {preference[1]:g})\n$x_2$")
        for steps, axes in zip(SHOWN, grid[0], strict=True):
            axes.set_title(f"{steps} steps")
        for axes in grid[-1]:
            axes.set_xlabel("$x_1$")
        handles = [
            _handle(ADAM),
            _handle(MADAM),
            Line2D([], [], color="black", lw=0.9, label="Pareto set"),
            Line2D([], [], color="black", ls="", marker="X", ms=6, mec="white", label="optimum of $\\lambda$"),
            Line2D([], [], color=INK, ls="", marker="o", ms=3, mfc="white", label="start"),
        ]
        figure.legend(
            handles=handles, loc="outside lower center", ncols=len(handles), handlelength=2.2, columnspacing=1.4
        )
    return figure


def _trajectory(axes: Axes, preference: Preference, by_variant: dict[str, Array], steps: int) -> None:
    _landscape(axes, preference, (-2.5, 2.5), (-1.5, 3.4))
    shares = np.linspace(0, 1, 101)
    axes.plot(*np.stack([optimum((s, 1 - s)) for s in shares.tolist()]).T, color="black", lw=0.9)
    distances = {}
    for variant, width in ((MADAM, 2.2), (ADAM, 1.2)):  # dashes on a broader line: both can be seen where they agree
        path = by_variant[variant][at(COARSE, RATE), : steps + 1]  # [step, start, 2]
        distances[variant] = np.linalg.norm(path[-1] - optimum(preference), axis=-1).mean()
        for start in range(path.shape[1]):
            axes.plot(*path[:, start].T, color=COLOURS[variant], ls=LINES[variant], lw=width)
            axes.plot(*path[-1, start], "o", color=COLOURS[variant], ms=3.5, mec="white", mew=0.5, zorder=5)
            axes.plot(*path[0, start], "o", color=INK, ms=3, mfc="white", mew=0.8, zorder=4)
    axes.plot(*optimum(preference), "X", color="black", ms=6, mec="white", mew=0.7, zorder=6)
    text = f"A {distances[ADAM]:.3f} | M {distances[MADAM]:.3f}"
    axes.text(0.5, 0.98, text, transform=axes.transAxes, ha="center", va="top", size=8)
    axes.set_xticks([-2, 0, 2])
    axes.set_yticks([0, 2])


def _landscape(axes: Axes, preference: Preference, x: tuple[float, float], y: tuple[float, float]) -> None:
    """The scalarised loss, darker where it is lower: its level sets are ellipses around the optimum."""
    curvatures, directions = np.linalg.eigh(np.einsum("k,kij->ij", preference, PROBLEM.hessians.numpy()))
    turned = float(np.degrees(np.arctan2(directions[1, 0], directions[0, 0])))
    corners = np.array([(a, b) for a in x for b in y])
    highest = float(np.sqrt(gap(corners, preference).max()))
    for level, shade in zip(np.linspace(highest, 0, 8, endpoint=False), np.linspace(0.99, 0.76, 8), strict=True):
        width, height = 2 * np.sqrt(2 / curvatures) * level
        place = (float(optimum(preference)[0]), float(optimum(preference)[1]))
        axes.add_patch(Ellipse(place, width, height, angle=turned, color=str(shade), lw=0, zorder=0))
    axes.set_xlim(*x)
    axes.set_ylim(*y)
    axes.set_aspect("equal")


def _star(axes: Axes, preference: Preference, colour: str, size: float = 10) -> None:
    axes.plot(*optimum(preference), "*", color=colour, ms=size, mec="white", mew=0.6, zorder=6)


def _handle(name: str) -> Line2D:
    return Line2D([], [], color=COLOURS[name], ls=LINES[name], label=name)


def _stars(label: str) -> list[Line2D]:
    old, new = label.split(", ")
    common: dict[str, Any] = {"ls": "", "marker": "*", "ms": 8, "mec": "white", "mew": 0.5}
    return [Line2D([], [], color=OLD, label=old, **common), Line2D([], [], color=NEW, label=new, **common)]
