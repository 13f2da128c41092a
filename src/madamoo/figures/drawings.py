"""The paper's figures: what stands where. :mod:`madamoo.presentation.pictures` draws them."""

from __future__ import annotations

from typing import Any

import numpy as np

from madamoo.presentation.pictures import bowl, legend, path_line, picture, star, stroke
from madamoo.presentation.style import ADAM, INK, MADAM, vector

from .claims import COMPARED, SHOWN, Phases, Signs, Trajectories, at
from .experiments import (
    ADAMS,
    COARSE,
    CONDITIONED,
    EUCLIDEAN,
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
    optimum,
)

WIDTH = 7.2  # inches; text of 8 and 9 points stays legible when a column of 5.5 inches shrinks it
PLAIN = {"axes.grid": False}
METRICS = {ADAMS: stroke(ADAM), CONDITIONED: stroke(MADAM), EUCLIDEAN: {"color": "black", "linestyle": ":"}}
OLD, NEW = "#8c8c8c", "black"
STAR = {"linestyle": "", "marker": "*", "markersize": 8, "markeredgecolor": "white", "markeredgewidth": 0.5}


def mismatch(phases: Phases, signs: Signs) -> Any:
    """One switch, without noise and with unequal noise, and the signed effects."""

    def draw(figure: Any) -> None:
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
        metric = {EUCLIDEAN: METRICS[EUCLIDEAN]}
        legend(figure, {**_lines(), **metric, **_stars("optimum of $\\lambda_A$", "of $\\lambda_B$")})

    return picture((WIDTH, 3.0), draw, **PLAIN)


def _switch(axes: Any, phases: Phases, noise: str) -> None:
    """The way from the first optimum to the second; what came before the switch is thin."""
    runs, k = phases.main, at(phases.main.rates, RATE)
    _landscape(axes, B, (-1.35, 1.35), (-0.1, 2.7))
    for variant in COMPARED:
        path = runs.paths[variant][k, : 2 * STEPS + 1, runs.runs(noise).start]
        path_line(axes, path[: STEPS + 1], variant, width=0.7, end=False, linestyle="-", alpha=0.7)
        path_line(axes, path[STEPS:], variant)
        ring = {"markersize": 3.5, "markerfacecolor": "white", "markeredgewidth": 0.8, "zorder": 4}
        axes.plot(*path[STEPS], "o", color=stroke(variant)["color"], **ring)
    star(axes, optimum(A), OLD)
    star(axes, optimum(B), NEW)
    axes.set_xlabel("$x_1$")
    axes.set_ylabel("$x_2$")


def _signs(axes: Any, signs: Signs, objective: int) -> None:
    for metric in (EUCLIDEAN, ADAMS, CONDITIONED):
        values = signs.shown(metric)[:, objective]
        steps = np.arange(1, len(values) + 1)
        axes.plot(steps, values, linewidth=1.2, **METRICS[metric])
        axes.fill_between(steps, values, 0, where=list(values < 0), color=METRICS[metric]["color"], alpha=0.25, lw=0)
    axes.axhline(0, color=INK, lw=0.6)
    axes.axvline(STEPS, color=INK, lw=0.6, ls="--")
    axes.set_xlim(0, 2 * STEPS)
    axes.set_ylim(-0.35, 1.05)
    axes.set_ylabel(f"$\\cos(g_{objective + 1}, M^{{-1}}d)$")


def phases(runs: Phases) -> Any:
    """Six phases: where Adam and MAdam went in each, and their gaps."""

    def draw(figure: Any) -> None:
        top, bottom = figure.subfigures(2, 1, height_ratios=(1.15, 1))
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
        legend(figure, {**_lines(), **_stars("optimum of the phase before", "of this phase")})

    return picture((WIDTH, 4.9), draw, **PLAIN)


def _phase(axes: Any, runs: Phases, variant: str, k: int) -> None:
    main = runs.main
    path = main.paths[variant][at(main.rates, RATE), k * STEPS : (k + 1) * STEPS + 1, 0]
    _landscape(axes, PHASES[k], (-1.3, 1.3), (0.1, 2.7))
    if k:
        star(axes, optimum(PHASES[k - 1]), OLD, size=7)
    star(axes, optimum(PHASES[k]), NEW, size=7)
    path_line(axes, path, variant, width=1.3, linestyle="-")
    axes.set_xticks([-1, 0, 1])
    axes.set_yticks([1, 2])


