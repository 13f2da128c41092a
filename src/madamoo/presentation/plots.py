"""Interactive figures for a page: curves, heat maps, dots and paths, as plain data that plotly draws."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import pairwise
from statistics import fmean
from typing import Any

from .style import COLOURS, GRID, INK, MUTED, PAPER, colour

WIDEST = 30.0  # values that span more than this factor are shown on a log scale
LABEL = 28  # letters of a name in a legend or on an axis


@dataclass(frozen=True)
class Figure:
    """A plotly figure in light colours, those of the dark being known to the page; ``caption`` describes it."""

    title: str
    data: Sequence[Mapping[str, Any]]
    layout: Mapping[str, Any]
    caption: str = ""
    height: int = 320

    def with_layout(self, **own: Any) -> Figure:
        return replace(self, layout={**self.layout, **own})


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

    @property
    def known(self) -> bool:
        return any(value is not None for value in self.y)


def hue(index: int, count: int) -> int:
    """The colour of a run: of two the first is orange, as Adam is elsewhere, the second blue, as MAdam is."""
    return 1 - index if count == 2 else index


def plain(text: str, longest: int = LABEL) -> str:
    """A user's name as plotly shows it letter by letter: it reads some markup."""
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


def axis_title(text: str) -> dict[str, Any]:
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
    within: Sequence[Series] | None = None,
) -> Figure:
    """Lines over steps or epochs.

    Args:
        log: None means: if the values ask for it.
        zero: draw a line there, and keep to a linear scale.
        bounds: of y; by default what the values need.
        within: the scale is what these need, too; see :func:`panels`.
    """
    values = _finite(value for s in within or series for value in s.y)
    if log is None:
        log = not zero and bool(values) and min(values) > 0 and max(values) / min(values) > WIDEST
    vertical: dict[str, Any] = {"title": axis_title(y), "type": "log" if log else "linear"}
    if log:
        positive = [value for value in values if value > 0]
        wide = bool(positive) and math.log10(max(positive)) - math.log10(min(positive)) > 3
        vertical |= {"dtick": 1 if wide else None, "exponentformat": "power", "tickfont": {"size": 10}}
    if percent:
        vertical["tickformat"] = ".0%" if max(values, default=1.0) > 0.05 else ".1%"
    found = bounds or _range(values, log=log, percent=percent, fixed=within is not None)
    if found is not None:
        vertical["range"] = list(found)
    horizontal: dict[str, Any] = {"title": axis_title(x), "rangemode": "tozero"}
    if within is not None:
        ends = _finite(value for s in within for value in s.x)
        horizontal["range"] = [min(0.0, *ends), 1.02 * max(ends)] if ends else None
    own: dict[str, Any] = {"xaxis": horizontal, "yaxis": vertical}
    own["showlegend"] = len({s.name for s in series if s.listed}) > 1
    if zero:
        own["shapes"] = [line(y0=0, y1=0, x0=0, x1=1, xref="paper")]
    return Figure(heading, [_trace(s, percent) for s in series], layout(**own), caption, height)


def panels(parts: Mapping[str, Sequence[Series]], x: str, y: str, **options: Any) -> list[Figure]:
    """A figure per heading, to be compared with the others: all of them have one scale."""
    every = [s for series in parts.values() for s in series]
    return [curves(heading, series, x, y, within=every, **options) for heading, series in parts.items()]


def _finite(values: Iterable[Any]) -> list[float]:
    return [float(v) for v in values if v is not None and math.isfinite(v)]


def _range(values: Sequence[float], *, log: bool, percent: bool, fixed: bool) -> tuple[float, float] | None:
    """The range of an axis, or None where plotly may choose it."""
    if log:
        values = [math.log10(value) for value in values if value > 0]
    if not values:
        return None
    low, high = min(values), max(values)
    if percent and not log:
        return 0.0, max(0.02, 1.08 * high)
    if not log and high - low < 1e-3 * max(abs(low), abs(high)):  # constant but for rounding: no figure of that
        middle = (high + low) / 2
        return middle - 0.1 * abs(middle), middle + 0.1 * abs(middle)
    margin = 0.06 * (high - low) or 0.5
    return (low - margin, high + margin) if fixed else None


