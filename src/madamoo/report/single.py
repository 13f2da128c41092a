"""The page of one run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from madamoo.bench.analysis import fronts_of
from madamoo.diagnostics import summary
from madamoo.pareto import front_figure, single_point
from madamoo.presentation.images import Gallery, Image, colours, compared, outlined
from madamoo.presentation.page import Block, Facts, Notes, Page, Panels, Section
from madamoo.presentation.plots import Figure, Series, panels, surfaces
from madamoo.presentation.style import dash, listed, optimizer_name
from madamoo.presentation.tables import Cell, Table

from . import diagnosis
from .gallery import KINDS
from .reading import ReadRun
from .words import lead, summary_of, verdict

NOT_SHOWN = ("config", "metrics", "validation", "front", "cost", "environment", "objectives", "reductions", "sha256")


def page_of(run: ReadRun, own: Sequence[str] = ()) -> Page:
    title = run.name
    if run.record is not None:
        c = run.config
        title = f"{c.get('benchmark')}: {c.get('solver')} with {optimizer_name(str(c.get('optimizer')))}"
    return Page(title, lead(run), sections(run, own))


def sections(run: ReadRun, own: Sequence[str]) -> list[Section]:
    notes = [Notes(run.notes)] if run.notes else []
    return [
        Section("Summary", [*summary_of(run), *result_tables(run), *notes, verdict(run)]),
        Section("Solution", map_blocks(run)),
        Section("Predictions", picture_blocks(run)),
        Section("Losses", _panels(loss_figures(run))),
        Section("Weights", _panels(weight_figures({run.name: run}))),
        *diagnosis.sections({run.name: run.rows}),
        Section("Pareto front", front_blocks([run], own)),
        Section("Cost", cost_blocks(run)),
        Section("Configuration", configuration(run)),
    ]


def _panels(figures: Sequence[Figure]) -> list[Block]:
    return [Panels(figures)] if figures else []


def result_tables(run: ReadRun) -> list[Table]:
    record = run.record or {}
    found = record.get("metrics")
    if not found:
        return []
    other = record.get("validation") or {}
    rows = [[name, value, other.get(name)] for name, value in found.items()]
    return [Table("Metrics", ["metric", "test", "validation"], rows)]


def map_blocks(run: ReadRun) -> list[Block]:
    """The maps of what the model has learned, those of one kind and one output on one scale."""
    blocks: list[Block] = []
    for kind, caption in KINDS.items():
        for what in dict.fromkeys(one["what"] for one in run.maps if one["kind"] == kind):
            alike = [one for one in run.maps if (one["kind"], one["what"]) == (kind, what)]
            headings = {f"{kind.capitalize()} {what}" + (f" at {one['at']}" if one["at"] else ""): one for one in alike}
            parts = {
                heading: (one["x"].tolist(), one["y"].tolist(), one["values"]) for heading, one in headings.items()
            }
            x, y = alike[0]["axes"]
            blocks.append(Panels(surfaces(parts, x, y, caption, signed=kind != "error")))
    return blocks


def picture_blocks(run: ReadRun) -> list[Block]:
    """Predictions beside the truth: outlines on images, slices with a zoom and an error map."""
    overlays = [one for one in run.maps if one["kind"] == "overlay"]
    blocks: list[Block] = []
    if overlays:
        images = [
            Image(one["what"], outlined(colours(one["input"]), {0: one["truth"], 1: one["prediction"]}))
            for one in overlays
        ]
        caption = "Test images, from the worst prediction to the best. Blue: the truth; orange: the prediction."
        blocks.append(Gallery("Prediction and truth", images, caption))
    words = (
        "The window, enlarged below, is where the input lacks most. Errors: black is none, white the input's largest."
    )
    for one in run.maps:
        if one["kind"] == "slices":
            name, _, numbers = one["what"].partition(": ")
            caption = " ".join(part for part in (f"{numbers}." if numbers else "", words) if part)
            blocks.append(compared(name, one["input"], one["prediction"], one["truth"], caption))
            words = ""
    return blocks


def losses_by_epoch(run: ReadRun, split: str) -> dict[str, list[float | None]]:
    """``train_losses`` or ``validation_losses`` of each objective."""
    lines = [e.get(split) for e in run.epochs]
    return {
        name: [line[k] if line is not None and k < len(line) else None for line in lines]
        for k, name in enumerate(run.objectives)
    }


def loss_figures(run: ReadRun) -> list[Figure]:
    """Training and validation losses by epoch, on one scale; without a lab, those of the measured steps."""
    if run.epochs:
        x = [e["epoch"] for e in run.epochs]
        mode = "lines+markers" if len(x) < 15 else "lines"
        parts = {
            heading: [Series(n, x, y, k, dash(k), mode) for k, (n, y) in enumerate(losses_by_epoch(run, split).items())]
            for heading, split in (("Training", "train_losses"), ("Validation", "validation_losses"))
        }
        return panels(parts, "epoch", "loss")
    if not run.rows:
        return []
    series = [
        Series(n, [r["step"] for r in run.rows], [r["losses"].get(n) for r in run.rows], k, dash(k))
        for k, n in enumerate(run.objectives)
    ]
    return panels({"Losses of the measured batches": series}, "step", "loss")


def weight_figures(runs: Mapping[str, ReadRun]) -> list[Figure]:
    """Shares of the solver's weights: of the measured steps, or else their means by epoch; all on one scale."""
    by_axis: dict[str, dict[str, list[Series]]] = {}
    for name, run in runs.items():
        x, lines, axis = _weights(run)
        series = [Series(n, x, y, k, dash(k)) for k, (n, y) in enumerate(lines.items())]
        if any(s.known for s in series):
            by_axis.setdefault(axis, {})["Weights λ" if len(runs) == 1 else f"Weights λ: {name}"] = series
    caption = "Of the sum of absolute values."
    return [
        figure for axis, parts in by_axis.items() for figure in panels(parts, axis, "share", caption=caption, log=False)
    ]


