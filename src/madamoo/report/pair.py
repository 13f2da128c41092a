"""The page of two runs side by side, and what the second does better or worse than the first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from madamoo.diagnostics import summary
from madamoo.presentation.page import Block, Notes, Page, Panels, Section, Verdict
from madamoo.presentation.plots import Figure, Series, curves, hue, panels
from madamoo.presentation.style import dash, listed, optimizer_name
from madamoo.presentation.tables import Cell, Table, Value

from . import diagnosis
from .reading import ReadRun
from .single import front_blocks, losses_by_epoch, weight_figures
from .words import absent, ends, outcome, trained


def page_of(first: ReadRun, second: ReadRun, own: Sequence[str] = ()) -> Page:
    a, b = _names(first, second)
    runs = {a: first, b: second}
    notes = [f"{name}: {note}" for name, run in runs.items() for note in run.notes]
    words = [f"{trained(run)} {outcome(run)}".strip() for run in runs.values() if run.record is not None]
    words += [f"{name}: {absent(run)}" for name, run in runs.items() if not run.rows]
    intro: list[Block] = [*words, *_some(metrics_table(a, b, runs)), *_some(facts_table(a, b, runs))]
    if notes:
        intro.append(Notes(notes))
    differences = "Differences are those of the second run to the first."
    return Page(
        f"{a} and {b}",
        f"Two runs side by side. {differences}",
        [
            Section("Summary", [*intro, verdict(a, b, runs)]),
            Section("Losses", loss_blocks(a, b, runs)),
            Section("Weights", [Panels(found)] if (found := weight_figures(runs)) else []),
            *diagnosis.sections({name: run.rows for name, run in runs.items()}),
            Section("Pareto fronts", front_blocks([second, first], own)),  # the first colour is blue
            Section("Cost", _some(cost_table(a, b, runs))),
            Section("Configuration", _some(configuration(a, b, runs))),
        ],
    )


def _some(table: Table | None) -> list[Block]:
    return [] if table is None else [table]


def _names(first: ReadRun, second: ReadRun) -> tuple[str, str]:
    """Names that say where the two differ, as far as their configurations do."""
    keys = [k for k in first.config if k in second.config and first.config[k] != second.config[k]]
    if keys and first.record is not None and second.record is not None:
        return _name(first, keys), _name(second, keys)
    if first.name == second.name:
        return f"{first.name} (1)", f"{second.name} (2)"
    return first.name, second.name


def _name(run: ReadRun, keys: Sequence[str]) -> str:
    parts = [optimizer_name(str(run.config[k])) if k == "optimizer" else str(run.config[k]) if k in
             ("solver", "benchmark") else f"{k} {run.config[k]}" for k in keys]  # fmt: skip
    return ", ".join(parts)


def verdict(a: str, b: str, runs: Mapping[str, ReadRun]) -> Verdict:
    """Who ends with the lower losses, whether the two are a pair at all, and what to do next."""
    last = {name: ends(run)[1] for name, run in runs.items()}
    common = [n for n in last[a] if last[a][n] is not None and last[b].get(n) is not None]
    if not common:
        return Verdict("The two runs have no loss in common to compare.")
    lower = [n for n in common if last[b][n] < last[a][n]]
    text = f"At the end {b} has the lower loss on {len(lower)} of {len(common)} objectives"
    text += f" ({listed(lower)})." if 0 < len(lower) < len(common) else "."
    if any(run.record is None for run in runs.values()):
        return Verdict(text, ["One pair of runs proves nothing: repeat both with other seeds."])
    different = [k for k in runs[a].config if runs[b].config.get(k) != runs[a].config[k]]
    if {"seed", "benchmark", "batch"} & {*different}:
        text += f" They differ in {listed(different)}: the difference is not that of one choice alone."
        return Verdict(text, ["Compare runs that differ in one choice, on the same seed."])
    text += " Both have the same seed, and saw the same batches: their difference is paired."
    advice = ["One seed proves nothing: run both on several, and report on their folder for intervals."]
    if "optimizer" in different and "lr" not in different:
        advice.append("Both have one learning rate, which need not be the best for either: try some for each.")
    return Verdict(text, advice)


def _difference(x: float | None, y: float | None, rate: bool = False) -> Cell:
    if x is None or y is None:
        return Cell("")
    return Cell(f"{100 * (y - x):+.1f} points" if rate else f"{y - x:+.3g}", value=y - x)


def metrics_table(a: str, b: str, runs: Mapping[str, ReadRun]) -> Table | None:
    found = {name: (run.record or {}).get("metrics") or {} for name, run in runs.items()}
    common = [key for key in found[a] if key in found[b]]
    rows: list[Sequence[Value]] = [
        [key, found[a][key], found[b][key], _difference(found[a][key], found[b][key])] for key in common
    ]
    last = {name: ends(run)[1] for name, run in runs.items()}
    rows += [
        [f"final loss: {name}", x, last[b][name], _difference(x, last[b][name])]
        for name, x in last[a].items()
        if name in last[b]
    ]
    caption = "Metrics on test data; losses on validation data, or as the probe last saw them."
    return Table("Results", ["", a, b, "difference"], rows, caption) if rows else None


def facts_table(a: str, b: str, runs: Mapping[str, ReadRun]) -> Table | None:
    if not all(run.rows for run in runs.values()):
        return None
    mine, theirs = (diagnosis.facts_table(runs[name].rows) for name in (a, b))
    rows: list[Sequence[Value]] = [
        [label, x, y, _difference(x.value, y.value, "%" in x.text)]
        for (label, x), (_, y) in zip(mine, theirs, strict=True)
        if x.value is not None or y.value is not None
    ]
    return Table("Diagnosis", ["", a, b, "difference"], rows, "Means over the measured steps of each run.")


def cost_table(a: str, b: str, runs: Mapping[str, ReadRun]) -> Table | None:
    """Seconds of the run, and milliseconds of each room on a measured step."""
    found: dict[str, dict[str, float]] = {}
    for name, run in runs.items():
        cost = run.cost
        whole = {
            "training, s": cost.get("seconds"),
            "per step, ms": 1e3 * (cost.get("seconds_per_step") or 0.0) or None,
        }
        rooms = summary(run.rows)["seconds"] if run.rows else {}
        measured = {f"measured step: {room}, ms": x and 1e3 * x for room, x in rooms.items()}
        found[name] = {key: x for key, x in {**whole, **measured}.items() if x is not None}
    keys = list(dict.fromkeys([*found[a], *found[b]]))
    rows = [[k, found[a].get(k), found[b].get(k), _difference(found[a].get(k), found[b].get(k))] for k in keys]
    caption = "The probe is the diagnosis itself, and works on measured steps alone."
    return Table("Time", ["", a, b, "difference"], rows, caption) if rows else None


def loss_blocks(a: str, b: str, runs: Mapping[str, ReadRun]) -> list[Block]:
    """One panel per objective, and the paired difference over the run."""
    lines = {name: _losses(run) for name, run in runs.items()}
    if any(not x for x, _, _ in lines.values()) or len({axis for _, _, axis in lines.values()}) > 1:
        return ["The losses of the two cannot be put in one figure: one is of epochs, the other of steps."]
    axis = lines[a][2]
    names = [n for n in lines[a][1] if n in lines[b][1]]
    shown: list[Figure] = []
    gaps = []
    for k, name in enumerate(names):
        series = [Series(run, x, values[name], hue(i, 2)) for i, (run, (x, values, _)) in enumerate(lines.items())]
        shown += panels({name: series}, axis, "loss", height=280)
        other = dict(zip(lines[b][0], lines[b][1][name], strict=True))
        pairs = [(x, _ratio(y, other.get(x))) for x, y in zip(lines[a][0], lines[a][1][name], strict=True)]
        gaps.append(Series(name, [x for x, _ in pairs], [y for _, y in pairs], k, dash(k)))
    caption = f"Loss of {b} by that of {a}, less one, at the same {axis}: below zero {b} is ahead."
    paired = curves("Paired difference", gaps, axis, "relative", caption=caption, zero=True, log=False, height=300)
    return [Panels([paired, *shown])] if shown else []


def _losses(run: ReadRun) -> tuple[list[int], dict[str, list[float | None]], str]:
    if run.epochs:
        return [e["epoch"] for e in run.epochs], losses_by_epoch(run, "validation_losses"), "epoch"
    steps = diagnosis.steps_of(run.rows)
    return steps, {n: [row["losses"].get(n) for row in run.rows] for n in run.objectives}, "step"


def _ratio(x: float | None, y: float | None) -> float | None:
    return None if not x or y is None else y / x - 1.0


def configuration(a: str, b: str, runs: Mapping[str, ReadRun]) -> Table | None:
    configs: dict[str, dict[str, Any]] = {name: run.config for name, run in runs.items()}
    keys = list(dict.fromkeys([*configs[a], *configs[b]]))
    rows = [[key, str(configs[a].get(key, "")), str(configs[b].get(key, ""))] for key in keys]
    return Table("Both configurations", ["", a, b], rows) if rows else None
