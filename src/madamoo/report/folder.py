"""The page of a folder of runs: what MAdam gains, the table of runs, their loss curves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from statistics import median
from typing import Any

from . import diagnosis
from .figures import Series, curves, dots
from .page import Block, Figure, Notes, Number, Page, Panels, Points, Section, Table, Value
from .reading import Run, Source
from .single import front_blocks
from .words import about_folder, count, optimizer_name

PANELS = 12  # figures of loss curves at most
FRONTS = 6
COLOURS = {"adam": 1, "marginal": 2, "madam": 0}


def page_of(source: Source) -> Page:
    records = [run.record for run in source.runs if run.record is not None]
    name = source.path.resolve().name
    if not records:
        return Page(name, f"{count(len(source.runs), 'diagnosed run')}.", _of_probes(source))
    gains, findings, problems = gain_blocks(records)
    notes = [*source.notes, *problems]
    intro: list[Block] = [about_folder(records), *([Points(findings)] if findings else [])]
    if notes:
        intro.append(Notes(notes))
    lead = f"{count(len(records), 'run')} that ended."
    return Page(
        name,
        lead,
        [
            Section("Summary", intro),
            Section("Gains", gains),
            Section("Runs", run_tables(records)),
            Section("Losses", loss_blocks(records)),
            Section("Pareto fronts", fronts(source.runs)),
            Section("Diagnosis", _some(diagnosis_table(source.runs))),
        ],
    )


def _some(table: Table | None) -> list[Block]:
    return [] if table is None else [table]


def _of_probes(source: Source) -> list[Section]:
    """Several records of probes, and no lab."""
    notes = [*source.notes, *(f"{run.name}: {note}" for run in source.runs for note in run.notes)]
    panels = []
    for name in list(dict.fromkeys(n for run in source.runs for n in run.objectives))[:PANELS]:
        series = [
            Series(run.name, diagnosis.steps_of(run.rows), [row["losses"].get(name) for row in run.rows], k)
            for k, run in enumerate(source.runs)
            if name in run.objectives
        ]
        panels.append(curves(name, series, "step", "loss", height=280))
    return [
        Section("Summary", [*_some(diagnosis_table(source.runs)), *([Notes(notes)] if notes else [])]),
        Section("Losses", [Panels(panels)]),
    ]


def gain_blocks(records: Sequence[Mapping[str, Any]]) -> tuple[list[Block], list[str], list[str]]:
    """Figure and table of what MAdam gains; the same in words; and of what nothing can be said."""
    from madamoo.bench._render import TITLES
    from madamoo.bench.analysis import counts, in_words, summarise

    blocks: list[Block] = []
    findings: list[str] = []
    problems: list[str] = []
    by_benchmark: dict[str, list[Any]] = {}
    for record in records:
        by_benchmark.setdefault(record["config"]["benchmark"], []).append(record)
    for rate in ("best", "equal"):
        cells = []
        for name, some in by_benchmark.items():
            with told(problems, f"no gains on {name}"):
                cells += summarise(some, rate)
        if not cells:
            continue
        baselines = (("Adam", [c.over_adam for c in cells]), ("Adam twice", [c.over_control for c in cells]))
        findings += [f"{TITLES[rate].capitalize()}. {in_words(name, counts(g))}" for name, g in baselines if any(g)]
        names = [f"{c.benchmark}, {c.solver}" if len(by_benchmark) > 1 else c.solver for c in cells]
        groups = [
            (f"over {name}", k, [None if g is None else g.mean for g in found])
            for k, (name, found) in enumerate(baselines)
        ]
        spans = [[None if g is None else (g.low, g.high) for g in found] for _, found in baselines]
        caption = f"Mean over paired seeds with its 95 % interval, {TITLES[rate]}."
        heading = "Per cent of the error that is gone with MAdam"
        blocks.append(dots(heading, groups, names, "per cent", caption=caption, spans=spans, zero=True))
        rows: list[Sequence[Value]] = [
            [name, _gain(c.over_adam), _gain(c.over_control), _moved(c.moved), c.seeds]
            for name, c in zip(names, cells, strict=True)
        ]
        header = ["solver", "over Adam, %", "over Adam twice, %", "weights moved", "seeds"]
        blocks.append(Table(f"Gains, {TITLES[rate]}", header, rows, caption))
    return blocks, findings, list(dict.fromkeys(problems))


@contextmanager
def told(problems: list[str], what: str) -> Iterator[None]:
    """A benchmark that cannot be summarised, a user's file that is gone, say, does not cost the page."""
    try:
        yield
    except (ValueError, OSError, KeyError, ZeroDivisionError) as error:
        problems.append(f"{what}: {error}")


