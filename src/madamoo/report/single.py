"""The page of one run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from madamoo.diagnostics import summary

from . import diagnosis
from .figures import Series, curves, dash, front
from .page import Block, Facts, Figure, Notes, Number, Page, Panels, Section, Table
from .reading import Run
from .words import lead, optimizer_name, told

NOT_SHOWN = ("config", "metrics", "validation", "front", "cost", "environment", "objectives", "reductions", "sha256")


def page_of(run: Run) -> Page:
    title = run.name
    if run.record is not None:
        c = run.config
        title = f"{c.get('benchmark')}: {c.get('solver')} with {optimizer_name(str(c.get('optimizer')))}"
    return Page(title, lead(run), sections(run))


def sections(run: Run) -> list[Section]:
    summary_blocks: list[Block] = [*told(run)]
    if run.notes:
        summary_blocks.append(Notes(run.notes))
    return [
        Section("Summary", [*summary_blocks, *result_tables(run)]),
        Section("Losses", _panels(loss_figures(run))),
        Section("Weights", _panels(weight_figures({run.name: run}))),
        *diagnosis.sections({run.name: run.rows}),
        Section("Pareto front", front_blocks([run])),
        Section("Cost", cost_blocks(run)),
        Section("Configuration", configuration(run)),
    ]


def _panels(figures: Sequence[Figure]) -> list[Block]:
    return [Panels(figures)] if figures else []


def result_tables(run: Run) -> list[Table]:
    record = run.record or {}
    found = record.get("metrics")
    if not found:
        return []
    other = record.get("validation") or {}
    rows = [[name, value, other.get(name)] for name, value in found.items()]
    return [Table("Metrics", ["metric", "test", "validation"], rows)]


def losses_by_epoch(run: Run, split: str) -> dict[str, list[float | None]]:
    """``train_losses`` or ``validation_losses`` of each objective."""
    lines = [e[split] for e in run.epochs]
    return {
        name: [line[k] if line is not None and k < len(line) else None for line in lines]
        for k, name in enumerate(run.objectives)
    }


def loss_figures(run: Run) -> list[Figure]:
    """Training and validation losses by epoch; without a lab, those of the measured steps."""
    if run.epochs:
        x = [e["epoch"] for e in run.epochs]
        mode = "lines+markers" if len(x) < 15 else "lines"
        return [
            curves(
                heading,
                [Series(n, x, y, k, dash(k), mode) for k, (n, y) in enumerate(losses_by_epoch(run, split).items())],
                "epoch",
                "loss",
            )
            for heading, split in (("Training", "train_losses"), ("Validation", "validation_losses"))
        ]
    if not run.rows:
        return []
    series = [
        Series(n, [r["step"] for r in run.rows], [r["losses"].get(n) for r in run.rows], k, dash(k))
        for k, n in enumerate(run.objectives)
    ]
    return [curves("Losses of the measured batches", series, "step", "loss")]


def weight_figures(runs: Mapping[str, Run]) -> list[Figure]:
    """Shares of the solver's weights: of the measured steps, or else their means by epoch."""
    found = []
    for name, run in runs.items():
        x, lines, axis = _weights(run)
        if any(v is not None for line in lines.values() for v in line):
            series = [Series(n, x, y, k, dash(k)) for k, (n, y) in enumerate(lines.items())]
            title = "Weights λ" if len(runs) == 1 else f"Weights λ: {name}"
            found.append(curves(title, series, axis, "share", caption="Of the sum of absolute values.", log=False))
    return found


def _weights(run: Run) -> tuple[list[int], dict[str, list[float | None]], str]:
    if run.rows:
        names = diagnosis.names_of(run.rows)
        shares = [_shares(row["weights"]) for row in run.rows]
        return [row["step"] for row in run.rows], {n: [s.get(n) for s in shares] for n in names}, "step"
    kept = [e for e in run.epochs if e.get("weights")]
    lines = {n: [e["weights"][k] for e in kept] for k, n in enumerate(run.objectives)} if kept else {}
    return [e["epoch"] for e in kept], lines, "epoch"


def _shares(weights: Mapping[str, float | None]) -> dict[str, float]:
    known = {n: w for n, w in weights.items() if w is not None}
    total = sum(map(abs, known.values()))
    return {n: w / total for n, w in known.items()} if total else {}


def front_blocks(runs: Sequence[Run]) -> list[Block]:
    """The fronts of the runs that learned one, in one figure, and their points."""
    records = [run.record for run in runs if run.record is not None and run.record.get("front")]
    if not records:
        return []
    from madamoo.bench.analysis import fronts_of

    try:
        fronts, reference, _ = fronts_of(records)
    except (ValueError, OSError, KeyError) as error:
        return [f"The front cannot be drawn: {error}."]
    caption = "On test data, a point a ray; dominated ones are faint. HV is the hypervolume."
    blocks: list[Block] = [front("Pareto front", fronts, reference, caption)]
    if len(fronts) == 1:
        ((_, found),) = fronts.items()
        header = ["preference", *found.names]
        points = zip(found.preferences.tolist(), found.points.tolist(), strict=True)
        rows = [[", ".join(f"{a:.3g}" for a in ray), *point] for ray, point in points]
        blocks.append(Table("Points of the front", header, rows, "On test data."))
    return blocks


def cost_blocks(run: Run) -> list[Block]:
    blocks: list[Block] = []
    cost = (run.record or {}).get("cost") or {}
    facts = {
        "Training": _written(cost.get("seconds"), "{:.1f} s"),
        "A step": _written(_times(cost.get("seconds_per_step"), 1e3), "{:.3g} ms"),
        "Peak memory": _written(_times(cost.get("peak_memory_bytes"), 2**-20), "{:.0f} MiB"),
        "Optimizer state": _written(_times(cost.get("state_bytes"), 2**-20), "{:.2f} MiB"),
    }
    if any(facts.values()):
        blocks.append(Facts({key: value for key, value in facts.items() if value}))
    if run.rows:
        f = summary(run.rows)
        seconds = {room: value for room, value in f["seconds"].items() if value is not None}
        rows = [[room, Number(value, f"{1e3 * value:.3g}")] for room, value in seconds.items()]
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


def configuration(run: Run) -> list[Block]:
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
