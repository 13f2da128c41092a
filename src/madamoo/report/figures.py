"""Figures for a page: curves, heat maps and dots, all in one style, as plain data that plotly draws."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from statistics import fmean
from typing import Any

from madamoo.pareto._drawing import COLOURS, INK

from .page import Figure

GRID, MUTED, PAPER = "#e3e3e3", "#8a8f98", "#ffffff"
DASHES = ("solid", "dash", "dot", "dashdot")
WIDEST = 30.0  # values that span more than this factor are shown on a log scale
LABEL = 28  # letters of a name in a legend or on an axis


@dataclass(frozen=True)
class Series:
    """A line, or dots: x against y with gaps where y is None."""

    name: str
    x: Sequence[Any]
    y: Sequence[float | None]
    colour: int = 0
    dash: str = "solid"
    mode: str = "lines"
    listed: bool = True  # in the legend
    width: float = 1.6
    opacity: float = 1.0


def colour(index: int) -> str:
    return COLOURS[index % len(COLOURS)]


def hue(index: int, count: int) -> int:
    """The colour of a run: of two the first is orange, as Adam is elsewhere, the second blue, as MAdam is."""
    return 1 - index if count == 2 else index


def dash(index: int) -> str:
    """Beyond the colours there are, lines differ in their dashes."""
    return DASHES[index // len(COLOURS) % len(DASHES)]


def plain(text: str, longest: int = LABEL) -> str:
    """A user's name as plotly shows it letter by letter: markup is told apart from text by it too."""
    return escape(text if len(text) <= longest else f"{text[: longest - 1]}…", quote=False)


def layout(**own: Any) -> dict[str, Any]:
    """What all figures look like; the rest of the look is the page's."""
    axis = {
        "gridcolor": GRID,
        "linecolor": MUTED,
        "zeroline": False,
        "automargin": True,
        "ticks": "",
        "title_standoff": 8,
    }
    base: dict[str, Any] = {
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "system-ui, sans-serif", "size": 12, "color": INK},
        "margin": {"l": 48, "r": 10, "t": 10, "b": 40},
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "font": {"size": 12}},
        "hoverlabel": {"bgcolor": PAPER, "bordercolor": MUTED, "font": {"color": INK, "size": 12}},
        "xaxis": axis,
        "yaxis": axis,
    }
    for key, value in own.items():
        base[key] = {**base[key], **value} if isinstance(value, dict) and isinstance(base.get(key), dict) else value
    return base


def title(text: str) -> dict[str, Any]:
    return {"text": text, "font": {"size": 12}}


def curves(
    heading: str,
    series: Sequence[Series],
    x: str,
    y: str,
    *,
    caption: str = "",
    log: bool | None = None,
    zero: bool = False,
    bounds: tuple[float, float] | None = None,
    height: int = 320,
    percent: bool = False,
) -> Figure:
    """Lines over steps or epochs; ``log`` None means: if the values ask for it."""
    values = [v for s in series for v in s.y if v is not None and math.isfinite(v)]
    if log is None:
        log = not zero and bool(values) and min(values) > 0 and max(values) / min(values) > WIDEST
    data = [_trace(s, percent) for s in series]
    vertical: dict[str, Any] = {"title": title(y), "type": "log" if log else "linear"}
    if log:
        vertical |= {
            "dtick": 1 if values and max(values) / min(values) > 1e3 else None,
            "exponentformat": "power",
            "tickfont": {"size": 10},
        }
    if percent:
        vertical["tickformat"] = ".0%" if max(values, default=1.0) > 0.05 else ".1%"
    if bounds is not None:
        vertical["range"] = list(bounds)
    elif percent and values:
        vertical["range"] = [0, max(0.02, 1.08 * max(values))]
    elif not log and values and max(values) - min(values) < 1e-3 * max(map(abs, values)):
        middle = (max(values) + min(values)) / 2  # constant but for rounding: not a figure of the rounding
        vertical["range"] = [middle - 0.1 * abs(middle), middle + 0.1 * abs(middle)]
    own: dict[str, Any] = {"xaxis": {"title": title(x), "rangemode": "tozero"}, "yaxis": vertical}
    own["showlegend"] = len({s.name for s in series if s.listed}) > 1
    if zero:
        own["shapes"] = [_line(y0=0, y1=0, x0=0, x1=1, xref="paper")]
    return Figure(heading, data, layout(**own), caption, height)


def _trace(s: Series, percent: bool) -> dict[str, Any]:
    value = "%{y:.1%}" if percent else "%{y:.4g}"
    trace: dict[str, Any] = {
        "type": "scatter",
        "mode": s.mode,
        "name": plain(s.name),
        "legendgroup": plain(s.name, 200),
        "showlegend": s.listed,
        "x": list(s.x),
        "y": list(s.y),
        "opacity": s.opacity,
        "line": {"color": colour(s.colour), "width": s.width, "dash": s.dash},
        "marker": {"color": colour(s.colour), "size": 6 if s.mode == "lines+markers" else 4},
        "hovertemplate": "%{x}: " + value + "<extra>%{fullData.name}</extra>",
    }
    return trace


def _line(**places: Any) -> dict[str, Any]:
    return {"type": "line", "line": {"color": MUTED, "width": 1}, "layer": "below", **places}


