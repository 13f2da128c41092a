"""The page of a folder of runs: what MAdam gains, the table of runs, their loss curves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from madamoo import diagnostics
from madamoo.bench.analysis import CellSummary, Gain, counts, in_words, summarise
from madamoo.presentation.page import Block, Notes, Page, Panels, Points, Section, Verdict
from madamoo.presentation.plots import Figure, Group, Series, curves, dots, panels
from madamoo.presentation.style import HUES, RATES, counted, interval, listed, optimizer_name, percent
from madamoo.presentation.tables import Cell, Table, Value, number

from . import diagnosis
from .gallery import gallery
from .reading import ReadRun, Source
from .single import front_blocks
from .words import about_folder

PANELS = 12  # figures of loss curves at most
FRONTS = 6
PLANE = ("psnr", "lpips")  # distortion and perception


def page_of(source: Source, own: Sequence[str] = ()) -> Page:
    records = [run.record for run in source.runs if run.record is not None]
    name = source.path.resolve().name
    if not records:
        return Page(name, f"{counted(len(source.runs), 'diagnosed run')}.", _of_probes(source))
    found = Gains(records, own)
    notes = [*source.notes, *found.problems]
    intro: list[Block] = [about_folder(records), *([Points(found.findings)] if found.findings else [])]
    if notes:
        intro.append(Notes(notes))
    intro.append(found.verdict())
    lead = f"{counted(len(records), 'run')} that ended."
    return Page(
        name,
        lead,
        [
            Section("Summary", intro),
            Section("Gains", found.blocks),
            Section("Solutions", gallery(source.runs, own)),
            Section("Runs", run_tables(records)),
            Section("Losses", loss_blocks(records)),
            Section("Perception and distortion", plane_blocks(records)),
            Section("Pareto fronts", fronts(source.runs, own)),
            Section("Diagnosis", _some(diagnosis_table(source.runs))),
        ],
    )


def _some(table: Table | None) -> list[Block]:
    return [] if table is None else [table]


def _of_probes(source: Source) -> list[Section]:
    """Several records of probes, and no lab."""
    notes = [*source.notes, *(f"{run.name}: {note}" for run in source.runs for note in run.notes)]
    shown: list[Figure] = []
    for name in list(dict.fromkeys(n for run in source.runs for n in run.objectives))[:PANELS]:
        series = [
            Series(run.name, diagnosis.steps_of(run.rows), [row["losses"].get(name) for row in run.rows], k)
            for k, run in enumerate(source.runs)
            if name in run.objectives
        ]
        shown += panels({name: series}, "step", "loss", height=280)
    return [
        Section(
            "Summary",
            [*_some(diagnosis_table(source.runs)), *([Notes(notes)] if notes else []), _verdict_of_probes(source.runs)],
        ),
        Section("Losses", [Panels(shown)]),
    ]


def _verdict_of_probes(runs: Sequence[ReadRun]) -> Verdict:
    """Which run's steps keep most of what their directions promise; advice with the runs that it is for."""
    facts = {run.name: diagnostics.summary(run.rows) for run in runs}
    rates = {name: f["flip_rates"]["realised"] for name, f in facts.items()}
    known = {name: rate for name, rate in rates.items() if rate is not None}
    text = "Nothing is known of the steps that were taken."
    if known:
        low, high = min(known, key=lambda n: known[n]), max(known, key=lambda n: known[n])
        text = (
            f"Of the improvements that the direction promises, the steps of {low} flip fewest ({percent(known[low])}), "
            f"those of {high} most ({percent(known[high])})."
        )
    advice: dict[str, list[str]] = {}
    for name, found in facts.items():
        for line in diagnostics.verdict(found)[1]:
            advice.setdefault(line, []).append(name)
    return Verdict(text, [f"{line} ({listed(names)})" for line, names in advice.items()])