def _trace(s: Series, percent: bool) -> dict[str, Any]:
    value = "%{y:.1%}" if percent else "%{y:.4g}"
    return {
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


def line(**places: Any) -> dict[str, Any]:
    """A thin line across a figure, behind what it shows."""
    return {"type": "line", "line": {"color": MUTED, "width": 1}, "layer": "below", **places}


Matrix = Sequence[Sequence[float | None]]


def heat_maps(parts: Mapping[str, tuple[Sequence[str], Matrix]], caption: str) -> list[Figure]:
    """Squares of cosines by heading, with the names of their rows; all have one scale of colours."""
    shown = {heading: _off_diagonal(matrix) for heading, (_, matrix) in parts.items()}
    values = [abs(x) for matrix in shown.values() for row in matrix for x in row if x is not None]
    most = max([0.2, *values])  # below that there is little to see
    return [_heat_map(heading, names, shown[heading], most, caption) for heading, (names, _) in parts.items()]


def _off_diagonal(matrix: Matrix) -> list[list[float | None]]:
    return [[None if i == j else x for j, x in enumerate(row)] for i, row in enumerate(matrix)]


def _heat_map(heading: str, names: Sequence[str], matrix: Matrix, most: float, caption: str) -> Figure:
    """It reads from above like the table it is."""
    count = len(names)
    labels = [plain(name, 18) for name in names]
    places = list(range(count))
    trace: dict[str, Any] = {
        "type": "heatmap",
        "z": matrix,
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
        xaxis={**ticks, "tickangle": 0 if sum(map(len, labels)) <= 30 else -45},
        yaxis={**ticks, "autorange": "reversed"},
        margin={"l": 60, "r": 10, "t": 10, "b": 40},
    )
    return Figure(heading, [trace], own, caption, max(220, min(520, 110 + 34 * count)))


def surfaces(
    parts: Mapping[str, tuple[Sequence[float], Sequence[float], Any]], x: str, y: str, caption: str, *, signed: bool
) -> list[Figure]:
    """Values over a plane by heading, all on one scale of colours; NaN is a gap.

    Args:
        parts: the places along x and along y, and the values as an array [len(x), len(y)].
        signed: whether values have two signs: then zero is the middle of the scale, else its end.
    """
    rows = {
        name: [[_short(value) for value in row] for row in values.T.tolist()] for name, (_, _, values) in parts.items()
    }
    most = max([0.0, *_finite(abs(v) for table in rows.values() for row in table for v in row if v is not None)]) or 1.0
    if signed:
        scale = {"zmin": -most, "zmax": most, "colorscale": [[0, COLOURS[1]], [0.5, PAPER], [1, COLOURS[0]]]}
    else:
        scale = {"zmin": 0.0, "zmax": most, "colorscale": [[0, PAPER], [1, COLOURS[1]]]}
    look = {"thickness": 10, "outlinewidth": 0, "nticks": 5, "len": 1, "y": 0.5, "exponentformat": "power"}
    hover = f"{plain(x)} %{{x:.3g}}, {plain(y)} %{{y:.3g}}: %{{z:.3g}}<extra></extra>"
    own = layout(xaxis={"title": axis_title(plain(x))}, yaxis={"title": axis_title(plain(y))})
    return [
        Figure(
            heading,
            [
                {"type": "heatmap", "z": rows[heading], "x": across, "y": up, "hovertemplate": hover, "colorbar": look}
                | scale
            ],
            own,
            caption,
        )
        for heading, (across, up, _) in parts.items()
    ]


def _short(value: float) -> float | None:
    """Four digits are more than a colour shows, and make a small page."""
    return float(f"{value:.4g}") if math.isfinite(value) else None


@dataclass(frozen=True)
class Group:
    """A dot per name: the values of one group, and their intervals if they have any."""

    name: str
    colour: int
    values: Sequence[float | None]
    spans: Sequence[tuple[float | None, float | None] | None] | None = None

    @classmethod
    def of_intervals(cls, name: str, colour: int, found: Sequence[Any]) -> Group:
        """Of objects with ``mean``, ``low`` and ``high``; None where there is none."""
        values = [None if x is None else x.mean for x in found]
        return cls(name, colour, values, [None if x is None else (x.low, x.high) for x in found])


def dots(
    heading: str,
    groups: Sequence[Group],
    names: Sequence[str],
    x: str,
    *,
    caption: str = "",
    percent: bool = False,
    zero: bool = False,
    within: Sequence[Group] | None = None,
) -> Figure:
    """One row per name with one dot per group; ``within``: the scale is what these groups need, too."""
    count = len(names)
    horizontal: dict[str, Any] = {"title": axis_title(x)}
    if percent:
        most = max(_finite(v for group in within or groups for v in group.values), default=0.0)
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
        own["shapes"] = [line(x0=0, x1=0, y0=0, y1=1, yref="paper")]
    data = [_dots(group, names, k - (len(groups) - 1) / 2, k, percent) for k, group in enumerate(groups)]
    return Figure(heading, data, layout(**own), caption, 130 + 34 * count)


def _dots(group: Group, names: Sequence[str], shift: float, k: int, percent: bool) -> dict[str, Any]:
    trace: dict[str, Any] = {
        "type": "scatter",
        "mode": "markers",
        "name": plain(group.name),
        "x": list(group.values),
        "y": [i + 0.16 * shift for i in range(len(names))],
        "customdata": [plain(name, 60) for name in names],
        "marker": {"color": colour(group.colour), "size": 9, "symbol": ("circle", "diamond", "square", "cross")[k % 4]},
        "hovertemplate": f"%{{customdata}}: %{{x:{'.1%' if percent else '.3g'}}}<extra>%{{fullData.name}}</extra>",
    }
    if group.spans is not None:
        ranges = [(v, *(span or (v, v))) for v, span in zip(group.values, group.spans, strict=True)]
        trace["error_x"] = {
            "type": "data",
            "symmetric": False,
            "array": [0.0 if v is None or high is None else high - v for v, _, high in ranges],
            "arrayminus": [0.0 if v is None or low is None else v - low for v, low, _ in ranges],
            "color": colour(group.colour),
            "thickness": 1,
            "width": 0,
        }
    return trace


def binned(
    steps: Sequence[int], values: Sequence[float | None], bins: int = 20
) -> tuple[list[float], list[float | None]]:
    """Means over at most so many equal stretches of the run, each at its middle: a share of one step is 0 or 1."""
    count = min(bins, len(steps))
    edges = [len(steps) * k // count for k in range(count + 1)] if count else []
    known = [[float(v) for v in values[a:b] if v is not None] for a, b in pairwise(edges)]
    return [fmean(steps[a:b]) for a, b in pairwise(edges)], [fmean(some) if some else None for some in known]