def _gaps(axes: Any, runs: Phases, noise: str) -> None:
    main = runs.main
    for variant in COMPARED:
        gaps = main.gaps(variant, noise)[at(main.rates, RATE), :, 1:].mean(axis=-1).ravel()
        axes.plot(np.arange(1, len(gaps) + 1), gaps, linewidth=1.2, **stroke(variant))
    axes.set_yscale("log")
    for k in range(1, len(PHASES)):
        axes.axvline(k * STEPS, color=INK, lw=0.6, ls="--")
    axes.set_xlim(0, len(PHASES) * STEPS)
    axes.set_ylim(1e-4, 3)
    axes.set_xlabel("step")
    axes.set_ylabel("loss gap")
    axes.set_title({SILENT: "no noise", UNEVEN: "unequal noise"}[noise], loc="left")


def trajectories(paths: Trajectories) -> Any:
    """Preferences down, steps across: three runs of each, and the mean distances to the optimum."""

    def draw(figure: Any) -> None:
        grid = figure.subplots(len(paths), len(SHOWN), sharex=True, sharey=True)
        for row, (preference, by_variant) in zip(grid, paths.items(), strict=True):
            for steps, axes in zip(SHOWN, row, strict=True):
                _trajectory(axes, preference, by_variant, steps)
            row[0].set_ylabel(f"$\\lambda$ = {vector(preference)}\n$x_2$")
        for steps, axes in zip(SHOWN, grid[0], strict=True):
            axes.set_title(f"{steps} steps")
        for axes in grid[-1]:
            axes.set_xlabel("$x_1$")
        legend(
            figure,
            {
                **_lines((ADAM, MADAM)),
                "Pareto set": {"color": "black", "linewidth": 0.9},
                "optimum of $\\lambda$": {**STAR, "color": "black", "marker": "X", "markersize": 6},
                "start": {"color": INK, "linestyle": "", "marker": "o", "markersize": 3, "markerfacecolor": "white"},
            },
        )

    return picture((WIDTH, 5.3), draw, **PLAIN)


def _trajectory(axes: Any, preference: Preference, by_variant: dict[str, Array], steps: int) -> None:
    _landscape(axes, preference, (-2.5, 2.5), (-1.5, 3.4))
    shares = np.linspace(0, 1, 101)
    axes.plot(*np.stack([optimum((s, 1 - s)) for s in shares.tolist()]).T, color="black", lw=0.9)
    distances = {}
    for variant, width in ((MADAM, 2.2), (ADAM, 1.2)):  # dashes on a broader line: both can be seen where they agree
        path = by_variant[variant][at(COARSE, RATE), : steps + 1]  # [step, start, 2]
        distances[variant] = np.linalg.norm(path[-1] - optimum(preference), axis=-1).mean()
        for start in range(path.shape[1]):
            path_line(axes, path[:, start], variant, width=width)
            axes.plot(*path[0, start], "o", color=INK, ms=3, mfc="white", mew=0.8, zorder=4)
    star(axes, optimum(preference), "black", size=6, marker="X")
    text = f"A {distances[ADAM]:.3f} | M {distances[MADAM]:.3f}"
    axes.text(0.5, 0.98, text, transform=axes.transAxes, ha="center", va="top", size=8)
    axes.set_xticks([-2, 0, 2])
    axes.set_yticks([0, 2])


def _landscape(axes: Any, preference: Preference, x: tuple[float, float], y: tuple[float, float]) -> None:
    """The scalarised loss."""
    bowl(axes, optimum(preference), np.einsum("k,kij->ij", preference, PROBLEM.hessians.numpy()), x, y)


def _lines(names: tuple[str, ...] = COMPARED) -> dict[str, dict[str, Any]]:
    return {name: stroke(name) for name in names}


def _stars(old: str, new: str) -> dict[str, dict[str, Any]]:
    return {old: {**STAR, "color": OLD}, new: {**STAR, "color": NEW}}
