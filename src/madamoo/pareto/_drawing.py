"""Fronts of several runs in one figure: a page to turn and zoom in, or a picture for a paper."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ._fronts import Front
from ._indicators import Array, need, non_dominated

# Okabe and Ito's colours, which the colour-blind can tell apart; shapes help in print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P")
SYMBOLS = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross")
SYMBOLS_3D = ("circle", "square", "diamond", "cross", "circle-open", "square-open")  # plotly has no triangles there
FAINT = 0.3
INK = "#333333"
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e3e3e3",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "pdf.fonttype": 42,  # text that can be searched and edited, as in the SVG
    "svg.fonttype": "none",
    "svg.hashsalt": "madamoo",  # the same figure, the same file
    **{key: INK for key in ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")},
}
PICTURES = (".svg", ".png", ".pdf")


@dataclass(frozen=True)
class _Run:
    """A front as it is drawn."""

    label: str
    index: int
    points: Array
    preferences: Array
    kept: NDArray[np.bool_]  # mask of the non-dominated points

    @property
    def colour(self) -> str:
        return COLOURS[self.index % len(COLOURS)]

    def places(self, kept: bool) -> Any:
        """The non-dominated points, or the dominated ones, sorted by the first metric."""
        order = np.lexsort((self.points[:, 1], self.points[:, 0]))
        return order[self.kept[order] == kept]


def draw_fronts(
    fronts: Mapping[str, Front],
    path: str | Path,
    *,
    reference: Sequence[float] | Tensor | None = None,
    title: str | None = None,
) -> Path:
    """Draw the fronts of several runs into one file, and return its path.

    Two objectives: a line through the non-dominated points of each run. Three: the points in space. More: parallel
    coordinates, a line a ray, with the better end of every axis on top. Dominated points are faint.

    Args:
        fronts: by the name of the run. All have the same metrics, and the same of them are maximised.
        path: ``.html`` makes a page that needs no network, ``.svg``, ``.png`` and ``.pdf`` a picture.
        reference: the reference point of the hypervolume, which then stands in the legend.
        title: above the figure; None for none.
    """
    path = Path(path)
    kind = path.suffix.lower()
    if kind not in (".html", *PICTURES):
        raise ValueError(f"path must end in .html, {', '.join(PICTURES[:-1])} or {PICTURES[-1]}, got {str(path)!r}")
    runs, first = _prepare(fronts, reference)
    path.parent.mkdir(parents=True, exist_ok=True)
    (_page if kind == ".html" else _picture)(runs, first, path, title)
    return path


def front_figure(fronts: Mapping[str, Front], reference: Sequence[float] | Tensor | None = None) -> Any:
    """The plotly figure of :func:`draw_fronts`, to be put on a page with others."""
    return _figure(*_prepare(fronts, reference), None)


def _prepare(fronts: Mapping[str, Front], reference: Sequence[float] | Tensor | None) -> tuple[Sequence[_Run], Front]:
    """Fronts as they are drawn, and the first of them, which says what the axes are."""
    if not fronts:
        raise ValueError("fronts must not be empty")
    first = next(iter(fronts.values()))
    for name, front in fronts.items():
        if (front.names, front.maximise) != (first.names, first.maximise):
            raise ValueError(
                f"all fronts must have the same names and directions: {name!r} has {front.names} and "
                f"maximise={front.maximise}, the first has {first.names} and {first.maximise}"
            )
    if len(first.names) < 2:
        raise ValueError(f"a front has at least two metrics, got {first.names}")
    return [_run(k, name, front, reference) for k, (name, front) in enumerate(fronts.items())], first


def _run(index: int, name: str, front: Front, reference: Sequence[float] | Tensor | None) -> _Run:
    label = name if reference is None else f"{name} (HV {front.hypervolume(reference):.4g})"
    kept = non_dominated(front.points, front.maximise).numpy()
    return _Run(label, index, front.points.numpy(), front.preferences.numpy(), kept)


def _labels(front: Front) -> list[str]:
    return [f"{name} {'↑' if up else '↓'}" for name, up in zip(front.names, front.maximise, strict=True)]


def _triangles(run: _Run) -> Any:
    """A surface through the non-dominated points of three objectives, neighbours being those with near preferences."""
    a = run.preferences[run.places(kept=True)]
    if a.shape[1] != 3 or np.linalg.matrix_rank(a - a.mean(axis=0), tol=1e-6) < 2:
        return None
    return need("matplotlib.tri").Triangulation(a[:, 0] + a[:, 1] / 2, a[:, 1] * 3**0.5 / 2).triangles


def _heights(runs: Sequence[_Run], front: Front) -> tuple[list[Array], Array, Array]:
    """The points of each run with 0 for the worst and 1 for the best of all in each metric; the worst and the best."""
    everything = np.concatenate([run.points for run in runs])
    low, high = everything.min(axis=0), everything.max(axis=0)
    worst, best = np.where(front.maximise, low, high), np.where(front.maximise, high, low)
    span = np.where(high > low, best - worst, 1.0)
    return [np.where(high > low, (run.points - worst) / span, 0.5) for run in runs], worst, best


def _picture(runs: Sequence[_Run], front: Front, path: Path, title: str | None) -> None:
    matplotlib, figures = need("matplotlib"), need("matplotlib.figure")
    count = len(front.names)
    with matplotlib.rc_context(STYLE):
        size = (4.6, 3.4) if count == 2 else (4.8, 4.2) if count == 3 else (min(1.6 + 0.85 * count, 14.0), 3.4)
        figure = figures.Figure(figsize=size, layout="constrained")
        (_plane if count == 2 else _space if count == 3 else _parallel)(figure, runs, front)
        if title is not None:
            figure.suptitle(title, fontsize=10)
        metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(path.suffix.lower())
        figure.savefig(path, dpi=200, metadata=metadata)


def _plane(figure: Any, runs: Sequence[_Run], front: Front) -> None:
    axes = figure.subplots()
    for run in runs:
        marker = {"marker": MARKERS[run.index % len(MARKERS)], "color": run.colour, "markersize": 4.5}
        axes.plot(*run.points[run.places(kept=False)].T, linestyle="none", alpha=FAINT, markeredgewidth=0, **marker)
        axes.plot(*run.points[run.places(kept=True)].T, linewidth=1.4, label=run.label, **marker)
    axes.set_xlabel(_labels(front)[0])
    axes.set_ylabel(_labels(front)[1])
    axes.legend()


def _space(figure: Any, runs: Sequence[_Run], front: Front) -> None:
    axes = figure.add_subplot(projection="3d")
    for run in runs:
        marker = {"marker": MARKERS[run.index % len(MARKERS)], "color": run.colour, "depthshade": False}
        axes.scatter(*run.points[run.places(kept=False)].T, alpha=FAINT, s=14, linewidth=0, **marker)
        kept = run.points[run.places(kept=True)].T
        triangles = _triangles(run)
        if triangles is not None:
            wires = {"facecolor": "none", "edgecolor": f"{run.colour}60", "linewidth": 0.6}
            axes.plot_trisurf(*kept, triangles=triangles, shade=False, **wires)
        axes.scatter(*kept, s=20, edgecolor="white", linewidth=0.4, label=run.label, **marker)
    axes.set_xlabel(_labels(front)[0])
    axes.set_ylabel(_labels(front)[1])
    axes.set_zlabel(_labels(front)[2])
    for axis in (axes.xaxis, axes.yaxis, axes.zaxis):
        axis.set_pane_color("white")
        axis.set_major_locator(need("matplotlib.ticker").MaxNLocator(5))
    axes.view_init(elev=25, azim=45)
    axes.set_box_aspect((1, 1, 0.9), zoom=1.1)
    figure.legend(loc="outside lower center", ncols=min(len(runs), 3))


def _parallel(figure: Any, runs: Sequence[_Run], front: Front) -> None:
    axes = figure.subplots()
    places = range(len(front.names))
    heights, worst, best = _heights(runs, front)
    for run, rows in zip(runs, heights, strict=True):
        for row, kept in zip(rows, run.kept, strict=True):
            axes.plot(places, row, color=run.colour, linewidth=1.1, alpha=0.8 if kept else FAINT)
        axes.plot([], [], color=run.colour, label=run.label)
    for k in places:
        axes.plot([k, k], [0, 1], color=INK, linewidth=0.8, zorder=0, marker="_", markersize=6)
        axes.text(k, 1.03, f"{best[k]:.3g}", ha="center", va="bottom", fontsize=8)
        axes.text(k, -0.03, f"{worst[k]:.3g}", ha="center", va="top", fontsize=8)
    axes.set_xticks(places, _labels(front))
    axes.set_ylim(-0.12, 1.12)
    axes.set_yticks([])
    axes.set_ylabel("better →")
    axes.tick_params(axis="x", length=0)
    axes.grid(False)
    axes.spines[:].set_visible(False)
    figure.legend(loc="outside lower center", ncols=min(len(runs), 3))


def _page(runs: Sequence[_Run], front: Front, path: Path, title: str | None) -> None:
    config = {"displaylogo": False, "responsive": True, "showSendToCloud": False}  # nothing leaves the page
    figure = _figure(runs, front, title)
    figure.write_html(path, include_plotlyjs=True, div_id="fronts", default_height="95vh", config=config)


def _figure(runs: Sequence[_Run], front: Front, title: str | None) -> Any:
    plots = need("plotly.graph_objects")
    figure = plots.Figure()
    count, labels = len(front.names), [html.escape(label) for label in _labels(front)]
    heights, worst, best = _heights(runs, front)
    for run, rows in zip(runs, heights, strict=True):
        for kept in (False, True):
            places = run.places(kept)
            if not len(places):
                continue
            texts = [_hover(run, front, k) for k in places]
            style: dict[str, Any] = {
                "name": html.escape(run.label),
                "legendgroup": str(run.index),  # a click on the legend hides the dominated points too
                "showlegend": kept,
                "opacity": 1.0 if kept else FAINT,
                "hoverinfo": "text",
            }
            if count > 3:  # one trace for all rays, with gaps between them
                x = [*range(count), None] * len(places)
                y = [height for k in places for height in [*rows[k].tolist(), None]]
                texts = [text for text in texts for _ in range(count + 1)]
                figure.add_scatter(
                    x=x, y=y, text=texts, mode="lines", line={"color": run.colour, "width": 1.5}, **style
                )
                continue
            axes = dict(zip("xyz", run.points[places].T.tolist(), strict=False))
            symbols = SYMBOLS if count == 2 else SYMBOLS_3D
            marker = {"color": run.colour, "symbol": symbols[run.index % len(symbols)], "size": 8 if count == 2 else 4}
            if count == 2:
                mode = "lines+markers" if kept else "markers"
                figure.add_scatter(**axes, text=texts, mode=mode, marker=marker, line={"color": run.colour}, **style)
            else:
                triangles = _triangles(run) if kept else None
                if triangles is not None:  # their edges, with gaps between them
                    loops = {
                        axis: [v for t in triangles for v in (*(values[k] for k in (*t, t[0])), None)]
                        for axis, values in axes.items()
                    }
                    wires = {**style, "showlegend": False, "opacity": 0.4, "hoverinfo": "skip"}
                    figure.add_scatter3d(**loops, mode="lines", line={"color": run.colour, "width": 1.5}, **wires)
                figure.add_scatter3d(**axes, text=texts, mode="markers", marker=marker, **style)
    figure.update_layout(
        template="simple_white",
        title=None if title is None else html.escape(title),
        margin={"l": 60, "r": 30, "t": 30 if title is None else 70, "b": 60},
        font={"color": INK, "size": 14},
        legend={"orientation": "h", "y": -0.15} if count > 2 else {},
    )
    if count == 2:
        figure.update_layout(xaxis_title=labels[0], yaxis_title=labels[1])
    elif count == 3:
        figure.update_layout(
            scene={
                **{f"{axis}axis": {"title": {"text": labels[k]}, "showgrid": True} for k, axis in enumerate("xyz")},
                "aspectmode": "cube",
                "camera": {"eye": {"x": 1.5, "y": 1.5, "z": 1.1}},
            }
        )
    else:
        figure.update_xaxes(tickvals=list(range(count)), ticktext=labels, ticklen=0, showline=False)
        figure.update_yaxes(title="better →", range=[-0.12, 1.12], showline=False, ticks="", showticklabels=False)
        for k in range(count):
            figure.add_shape(type="line", x0=k, x1=k, y0=0, y1=1, line={"color": INK, "width": 1}, layer="below")
            figure.add_annotation(x=k, y=1.06, text=f"{best[k]:.3g}", showarrow=False)
            figure.add_annotation(x=k, y=-0.06, text=f"{worst[k]:.3g}", showarrow=False)
    return figure


def _hover(run: _Run, front: Front, k: int) -> str:
    preference = ", ".join(f"{a:.3g}" for a in run.preferences[k])
    results = "<br>".join(
        f"{html.escape(name)} {value:.5g}" for name, value in zip(front.names, run.points[k], strict=True)
    )
    return f"<b>{html.escape(run.label)}</b><br>preference {preference}<br>{results}"
