"""Static pictures by matplotlib: SVG, PNG and PDF, the same file for the same picture."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from madamoo.files import write_bytes

from .plots import Group
from .style import HUES, INK, PICTURE, colour
from .style import STROKES as STYLES

KINDS = (".svg", ".png", ".pdf")
STROKES: dict[str, Any] = {"solid": "-", "dash": (0, (4, 1.5)), "dot": (0, (1, 1.2)), "dashdot": "-."}


def picture(size: tuple[float, float], draw: Callable[[Any], None], **style: Any) -> Any:
    """A matplotlib figure of this size in inches, filled by ``draw``; ``style`` has further settings of matplotlib."""
    import matplotlib
    from matplotlib.figure import Figure

    settings: dict[Any, Any] = {**PICTURE, **style}
    with matplotlib.rc_context(settings):
        figure = Figure(figsize=size, layout="constrained")
        draw(figure)
    return figure


def save(figure: Any, path: Path) -> Path:
    """Write a picture; the ending says in which format. The same picture gives the same file."""
    import matplotlib

    kind, content = path.suffix.lower(), io.BytesIO()
    metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(kind)
    with matplotlib.rc_context(PICTURE):
        figure.savefig(content, format=kind.removeprefix("."), dpi=200, metadata=metadata)
    return write_bytes(path, content.getvalue())


def path_line(axes: Any, points: Any, name: str, *, width: float = 1.5, end: bool = True, **look: Any) -> None:
    """A way through the plane [step, 2] in an optimizer's colour and dashes, with a dot at its end."""
    tint = colour(HUES[name])
    axes.plot(*points.T, **{"color": tint, "linestyle": STROKES[STYLES[name]], "linewidth": width, **look})
    if end:
        axes.plot(*points[-1], "o", color=tint, markersize=3.7, markeredgecolor="white", markeredgewidth=0.6, zorder=5)


def star(axes: Any, point: Any, tint: str, size: float = 10, marker: str = "*") -> None:
    axes.plot(*point, marker, color=tint, markersize=size, markeredgecolor="white", markeredgewidth=0.6, zorder=6)


def bowl(axes: Any, centre: Any, hessian: Any, x: tuple[float, float], y: tuple[float, float]) -> None:
    """A quadratic in the plane, darker where it is lower: its level sets are ellipses around its minimum."""
    import numpy as np
    from matplotlib.patches import Ellipse

    curvatures, directions = np.linalg.eigh(hessian)
    turned = float(np.degrees(np.arctan2(directions[1, 0], directions[0, 0])))
    corners = np.array([(a, b) for a in x for b in y]) - centre
    highest = float(np.sqrt(0.5 * np.einsum("ni,ij,nj->n", corners, hessian, corners).max()))
    for level, shade in zip(np.linspace(highest, 0, 8, endpoint=False), np.linspace(0.99, 0.76, 8), strict=True):
        width, height = 2 * np.sqrt(2 / curvatures) * level
        place = (float(centre[0]), float(centre[1]))
        axes.add_patch(Ellipse(place, width, height, angle=turned, color=str(shade), lw=0, zorder=0))
    axes.set_xlim(*x)
    axes.set_ylim(*y)
    axes.set_aspect("equal")


def legend(figure: Any, entries: Mapping[str, Mapping[str, Any]]) -> None:
    """A legend below the picture: what each label looks like."""
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], label=label, **look) for label, look in entries.items()]
    figure.legend(
        handles=handles, loc="outside lower center", ncols=len(handles), handlelength=2.2, columnspacing=1.4, fontsize=9
    )


def stroke(name: str) -> dict[str, Any]:
    """What an optimizer's line looks like."""
    return {"color": colour(HUES[name]), "linestyle": STROKES[STYLES[name]]}


def dots(groups: Sequence[Group], names: Sequence[str], x: str, path: Path) -> Path:
    """One row per name with one dot per group, the first filled, and their intervals."""

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for k, group in enumerate(groups):
            tint = colour(group.colour)
            mark = {"color": tint, "marker": "o", "markersize": 4.5, "markerfacecolor": "none" if k else tint}
            axes.plot([], [], linestyle="", label=group.name, **mark)
            for row, (value, span) in enumerate(zip(group.values, group.spans or (None,) * len(names), strict=True)):
                place = row + 0.28 * (k - (len(groups) - 1) / 2)
                if value is not None and span is not None and None not in span:
                    axes.plot(span, [place, place], color=tint, linewidth=1.2, alpha=0.6)
                if value is not None:
                    axes.plot(value, place, **mark)
        axes.axvline(0.0, color=INK, linewidth=0.8)
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.set_xlabel(x)
        figure.legend(loc="outside upper center", ncols=len(groups))

    return save(picture((7.0, 1.2 + 0.2 * max(1, len(names))), draw), path)


def labelled_points(
    parts: Mapping[str, Sequence[tuple[float, float, str]]], x: str, y: str, path: Path, *, log: bool = False
) -> Path:
    """Points (x, y, label) by group, each with its label beside it; a line at zero."""

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for k, (name, points) in enumerate(parts.items()):
            axes.plot([p[0] for p in points], [p[1] for p in points], "o", color=colour(k), label=name, markersize=5)
            for a, b, label in points:
                axes.annotate(label, (a, b), xytext=(4, 3), textcoords="offset points", fontsize=7)
        axes.set_xscale("log" if log else "linear")
        axes.axhline(0.0, color=INK, linewidth=0.8)
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        if parts:
            axes.legend(fontsize=8)

    return save(picture((7.0, 4.2), draw), path)