def _weights(run: ReadRun) -> tuple[list[int], dict[str, list[float | None]], str]:
    if run.rows:
        names = diagnosis.names_of(run.rows)
        shares = [_shares(row["weights"]) for row in run.rows]
        return [row["step"] for row in run.rows], {n: [s.get(n) for s in shares] for n in names}, "step"
    kept = [e for e in run.epochs if e.get("weights")]
    lines = {
        n: [e["weights"][k] if k < len(e["weights"]) else None for e in kept] for k, n in enumerate(run.objectives)
    }
    return [e["epoch"] for e in kept], lines, "epoch"


def _shares(weights: Mapping[str, float | None]) -> dict[str, float]:
    known = {n: w for n, w in weights.items() if w is not None}
    total = sum(map(abs, known.values()))
    return {n: w / total for n, w in known.items()} if total else {}


def front_blocks(runs: Sequence[ReadRun], own: Sequence[str]) -> list[Block]:
    """The fronts of the runs that learned one, in one figure, and their points."""
    records = [run.record for run in runs if run.record is not None and run.record.get("front")]
    if not records:
        return []
    left_out: list[str] = []
    try:
        fronts, reference, _ = fronts_of(records, own=own, say=left_out.append)
    except ValueError as error:
        return [f"No front is drawn: {'; '.join(left_out) or error}."]
    caption = "On test data, one point per ray; dominated ones are faint. HV is the hypervolume."
    blocks: list[Block] = [front_figure(fronts, reference, heading="Pareto front", caption=caption)]
    if left_out:
        blocks.append(Notes(left_out))
    alone = [name for name, found in fronts.items() if single_point(found)]
    if alone:
        blocks.insert(
            0,
            f"A front of one point: {listed(alone)}. All other points are dominated or equal to it, so that there is "
            "nothing to choose between: the rays give no different trade-offs.",
        )
    if len(fronts) == 1:
        ((_, found),) = fronts.items()
        header = ["preference", *found.names]
        points = zip(found.preferences.tolist(), found.points.tolist(), strict=True)
        rows = [[", ".join(f"{a:.3g}" for a in ray), *point] for ray, point in points]
        blocks.append(Table("Points of the front", header, rows, "On test data."))
    return blocks


def cost_blocks(run: ReadRun) -> list[Block]:
    blocks: list[Block] = []
    cost = run.cost
    facts = {
        "Training": _written(cost.get("seconds"), "{:.1f} s"),
        "Per step": _written(_times(cost.get("seconds_per_step"), 1e3), "{:.3g} ms"),
        "Peak memory": _written(_times(cost.get("peak_memory_bytes"), 2**-20), "{:.0f} MiB"),
        "Optimizer state": _written(_times(cost.get("state_bytes"), 2**-20), "{:.2f} MiB"),
    }
    if any(facts.values()):
        blocks.append(Facts({key: value for key, value in facts.items() if value}))
    if run.rows:
        f = summary(run.rows)
        seconds = {room: value for room, value in f["seconds"].items() if value is not None}
        rows = [[room, Cell(f"{1e3 * value:.3g}", value=value)] for room, value in seconds.items()]
        if rows:
            caption = (
                "Mean milliseconds of a measured step; the probe is the diagnosis itself, and works on these alone."
            )
            blocks.append(Table("Time by room", ["room", "ms"], rows, caption))
    return blocks


def _times(value: Any, factor: float) -> float | None:
    return None if value is None else value * factor


def _written(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)


def configuration(run: ReadRun) -> list[Block]:
    if run.record is None:
        rows = run.rows
        return [Facts({"Objectives": ", ".join(run.objectives), "Steps": f"{rows[0]['step']} to {rows[-1]['step']}"})]
    record = run.record
    blocks: list[Block] = [Facts({key: str(value) for key, value in run.config.items()})]
    rest = {key.replace("_", " "): value for key, value in record.items() if key not in NOT_SHOWN and value is not None}
    if "diagnosed" in rest:
        rest["diagnosed"] = f"one step in {rest['diagnosed']}"
    shown = {**rest, **(record.get("environment") or {})}
    blocks.append(Facts({k: f"{v:.4g}" if isinstance(v, float) else str(v) for k, v in shown.items()}))
    if record.get("reductions"):
        blocks.append(f"Reduced against the full recipe: {'; '.join(map(str, record['reductions']))}.")
    return blocks