def _gain(gain: Any) -> Number:
    if gain is None:
        return Number(None, "")
    spread = "" if gain.low is None else f" [{gain.low:+.1f}, {gain.high:+.1f}]"
    return Number(gain.mean, f"{gain.mean:+.1f}{spread}")


def _moved(value: float | None) -> Number:
    return Number(value, "" if value is None else f"{value:.3f}")


def run_tables(records: Sequence[Mapping[str, Any]]) -> list[Block]:
    """A table a benchmark, a line a run."""
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
                    c["optimizer"],
                    Number(c["lr"], f"{c['lr']:g}"),
                    c["seed"],
                    record["status"],
                    *(found.get(key) for key in metrics),
                    record.get("validation_loss"),
                    Number(cost.get("seconds"), "" if cost.get("seconds") is None else f"{cost['seconds']:.1f}"),
                    record.get("steps"),
                ]
            )
        blocks.append(Table(name, header, rows, "Metrics on test data. A click on a header sorts by it."))
    return blocks


def loss_blocks(records: Sequence[Mapping[str, Any]]) -> list[Block]:
    """A panel for each benchmark and solver; a line a run, in the colour of its optimizer."""
    cells: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for record in records:
        if (record.get("cost") or {}).get("curve"):
            cells.setdefault((record["config"]["benchmark"], record["config"]["solver"]), []).append(record)
    panels: list[Figure] = []
    benchmarks = {benchmark for benchmark, _ in cells}
    optimizers = list(dict.fromkeys(r["config"]["optimizer"] for some in cells.values() for r in some))
    for (benchmark, solver), some in list(cells.items())[:PANELS]:
        by_epoch = all(len(r["cost"]["curve"]) == r["config"]["epochs"] for r in some if r["status"] == "finished")
        series: list[Series] = []
        for optimizer in dict.fromkeys(record["config"]["optimizer"] for record in some):
            found = [r["cost"]["curve"] for r in some if r["config"]["optimizer"] == optimizer]
            hue = COLOURS.get(optimizer, 3 + optimizers.index(optimizer))
            series += _lines(optimizer_name(optimizer), hue, found, by_epoch)
        heading = f"{benchmark}: {solver}" if len(benchmarks) > 1 else solver
        axis = "epoch" if by_epoch else "seconds of training"
        panels.append(curves(heading, series, axis, "validation loss", height=300))
    if not panels:
        return []
    left = len(cells) - len(panels)
    more = (
        [f"{count(left, 'more panel')} would not fit here: report on a part of the folder to see them."] if left else []
    )
    text = "Mean validation loss, a line a run; the strong line is the median of an optimizer's runs, at whatever rate."
    return [text, Panels(panels), *more]


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


def fronts(runs: Sequence[Run]) -> list[Block]:
    """Fronts by benchmark: those of the first seed, and not too many."""
    blocks: list[Block] = []
    found = [run for run in runs if run.record is not None and run.record.get("front")]
    for name in sorted({run.config["benchmark"] for run in found}):
        mine = [run for run in found if run.config["benchmark"] == name]
        seed = min(run.config["seed"] for run in mine)
        shown = [run for run in mine if run.config["seed"] == seed][:FRONTS]
        if len(shown) < len(mine):
            blocks.append(f"{name}: {len(shown)} of {count(len(mine), 'front')}, all of seed {seed}.")
        blocks += front_blocks(shown)[:1]
    return blocks


def diagnosis_table(runs: Sequence[Run]) -> Table | None:
    """A line a run that was diagnosed."""
    found = [(run.name, diagnosis.facts_table(run.rows)) for run in runs if run.rows]
    if not found:
        return None
    known = [k for k in range(len(found[0][1])) if any(facts[k][1].value is not None for _, facts in found)]
    header = ["run", *(found[0][1][k][0] for k in known)]
    rows: list[list[Value]] = [[name, *(facts[k][1] for k in known)] for name, facts in found]
    return Table("What the metrics did", header, rows, "Means over the measured steps of each run.")
