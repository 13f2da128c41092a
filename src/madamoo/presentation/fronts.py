"""Pareto fronts of several runs in one figure: on a page to turn and zoom in, or as a picture for a paper.

Two metrics: a line through the non-dominated points of each run. Three: the points in space. More: parallel
coordinates, one line per point, with the better end of every axis on top. Dominated points are faint.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .pictures import picture, save
from .plots import Figure, axis_title, layout, line
from .style import FAINT, GRID, INK, colour

Array = NDArray[np.float64]

MARKERS = ("o", "s", "^", "D", "v", "P")
SYMBOLS = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross")
SYMBOLS_3D = ("circle", "square", "diamond", "cross", "circle-open", "square-open")  # plotly has no triangles there


@dataclass(frozen=True)
class DrawnFront:
    """The front of one run: ``index`` gives its colour and its marker."""

    label: str
    index: int
    points: Array  # [point, metric]
    preferences: Array  # [point, objective]
    kept: NDArray[np.bool_]  # mask of the non-dominated points

    @property
    def colour(self) -> str:
        return colour(self.index)

    def places(self, kept: bool) -> Any:
        """The non-dominated points, or the dominated ones, sorted by the first metric."""
        order = np.lexsort((self.points[:, 1], self.points[:, 0]))
        return order[self.kept[order] == kept]

    def triangles(self) -> Any:
        """A surface through the non-dominated points of three objectives: neighbours have near preferences."""
        a = self.preferences[self.places(kept=True)]
        if a.shape[1] != 3 or np.linalg.matrix_rank(a - a.mean(axis=0), tol=1e-6) < 2:
            return None
        from matplotlib.tri import Triangulation

        return Triangulation(a[:, 0] + a[:, 1] / 2, a[:, 1] * 3**0.5 / 2).triangles


@dataclass(frozen=True)
class Drawing:
    """Fronts with the same metrics, and what these are."""

    fronts: Sequence[DrawnFront]
    names: Sequence[str]
    maximise: Sequence[bool]

    @property
    def labels(self) -> list[str]:
        return [f"{name} {'↑' if up else '↓'}" for name, up in zip(self.names, self.maximise, strict=True)]

    def heights(self) -> tuple[list[Array], Array, Array]:
        """Points with 0 for the worst and 1 for the best of all in each metric, by front; the worst and the best."""
        everything = np.concatenate([front.points for front in self.fronts])
        low, high = everything.min(axis=0), everything.max(axis=0)
        worst, best = np.where(self.maximise, low, high), np.where(self.maximise, high, low)
        span = np.where(high > low, best - worst, 1.0)
        return [np.where(high > low, (front.points - worst) / span, 0.5) for front in self.fronts], worst, best


def front_picture(drawing: Drawing, path: Path, title: str | None = None) -> Path:
    """The fronts as SVG, PNG or PDF."""
    count = len(drawing.names)
    size = (4.6, 3.4) if count == 2 else (4.8, 4.2) if count == 3 else (min(1.6 + 0.85 * count, 14.0), 3.4)

    def draw(figure: Any) -> None:
        (_plane if count == 2 else _space if count == 3 else _parallel)(figure, drawing)
        if title is not None:
            figure.suptitle(title, fontsize=10)

    return save(picture(size, draw), path)


def _marker(front: DrawnFront) -> dict[str, Any]:
    return {"marker": MARKERS[front.index % len(MARKERS)], "color": front.colour}


def _plane(figure: Any, drawing: Drawing) -> None:
    axes = figure.subplots()
    for front in drawing.fronts:
        mark = {**_marker(front), "markersize": 4.5}
        axes.plot(*front.points[front.places(kept=False)].T, linestyle="none", alpha=FAINT, markeredgewidth=0, **mark)
        axes.plot(*front.points[front.places(kept=True)].T, linewidth=1.4, label=front.label, **mark)
    axes.set_xlabel(drawing.labels[0])
    axes.set_ylabel(drawing.labels[1])
    axes.legend()


def _space(figure: Any, drawing: Drawing) -> None:
    from matplotlib.ticker import MaxNLocator

    axes = figure.add_subplot(projection="3d")
    for front in drawing.fronts:
        mark = {**_marker(front), "depthshade": False}
        axes.scatter(*front.points[front.places(kept=False)].T, alpha=FAINT, s=14, linewidth=0, **mark)
        kept = front.points[front.places(kept=True)].T
        triangles = front.triangles()
        if triangles is not None:
            # transparent, not "none": before matplotlib 3.11 faces without a colour cannot be drawn
            wires = {"facecolor": "#00000000", "edgecolor": f"{front.colour}60", "linewidth": 0.6}
            axes.plot_trisurf(*kept, triangles=triangles, shade=False, **wires)
        axes.scatter(*kept, s=20, edgecolor="white", linewidth=0.4, label=front.label, **mark)
    for axis, label in zip((axes.xaxis, axes.yaxis, axes.zaxis), drawing.labels, strict=True):
        axis.set_label_text(label)
        axis.set_pane_color("white")
        axis.set_major_locator(MaxNLocator(5))
    axes.view_init(elev=25, azim=45)
    axes.set_box_aspect((1, 1, 0.9), zoom=1.1)
    figure.legend(loc="outside lower center", ncols=min(len(drawing.fronts), 3))


def _parallel(figure: Any, drawing: Drawing) -> None:
    axes = figure.subplots()
    places = range(len(drawing.names))
    heights, worst, best = drawing.heights()
    for front, rows in zip(drawing.fronts, heights, strict=True):
        for row, kept in zip(rows, front.kept, strict=True):
            axes.plot(places, row, color=front.colour, linewidth=1.1, alpha=0.8 if kept else FAINT)
        axes.plot([], [], color=front.colour, label=front.label)
    for k in places:
        axes.plot([k, k], [0, 1], color=INK, linewidth=0.8, zorder=0, marker="_", markersize=6)
        axes.text(k, 1.03, f"{best[k]:.3g}", ha="center", va="bottom", fontsize=8)
        axes.text(k, -0.03, f"{worst[k]:.3g}", ha="center", va="top", fontsize=8)
    axes.set_xticks(places, drawing.labels)
    axes.set_ylim(-0.12, 1.12)
    axes.set_yticks([])
    axes.set_ylabel("better →")
    axes.tick_params(axis="x", length=0)
    axes.grid(False)
    axes.spines[:].set_visible(False)
    figure.legend(loc="outside lower center", ncols=min(len(drawing.fronts), 3))


def front_figure(heading: str, drawing: Drawing, caption: str = "") -> Figure:
    """The fronts on a page."""
    count, labels = len(drawing.names), [escape(label) for label in drawing.labels]
    heights, worst, best = drawing.heights()
    data = [t for front, rows in zip(drawing.fronts, heights, strict=True) for t in _traces(front, rows, drawing)]
    own: dict[str, Any] = {"legend": {"y": 1.02}}
    if count == 2:
        own |= {"xaxis": {"title": axis_title(labels[0])}, "yaxis": {"title": axis_title(labels[1])}}
    elif count == 3:
        quiet = {"gridcolor": GRID, "color": INK, "backgroundcolor": "rgba(0,0,0,0)", "showgrid": True}
        own["scene"] = {
            **{f"{axis}axis": {**quiet, "title": {"text": label}} for axis, label in zip("xyz", labels, strict=True)},
            "aspectmode": "cube",
            "camera": {"eye": {"x": 1.5, "y": 1.5, "z": 1.1}},
        }
    else:
        own["xaxis"] = {"tickvals": list(range(count)), "ticktext": labels, "showline": False, "showgrid": False}
        own["yaxis"] = {"title": axis_title("better →"), "range": [-0.12, 1.12], "showline": False, "showgrid": False,
                        "showticklabels": False}  # fmt: skip
        own["shapes"] = [line(x0=k, x1=k, y0=0, y1=1) for k in range(count)]
        own["annotations"] = [
            {"x": k, "y": y, "text": f"{values[k]:.3g}", "showarrow": False}
            for y, values in ((1.06, best), (-0.06, worst))
            for k in range(count)
        ]
    return Figure(heading, data, layout(**own), caption, 480 if count == 3 else 420)


def _traces(front: DrawnFront, rows: Array, drawing: Drawing) -> list[dict[str, Any]]:
    """The dominated points, and the others with what connects them."""
    count = len(drawing.names)
    found = []
    for kept in (False, True):
        places = front.places(kept)
        if not len(places):
            continue
        look: dict[str, Any] = {
            "type": "scatter3d" if count == 3 else "scatter",
            "name": escape(front.label),
            "legendgroup": str(front.index),  # a click on the legend hides the dominated points too
            "showlegend": kept,
            "opacity": 1.0 if kept else FAINT,
            "hoverinfo": "text",
            "text": [_hover(front, drawing, k) for k in places],
            "line": {"color": front.colour, "width": 1.5},
        }
        if count > 3:  # one trace for all points, with gaps between them
            look["x"] = [*range(count), None] * len(places)
            look["y"] = [height for k in places for height in [*rows[k].tolist(), None]]
            look["text"] = [text for text in look["text"] for _ in range(count + 1)]
            found.append({**look, "mode": "lines"})
            continue
        axes = dict(zip("xyz", front.points[places].T.tolist(), strict=False))
        symbols = SYMBOLS if count == 2 else SYMBOLS_3D
        mark = {"color": front.colour, "symbol": symbols[front.index % len(symbols)], "size": 8 if count == 2 else 4}
        triangles = front.triangles() if kept and count == 3 else None
        if triangles is not None:  # their edges, with gaps between them
            loops = {
                axis: [v for t in triangles for v in (*(values[k] for k in (*t, t[0])), None)]
                for axis, values in axes.items()
            }
            quiet = {"mode": "lines", "showlegend": False, "opacity": 0.4, "hoverinfo": "skip", "text": None}
            found.append({**look, **loops, **quiet})
        found.append({**look, **axes, "mode": "lines+markers" if kept and count == 2 else "markers", "marker": mark})
    return found


def _hover(front: DrawnFront, drawing: Drawing, k: int) -> str:
    preference = ", ".join(f"{a:.3g}" for a in front.preferences[k])
    results = "<br>".join(
        f"{escape(name)} {value:.5g}" for name, value in zip(drawing.names, front.points[k], strict=True)
    )
    return f"<b>{escape(front.label)}</b><br>preference {preference}<br>{results}"
