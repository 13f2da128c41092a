"""Two figures of the summary: the gain of every cell with its interval, and gain against how fast lambda moves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .analysis import CellSummary, Gain

INK = "#767676"  # stands out equally from white and from black
COLOURS = ("#2a7fd4", "#c8650b", "#3a9b5c", "#8c6bd8", "#c23b6b", "#8a8a2a", "#1c9aa0", "#a06a3f")
STYLE: dict[Any, Any] = {
    "font.size": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.fonttype": "none",
    "savefig.transparent": True,
    **{key: INK for key in ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")},
}


def draw(cells: Sequence[CellSummary], folder: Path) -> list[Path]:
    """Write both figures into ``folder`` and return their paths."""
    import matplotlib
    from matplotlib.figure import Figure

    folder.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context(STYLE):
        figures = {
            "gains.svg": Figure(figsize=(7.0, 0.8 + 0.2 * max(1, len(cells))), layout="constrained"),
            "gain-and-movement.svg": Figure(figsize=(7.0, 4.2), layout="constrained"),
        }
        _gains(figures["gains.svg"].subplots(), cells)
        _movement(figures["gain-and-movement.svg"].subplots(), cells)
        for name, figure in figures.items():
            figure.savefig(folder / name, metadata={"Date": None})
    return [folder / name for name in figures]


def _colours(cells: Sequence[CellSummary]) -> dict[str, str]:
    names = sorted({cell.benchmark for cell in cells})
    return {name: COLOURS[k % len(COLOURS)] for k, name in enumerate(names)}


def _gains(axes: Any, cells: Sequence[CellSummary]) -> None:
    """A line a cell: filled against Adam, hollow against the control."""
    colours = _colours(cells)
    for k, cell in enumerate(reversed(cells)):
        _point(axes, cell.over_adam, k + 0.12, colours[cell.benchmark], filled=True)
        _point(axes, cell.over_control, k - 0.16, colours[cell.benchmark], filled=False)
    axes.axvline(0.0, color=INK, linewidth=0.8)
    axes.set_yticks(range(len(cells)), [f"{cell.benchmark}  {cell.solver}" for cell in reversed(cells)])
    axes.set_xlabel("per cent of the error gone: over Adam (filled), over the control (hollow)")


def _point(axes: Any, gain: Gain | None, y: float, colour: str, *, filled: bool) -> None:
    if gain is None:
        return
    if gain.low is not None:
        axes.plot([gain.low, gain.high], [y, y], color=colour, linewidth=1.2, alpha=0.6)
    axes.plot(gain.mean, y, "o", color=colour, markersize=4.5, markerfacecolor=colour if filled else "none")


def _movement(axes: Any, cells: Sequence[CellSummary]) -> None:
    colours = _colours(cells)
    for name, colour in colours.items():
        shown = [c for c in cells if c.benchmark == name and c.moved is not None and c.over_adam is not None]
        x = [max(c.moved or 0.0, 1e-5) for c in shown]
        y = [c.over_adam.mean for c in shown if c.over_adam is not None]
        axes.plot(x, y, "o", color=colour, label=name, markersize=5)
        for cell, a, b in zip(shown, x, y, strict=True):
            axes.annotate(cell.solver, (a, b), xytext=(4, 3), textcoords="offset points", fontsize=7)
    axes.set_xscale("log")
    axes.axhline(0.0, color=INK, linewidth=0.8)
    axes.set_xlabel("part of the weight that changes hands in a step (constant weights: left edge)")
    axes.set_ylabel("per cent of the error gone, MAdam over Adam")
    axes.legend(frameon=False, fontsize=8)
