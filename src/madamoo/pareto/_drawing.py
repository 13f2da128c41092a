"""What is drawn of fronts: which runs, what their labels say, which points count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from torch import Tensor

from madamoo.presentation import fronts as drawn
from madamoo.presentation.page import Page, Section, write_page
from madamoo.presentation.pictures import KINDS
from madamoo.presentation.plots import Figure

from ._fronts import Front
from ._indicators import need, non_dominated


def draw_fronts(
    fronts: Mapping[str, Front],
    path: str | Path,
    *,
    reference: Sequence[float] | Tensor | None = None,
    title: str | None = None,
) -> Path:
    """Draw the fronts of several runs into one file, and return its path.

    Two objectives: a line through the non-dominated points of each run. Three: the points in space. More: parallel
    coordinates, one line per ray, with the better end of every axis on top. Dominated points are faint. A front of
    which a single point is not dominated is called so in the legend.

    Args:
        fronts: by the name of the run. All have the same metrics, and the same of them are maximised.
        path: ``.html`` makes a page that needs no network, ``.svg``, ``.png`` and ``.pdf`` a picture.
        reference: the reference point of the hypervolume, which then stands in the legend.
        title: above the figure; None for none.
    """
    path = Path(path)
    kind = path.suffix.lower()
    if kind not in (".html", *KINDS):
        raise ValueError(f"path must end in .html, {', '.join(KINDS[:-1])} or {KINDS[-1]}, got {str(path)!r}")
    if kind == ".html":
        need("plotly")
        figure = front_figure(fronts, reference)
        return write_page(Page(title or "Pareto front", sections=[Section("Pareto front", [figure])]), path)
    need("matplotlib")
    return drawn.front_picture(_drawing(fronts, reference), path, title)


def front_figure(
    fronts: Mapping[str, Front],
    reference: Sequence[float] | Tensor | None = None,
    *,
    heading: str = "Points",
    caption: str = "Each point is a preference; dominated points are faint.",
) -> Figure:
    """The figure of :func:`draw_fronts`, to be put on a page with others."""
    return drawn.front_figure(heading, _drawing(fronts, reference), caption)


def _drawing(fronts: Mapping[str, Front], reference: Sequence[float] | Tensor | None) -> drawn.Drawing:
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
    shown = [_front(k, name, front, reference) for k, (name, front) in enumerate(fronts.items())]
    return drawn.Drawing(shown, first.names, first.maximise)


def _front(index: int, name: str, front: Front, reference: Sequence[float] | Tensor | None) -> drawn.DrawnFront:
    kept = non_dominated(front.points, front.maximise).numpy()
    said = [] if reference is None else [f"HV {front.hypervolume(reference):.4g}"]
    if single_point(front):
        said.append("one point")
    label = f"{name} ({', '.join(said)})" if said else name
    return drawn.DrawnFront(label, index, front.points.numpy(), front.preferences.numpy(), kept)


def single_point(front: Front) -> bool:
    """Whether there is nothing to choose: all points that are not dominated are one and the same."""
    kept = front.points[non_dominated(front.points, front.maximise)]
    return len(kept.unique(dim=0)) == 1