class Gains:
    """What MAdam gains: figures and tables, the same in words, and of what nothing can be said."""

    def __init__(self, records: Sequence[dict[str, Any]], own: Sequence[str]) -> None:
        self.blocks: list[Block] = []
        self.findings: list[str] = []
        self.problems: list[str] = []
        self.counts: dict[str, dict[str, Any]] = {}  # by baseline, each at its best rate
        for rate in ("best", "equal"):
            cells = summarise(records, rate, own=own, say=self.problems.append)
            if cells:
                self._add(cells, rate)
        self.problems = list(dict.fromkeys(self.problems))

    def _add(self, cells: Sequence[CellSummary], rate: str) -> None:
        baselines = {"Adam": [c.over_adam for c in cells], "control": [c.over_control for c in cells]}
        for name, found in baselines.items():
            said = "the control (marginal)" if name == "control" else name
            summed = counts(found)
            if summed["cells"]:
                self.findings.append(f"{RATES[rate].capitalize()}. {in_words(said, summed)}")
                self.counts.setdefault(name, summed)
        several = len({c.benchmark for c in cells}) > 1
        names = [f"{c.benchmark}, {c.solver}" if several else c.solver for c in cells]
        groups = [Group.of_intervals(f"over {name}", k, found) for k, (name, found) in enumerate(baselines.items())]
        caption = f"Mean over paired seeds with its 95 % interval, {RATES[rate]}."
        heading = "Per cent of the error that is gone with MAdam"
        self.blocks.append(dots(heading, groups, names, "per cent", caption=caption, zero=True))
        rows: list[Sequence[Value]] = [
            [name, _gain(c.over_adam), _gain(c.over_control), *_trained(c), number(c.moved, ".3f"), c.seeds]
            for name, c in zip(names, cells, strict=True)
        ]
        parts = [f"{what} / Adam's" for what in ("train loss", "steps", "seconds")]
        header = ["solver", "over Adam, %", "over control, %", *parts, "weights moved", "seeds"]
        self.blocks.append(Table(f"Gains, {RATES[rate]}", header, rows, caption))

    def verdict(self) -> Verdict:
        """Whether MAdam pays here, and whether the preference is the reason."""
        adam, control = self.counts.get("Adam"), self.counts.get("control")
        if adam is None:
            advice = "Run Adam and MAdam with the same solver on the same seeds to have them compared."
            return Verdict("There are no pairs of Adam and MAdam to compare.", [advice])
        text = f"MAdam is {_judged(adam)} Adam (mean gain {adam['mean_gain']:+.1f} %)"
        if control is None:
            return Verdict(f"{text}.", ["Run the control too (--optimizers adam,madam,marginal): only what beats it is "
                                        "due to the preference."])  # fmt: skip
        text += f", and {_judged(control)} the control (mean gain {control['mean_gain']:+.1f} %)."
        if adam["significantly_better"] and not control["significantly_better"]:
            text += " What it gains over Adam the control gains too: it is not due to the preference."
            return Verdict(text, ["Take the control, which needs one backward pass per step, unless weights jump."])
        if not adam["significantly_better"] and not adam["significantly_worse"]:
            return Verdict(text, ["More seeds would tell more: none of the differences to Adam is beyond chance."])
        return Verdict(text, ["Choose solver by solver: take MAdam where both intervals below are above zero."])


def _trained(cell: CellSummary) -> list[Value]:
    """The final training loss, and steps and seconds to a target that all reach, as parts of Adam's."""
    parts = {".2g": [cell.train_loss], ".2f": [cell.steps, cell.seconds]}
    return [
        number(part if part is not None and math.isfinite(part) else None, form)
        for form, found in parts.items()
        for part in found
    ]


def _judged(counts: Mapping[str, Any]) -> str:
    better, worse = counts["significantly_better"], counts["significantly_worse"]
    if better and not worse:
        return f"beyond chance better in {better} of {counted(counts['cells'], 'cell')} than"
    if worse and not better:
        return f"beyond chance worse in {worse} of {counted(counts['cells'], 'cell')} than"
    if better and worse:
        return f"beyond chance better in {better} and worse in {worse} of {counted(counts['cells'], 'cell')} than"
    return "level within chance with"


def _gain(gain: Gain | None) -> Cell:
    return Cell("") if gain is None else Cell(interval(gain.mean, gain.low, gain.high), value=gain.mean)


def run_tables(records: Sequence[Mapping[str, Any]]) -> list[Block]:
    """One table per benchmark, one row per run."""
    blocks: list[Block] = []
    for name in sorted({record["config"]["benchmark"] for record in records}):
        mine = [record for record in records if record["config"]["benchmark"] == name]
        metrics = list(dict.fromkeys(key for record in mine for key in record["metrics"] or ()))[:6]
        header = ["solver", "optimizer", "rate", "seed", "status", *metrics, "validation loss", "seconds", "steps"]
        rows: list[Sequence[Value]] = []
        for record in mine:
            c, cost = record["config"], record.get("cost") or {}
            found = record["metrics"] or {}
            rows.append(
                [
                    c["solver"],
                    optimizer_name(c["optimizer"]),
                    number(c["lr"], "g"),
                    c["seed"],
                    record["status"],
                    *(found.get(key) for key in metrics),
                    record.get("validation_loss"),
                    number(cost.get("seconds"), ".1f"),
                    record.get("steps"),
                ]
            )
        blocks.append(Table(name, header, rows, "Metrics on test data. A click on a header sorts by it."))
    return blocks


