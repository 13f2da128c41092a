"""All benchmarks at a glance: what MAdam gains over Adam and over the control, in one unit."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from statistics import fmean
from typing import Any

from madamoo.presentation import style
from madamoo.presentation.tables import Cell, Table, check_format, write_data, write_tables
from madamoo.significance import LEVEL, holm, t_p_value

from ..problems import Metric
from ..runs import Record, Say, canonical, to_stderr
from ..training import is_madam, metrics_of
from ._benchmarks import benchmarks_of
from ._table import rows, t_interval

MARGIN = 1.0  # in the unit of gains: per cent of the error, or points
BASELINES = {"over_adam": "Adam", "over_best": "the best other"}
TRAINING = (
    "Train loss: of the last epoch. Steps, seconds: to the highest final training loss of the seed's compared runs. "
    "All as a part of Adam's."
)


@dataclass(frozen=True)
class Gain:
    """Per cent of the error that is gone, mean over paired seeds, with its 95 % interval (None for a single seed)."""

    mean: float
    low: float | None
    high: float | None
    counted: bool = True  # False where neither of the two learned anything
    p_margin: float | None = None  # of gains at least as high, were their true mean a margin below zero

    @property
    def significant(self) -> int:
        """1 or -1 where the interval is above or below zero, else 0."""
        if self.low is None or self.high is None:
            return 0
        return (self.low > 0) - (self.high < 0)


@dataclass(frozen=True)
class CellSummary:
    """One solver on one benchmark, each optimizer at its own rate."""

    benchmark: str
    solver: str
    rate: str
    seeds: int
    over_adam: Gain | None
    over_control: Gain | None  # None under constant weights, where the control is MAdam itself
    paper: float | None  # the paper's gain over Adam
    moved: float | None  # part of the weight that changes hands in a step
    optimizer: str = "madam"
    best: str | None = None  # of all others but variants of MAdam, the best on validation data
    over_best: Gain | None = None
    train_loss: float | None = None  # MAdam's in the last epoch, and its steps and seconds to a target, over Adam's
    steps: float | None = None
    seconds: float | None = None
    doubts: tuple[str, ...] = ()  # optimizers whose best rate is at an end of those that were tried, or no best yet


def summarise(
    records: Sequence[Record],
    rate: str = "best",
    optimizer: str = "madam",
    own: Sequence[str] = (),
    say: Say = to_stderr,
) -> list[CellSummary]:
    """One cell per benchmark and solver with runs of Adam and MAdam on common seeds.

    Args:
        optimizer: the variant of MAdam that is compared.
        own: files of benchmarks that the user named; see :func:`benchmarks_of`.
        say: gets what is left out.
    """
    cells = []
    optimizer = canonical(optimizer)
    if optimizer != "madam":
        records = [_as_madam(record, optimizer) for record in records if record["config"]["optimizer"] != "madam"]
    for name, problem in benchmarks_of(records, own, say).items():
        validation = rows(records, problem, name=name, split="validation", say=lambda _: None)
        for row, judged in zip(rows(records, problem, name=name, say=say), validation, strict=True):
            if row["primary"] and row["rate"] == rate and row["adam"] is not None and row["madam"] is not None:
                metric = metrics_of(problem, row["solver"])[0]
                compare = partial(_gain, row, metric)
                best = _best_control(judged, metric)
                control = None if row["marginal_is_madam"] or row["marginal"] is None else compare("marginal")
                paper = row["paper"] and metric.relative(row["paper"]["madam"][0], row["paper"]["adam"][0])
                cells.append(
                    CellSummary(
                        benchmark=name,
                        solver=row["solver"],
                        rate=rate,
                        seeds=len(row["seeds"]),
                        over_adam=compare("adam"),
                        over_control=control,
                        paper=paper if paper is not None and math.isfinite(paper) else None,
                        moved=_moved(records, name, row["solver"]),
                        optimizer=optimizer,
                        best=best,
                        over_best=compare(best),
                        train_loss=_ratio(row, "loss"),
                        steps=_ratio(row, "steps"),
                        seconds=_ratio(row, "seconds"),
                        doubts=tuple(n for n in dict.fromkeys(("adam", "madam", best)) if row["doubts"].get(n)),
                    )
                )
    return cells


def _per_seed(row: dict[str, Any], optimizer: str) -> dict[str, float]:
    return (row["others"].get(optimizer) or {"per_seed": row["per_seed"].get(optimizer, {})})["per_seed"]


def _best_control(row: dict[str, Any], metric: Metric) -> str:
    """Of those that have all seeds of the row, Adam among them."""
    seeds = [str(seed) for seed in row["seeds"]]
    others = [name for name in row["others"] if not is_madam(name)]
    known = ["adam", *(["marginal"] if row["marginal"] is not None and not row["marginal_is_madam"] else []), *others]
    found = {name: _per_seed(row, name) for name in known}
    means = {name: fmean(v[seed] for seed in seeds) for name, v in found.items() if all(seed in v for seed in seeds)}
    return (max if metric.higher_is_better else min)(means, key=means.__getitem__)


def _ratio(row: dict[str, Any], what: str) -> float | None:
    adam, madam = (row["training"].get(name, {}).get(what) for name in ("adam", "madam"))
    return madam / adam if adam and madam is not None and math.isfinite(adam) else None


def _as_madam(record: Record, optimizer: str) -> Record:
    if record["config"]["optimizer"] != optimizer:
        return record
    return {**record, "config": {**record["config"], "optimizer": "madam"}}


def _gain(row: dict[str, Any], metric: Metric, baseline: str) -> Gain | None:
    mine, other = row["per_seed"]["madam"], _per_seed(row, baseline)
    gains = [metric.relative(mine[seed], other[seed]) for seed in mine]
    found: Any = t_interval(gains)
    if found is None:
        return None
    counted = metric.counts(row["madam"], fmean(other[seed] for seed in mine))
    known = len(gains) > 1 and all(map(math.isfinite, gains))
    return Gain(**found, counted=counted, p_margin=t_p_value(gains, -MARGIN) if known else None)


def _moved(records: Sequence[Record], benchmark: str, solver: str) -> float | None:
    found = [
        record["weights_moved"]
        for record in records
        if (record["config"]["benchmark"], record["config"]["solver"]) == (benchmark, solver)
        and record.get("weights_moved") is not None
    ]
    return fmean(found) if found else None


def counts(gains: Sequence[Gain | None]) -> dict[str, Any]:
    """Of how many comparisons that count, how many were won, lost, and lost beyond chance; and the mean gain."""
    known = [gain for gain in gains if gain is not None and gain.counted]
    return {
        "cells": len(known),
        "at_least_as_good": sum(gain.mean >= 0 for gain in known),
        "significantly_better": sum(gain.significant > 0 for gain in known),
        "significantly_worse": sum(gain.significant < 0 for gain in known),
        "mean_gain": fmean(gain.mean for gain in known) if known else None,
    }


def render_summary(cells: Sequence[CellSummary], format: str = "text") -> str:
    """One line per cell, and below what it comes to."""
    check_format(format)
    if format in ("csv", "json"):
        return write_data([asdict(cell) for cell in cells], format)
    columns: dict[str, Callable[[CellSummary], Cell]] = {
        "benchmark": lambda cell: Cell(cell.benchmark),
        "solver": lambda cell: Cell(cell.solver),
        "over Adam": lambda cell: _cell(cell.over_adam),
        "over control": lambda cell: _cell(cell.over_control),
        "over the best other": lambda cell: Cell("") if cell.best == "adam" else _cell(cell.over_best),
        "which": lambda cell: Cell("" if cell.best in (None, "adam") else str(cell.best)),
        "paper": lambda cell: Cell("" if cell.paper is None else f"{cell.paper:+.1f}"),
        "train loss": lambda cell: Cell("" if cell.train_loss is None else f"{cell.train_loss:.2g}"),
        "steps": lambda cell: Cell(_part(cell.steps)),
        "seconds": lambda cell: Cell(_part(cell.seconds)),
        "weights moved": lambda cell: Cell("" if cell.moved is None else f"{cell.moved:.3f}"),
        "seeds": lambda cell: Cell(str(cell.seeds)),
    }
    lines = [{heading: cell(found) for heading, cell in columns.items()} for found in cells]
    header = [heading for heading in columns if any(line[heading].text for line in lines)] or list(columns)
    body = tuple(tuple(line[heading] for heading in header) for line in lines)
    title = "No cells"
    if cells:
        name = style.optimizer_name(cells[0].optimizer)
        title = f"What {name} gains, in per cent of the error: {style.RATES[cells[0].rate]}"
    idle = any(gain is not None and not gain.counted for cell in cells for gain in (cell.over_adam, cell.over_control))
    notes = [
        in_words("Adam", counts([cell.over_adam for cell in cells])),
        in_words("the control (marginal)", counts([cell.over_control for cell in cells])),
        *(words for baseline in BASELINES if (words := margin_in_words(cells, baseline))),
        *([words] if (words := _doubts_in_words(cells)) else []),
        "Mean over paired seeds with its 95 % t-interval; marked where the interval does not hold zero. "
        "Weights moved: the part of the solver's total weight that changes hands from one step to the next.",
        *([TRAINING] if any(cell.train_loss is not None for cell in cells) else []),
        *(
            ["In brackets, and not counted: neither of the two learned anything (errors of 0.9 or more)."]
            if idle
            else []
        ),
    ]
    return write_tables([Table(title, header, body)], notes, format)


def _part(ratio: float | None) -> str:
    return "" if ratio is None else "never" if math.isinf(ratio) else f"{ratio:.2f}"


def margin_in_words(cells: Sequence[CellSummary], baseline: str) -> str:
    """In how many cells MAdam is shown to be not worse than the baseline by more than the margin; empty if in none."""
    gains = [(cell, getattr(cell, baseline)) for cell in cells]
    found = [(cell, gain.p_margin) for cell, gain in gains if gain is not None and gain.counted]
    if not any(p is not None for _, p in found):
        return ""
    shown = sum(verdict.rejected for verdict in holm([p for _, p in found]))
    worse = holm([None if p is None else 1.0 - p for _, p in found])
    names = [f"{cell.benchmark} {cell.solver}" for (cell, _), one in zip(found, worse, strict=True) if one.rejected]
    return (
        f"Not worse than {BASELINES[baseline]} by more than {MARGIN:g} %: shown in {shown} of {len(found)} cells; "
        f"worse by more than that: {', '.join(names) or 'shown in none'} (one-sided t-tests over paired seeds, either "
        f"family at {100 * LEVEL:g} % by Holm's correction)."
    )


def _doubts_in_words(cells: Sequence[CellSummary]) -> str:
    """In which cells a compared optimizer may have a better rate than the one it is shown at; empty if in none."""
    found = [cell for cell in cells if cell.doubts]
    if not found:
        return ""
    named = "; ".join(f"{cell.benchmark} {cell.solver} ({', '.join(cell.doubts)})" for cell in found)
    return (
        f"In {len(found)} of {len(cells)} cells a rate is the lowest or the highest that was tried, or another looks "
        f"better on fewer seeds (`madamoo table` says which), so that a better one may lie beyond: {named}."
    )


def _cell(gain: Gain | None) -> Cell:
    if gain is None:
        return Cell("")
    text = style.interval(gain.mean, gain.low, gain.high)
    return Cell(text, gain.significant != 0) if gain.counted else Cell(f"({text})")


def in_words(baseline: str, found: dict[str, Any]) -> str:
    if not found["cells"]:
        return f"Against {baseline}: nothing to compare."
    return (
        f"Against {baseline}: at least as good in {found['at_least_as_good']} of {found['cells']} cells, significantly "
        f"better in {found['significantly_better']}, significantly worse in {found['significantly_worse']}; "
        f"mean gain {found['mean_gain']:+.1f} %."
    )