def heat_map(heading: str, names: Sequence[str], matrix: Sequence[Sequence[float | None]], caption: str) -> Figure:
    """A square of cosines that reads from above like the table it is; the diagonal says nothing."""
    count = len(names)
    labels = [plain(name, 18) for name in names]
    shown = [[None if i == j else x for j, x in enumerate(line)] for i, line in enumerate(matrix)]
    places = list(range(count))
    most = max([0.2, *(abs(x) for line in shown for x in line if x is not None)])  # below that there is little to see
    trace: dict[str, Any] = {
        "type": "heatmap",
        "z": shown,
        "x": places,
        "y": places,
        "customdata": [[f"{a}, {b}" for b in labels] for a in labels],
        "zmin": -most,
        "zmax": most,
        "colorscale": [[0, COLOURS[1]], [0.5, PAPER], [1, COLOURS[0]]],
        "xgap": 1,
        "ygap": 1,
        "hoverongaps": False,
        "hovertemplate": "%{customdata}: %{z:.3f}<extra></extra>",
        "colorbar": {"thickness": 10, "outlinewidth": 0, "nticks": 5, "len": 1, "y": 0.5},
    }
    if count <= 10:
        trace |= {"texttemplate": "%{z:.2f}", "textfont": {"size": 11}}
    ticks = {"tickvals": places, "ticktext": labels, "showgrid": False, "linecolor": PAPER}
    own = layout(
        xaxis={**ticks, "tickangle": 0 if sum(map(len, names)) <= 30 else -45},
        yaxis={**ticks, "autorange": "reversed"},
        margin={"l": 60, "r": 10, "t": 10, "b": 40},
    )
    return Figure(heading, [trace], own, caption, max(220, min(520, 110 + 34 * count)))


def dots(
    heading: str,
    groups: Sequence[tuple[str, int, Sequence[float | None]]],
    names: Sequence[str],
    x: str,
    *,
    caption: str = "",
    percent: bool = False,
    spans: Sequence[Sequence[tuple[float | None, float | None] | None]] | None = None,
    zero: bool = False,
) -> Figure:
    """A line a name with a dot a group: (name of the group, its colour, a value for each name)."""
    count = len(names)
    data = []
    for k, (group, index, values) in enumerate(groups):
        shift = 0.16 * (k - (len(groups) - 1) / 2)
        trace: dict[str, Any] = {
            "type": "scatter",
            "mode": "markers",
            "name": plain(group),
            "x": list(values),
            "y": [i + shift for i in range(count)],
            "customdata": [plain(name, 60) for name in names],
            "marker": {"color": colour(index), "size": 9, "symbol": ("circle", "diamond", "square", "cross")[k % 4]},
            "hovertemplate": "%{customdata}: "
            + ("%{x:.1%}" if percent else "%{x:.3g}")
            + "<extra>%{fullData.name}</extra>",
        }
        if spans is not None:
            ranges = [(v, *(span or (v, v))) for v, span in zip(values, spans[k], strict=True)]
            trace["error_x"] = {
                "type": "data",
                "symmetric": False,
                "array": [0.0 if v is None or high is None else high - v for v, _, high in ranges],
                "arrayminus": [0.0 if v is None or low is None else v - low for v, low, _ in ranges],
                "color": colour(index),
                "thickness": 1,
                "width": 0,
            }
        data.append(trace)
    known = [v for _, _, values in groups for v in values if v is not None]
    horizontal: dict[str, Any] = {"title": title(x)}
    if percent:
        most = max(known, default=0.0)
        horizontal |= {
            "tickformat": ".0%" if most > 0.05 else ".1%",
            "range": [-0.03 * max(most, 0.05), max(0.05, 1.08 * most)],
        }
    own: dict[str, Any] = {
        "xaxis": horizontal,
        "yaxis": {
            "tickvals": list(range(count)),
            "ticktext": [plain(name) for name in names],
            "range": [count - 0.4, -0.6],
            "showline": False,
        },
        "showlegend": len(groups) > 1,
    }
    if zero:
        own["shapes"] = [_line(x0=0, x1=0, y0=0, y1=1, yref="paper")]
    return Figure(heading, data, layout(**own), caption, 130 + 34 * count)


def front(heading: str, fronts: Any, reference: Any, caption: str) -> Figure:
    """Pareto fronts with their hypervolumes, as :func:`madamoo.pareto.draw_fronts` draws them."""
    from madamoo.pareto._drawing import front_figure

    drawn = front_figure(fronts, reference).update_layout(template=None).to_plotly_json()
    own = drawn["layout"]
    own.pop("template", None)
    own.pop("margin", None)
    own.pop("font", None)
    if "scene" in own:
        quiet = {"gridcolor": GRID, "color": INK, "backgroundcolor": "rgba(0,0,0,0)"}
        own["scene"] = {k: {**quiet, **v} if k.endswith("axis") else v for k, v in own["scene"].items()}
    own["legend"] = {"y": 1.02}
    return Figure(heading, drawn["data"], layout(**own), caption, 480 if "scene" in own else 420)


def binned(
    steps: Sequence[int], values: Sequence[float | None], bins: int = 20
) -> tuple[list[float], list[float | None]]:
    """Means over at most so many equal stretches of the run, each at its middle: a share of one step is 0 or 1."""
    count = min(bins, len(steps))
    edges = [len(steps) * k // count for k in range(count + 1)] if count else []
    known = [[float(v) for v in values[a:b] if v is not None] for a, b in pairwise(edges)]
    return [fmean(steps[a:b]) for a, b in pairwise(edges)], [fmean(some) if some else None for some in known]