def loss_blocks(records: Sequence[Mapping[str, Any]]) -> list[Block]:
    """A panel per benchmark and solver, those of a benchmark on one scale; a line per run, coloured by optimizer."""
    cells: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for record in records:
        if (record.get("cost") or {}).get("curve"):
            cells.setdefault((record["config"]["benchmark"], record["config"]["solver"]), []).append(record)
    optimizers = list(dict.fromkeys(r["config"]["optimizer"] for some in cells.values() for r in some))
    several = len({benchmark for benchmark, _ in cells}) > 1
    groups: dict[tuple[str, bool], dict[str, list[Series]]] = {}
    for (benchmark, solver), some in list(cells.items())[:PANELS]:
        by_epoch = all(len(r["cost"]["curve"]) == r["config"]["epochs"] for r in some if r["status"] == "finished")
        series: list[Series] = []
        for optimizer in dict.fromkeys(record["config"]["optimizer"] for record in some):
            found = [r["cost"]["curve"] for r in some if r["config"]["optimizer"] == optimizer]
            name = optimizer_name(optimizer)
            series += _lines(name, HUES.get(name, 3 + optimizers.index(optimizer)), found, by_epoch)
        groups.setdefault((benchmark, by_epoch), {})[f"{benchmark}: {solver}" if several else solver] = series
    shown = [
        figure
        for (_, by_epoch), parts in groups.items()
        for figure in panels(parts, "epoch" if by_epoch else "seconds of training", "validation loss", height=300)
    ]
    if not shown:
        return []
    left = len(cells) - len(shown)
    more = (
        [f"{counted(left, 'more panel')} would not fit here: report on a part of the folder to see them."]
        if left
        else []
    )
    text = (
        "Mean validation loss, one line per run; the strong line is the median of an optimizer's runs, at whatever "
        "rate. The panels of a benchmark have one scale."
    )
    return [text, Panels(shown), *more]


def _lines(name: str, hue: int, found: Sequence[Sequence[Sequence[float | None]]], by_epoch: bool) -> list[Series]:
    """The runs of an optimizer: faint with their median, where there are several and their epochs are known."""
    median_of = by_epoch and len(found) > 2
    look: dict[str, Any] = {"width": 0.8, "opacity": 0.3} if median_of else {"width": 1.1, "opacity": 0.8}
    series = [
        Series(
            name,
            list(range(1, len(curve) + 1)) if by_epoch else [x for x, _ in curve],
            [y for _, y in curve],
            hue,
            listed=k == 0 and not median_of,
            **look,
        )
        for k, curve in enumerate(found)
    ]
    if median_of:
        epochs = list(range(max(len(curve) for curve in found)))
        at = [[c[e][1] for c in found if e < len(c)] for e in epochs]
        known = [[y for y in values if y is not None] for values in at]
        middle = [median(values) if values else None for values in known]
        series.append(Series(name, [e + 1 for e in epochs], middle, hue, width=2.2))
    return series


def plane_blocks(records: Sequence[Mapping[str, Any]]) -> list[Block]:
    """The perception-distortion plane of each benchmark that has both metrics: one dot per run."""
    blocks: list[Block] = []
    for name in sorted({record["config"]["benchmark"] for record in records}):
        groups: dict[str, list[tuple[float, float]]] = {}
        for record in records:
            c, metrics = record["config"], record["metrics"] or {}
            if c["benchmark"] == name and all(metrics.get(key) is not None for key in PLANE):
                label = f"{c['solver']}, {optimizer_name(c['optimizer'])}"
                groups.setdefault(label, []).append((metrics[PLANE[0]], metrics[PLANE[1]]))
        if groups:
            series = [
                Series(label, [x for x, _ in points], [y for _, y in points], k, mode="markers")
                for k, (label, points) in enumerate(sorted(groups.items()))
            ]
            caption = "Test data, one dot per run. Faithful to the right, natural below: to the lower right is better."
            figure = curves(name, series, "PSNR, dB", "LPIPS", caption=caption, log=False, height=420)
            axis = {key: value for key, value in figure.layout["xaxis"].items() if key != "rangemode"}
            blocks.append(figure.with_layout(xaxis=axis))
    return blocks


def fronts(runs: Sequence[ReadRun], own: Sequence[str]) -> list[Block]:
    """Fronts by benchmark: those of the first seed, and not too many."""
    blocks: list[Block] = []
    found = [run for run in runs if run.record is not None and run.record.get("front")]
    for name in sorted({run.config["benchmark"] for run in found}):
        mine = [run for run in found if run.config["benchmark"] == name]
        seed = min(run.config["seed"] for run in mine)
        shown = [run for run in mine if run.config["seed"] == seed][:FRONTS]
        if len(shown) < len(mine):
            blocks.append(f"{name}: {len(shown)} of {counted(len(mine), 'front')}, all of seed {seed}.")
        blocks += [block for block in front_blocks(shown, own) if not isinstance(block, Table)]
    return blocks


def diagnosis_table(runs: Sequence[ReadRun]) -> Table | None:
    """One row per run that was diagnosed."""
    found = [(run.name, diagnosis.facts_table(run.rows)) for run in runs if run.rows]
    if not found:
        return None
    known = [k for k in range(len(found[0][1])) if any(facts[k][1].value is not None for _, facts in found)]
    header = ["run", *(found[0][1][k][0] for k in known)]
    rows: list[list[Value]] = [[name, *(facts[k][1] for k in known)] for name, facts in found]
    return Table("What the metrics did", header, rows, "Means over the measured steps of each run.")
