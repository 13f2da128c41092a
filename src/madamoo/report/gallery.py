"""What the models of a folder have learned: one row of maps per benchmark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from madamoo.bench.analysis import benchmarks_of
from madamoo.presentation.page import Block, Notes, Panels
from madamoo.presentation.plots import Figure, surfaces
from madamoo.presentation.style import optimizer_name

from .reading import ReadRun, with_maps

KINDS = {
    "solution": "What the network gives.",
    "error": "The distance from the reference.",
    "residual": "By how much the equation is violated.",
}
HEIGHT = 250


def gallery(runs: Sequence[ReadRun], own: Sequence[str] = ()) -> list[Block]:
    """Solution, error and residual side by side, of each benchmark's best run on validation data.

    A benchmark with several outputs, equations or slices shows its first output and equation at its last slice; the
    page of a run shows all of them.
    """
    by_name: dict[str, list[ReadRun]] = {}
    for run in runs:
        if run.folder is not None and run.record is not None and run.record["status"] == "finished":
            by_name.setdefault(run.config["benchmark"], []).append(run)
    blocks: list[Block] = []
    left_out: list[str] = []
    records = [run.record for some in by_name.values() for run in some if run.record]
    unknown: list[str] = []  # benchmarks, which the section on gains names
    for name, problem in benchmarks_of(records, own, unknown.append).items():
        primary = problem.primary
        sign = -1.0 if primary.higher_is_better else 1.0

        def badness(run: ReadRun, metric: str = primary.name, sign: float = sign) -> float:
            value = ((run.record or {}).get("validation") or {}).get(metric)
            return float("inf") if value is None else sign * value

        best = with_maps(min(by_name[name], key=badness))
        left_out += [note for note in best.notes if note not in left_out]
        if best.maps:
            blocks.append(Panels(_row(name, best, primary.name), narrow=True))
    if not blocks:
        return [Notes(left_out)] if left_out else []
    text = (
        "Solution, error and residual of the run that is best on validation data, benchmark by benchmark: the first "
        "output and equation, and the last slice where there are several. Gaps of the error are where the reference is "
        "not known. The page of a run has all maps."
    )
    return [text, *blocks, *([Notes(left_out)] if left_out else [])]


def _row(name: str, run: ReadRun, metric: str) -> list[Figure]:
    config, found = run.config, (run.record or {})["metrics"].get(metric)
    value = "" if found is None else f", {metric} {found:.3g}"
    of_run = f"{config['solver']}, {optimizer_name(config['optimizer'])}, rate {config['lr']:g}{value}."
    figures = []
    for kind, caption in KINDS.items():
        alike = [one for one in run.maps if one["kind"] == kind]
        if alike:
            one = next(other for other in reversed(alike) if other["what"] == alike[0]["what"])
            at = f" at {one['at']}" if one["at"] else ""
            label = f"{name}: {one['what']}{at}" if kind == "solution" else f"{kind.capitalize()} {one['what']}{at}"
            figures.append(_map(label, one, of_run if kind == "solution" else caption))
    return figures


def _map(heading: str, one: dict[str, Any], caption: str) -> Figure:
    parts = {heading: (one["x"].tolist(), one["y"].tolist(), one["values"])}
    x, y = one["axes"]
    (figure,) = surfaces(parts, x, y, caption, signed=one["kind"] != "error")
    return replace(figure, height=HEIGHT)
