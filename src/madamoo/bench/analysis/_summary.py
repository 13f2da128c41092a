"""All benchmarks at a glance: what MAdam gains over Adam and over the control, in one unit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from statistics import fmean
from typing import Any

from madamoo.presentation import style
from madamoo.presentation.tables import Cell, Table, check_format, write_data, write_tables

from ..problems import Metric
from ..runs import Record, Say, canonical, to_stderr
from ..training import metrics_of
from ._benchmarks import benchmarks_of
from ._table import rows, t_interval


@dataclass(frozen=True)
class Gain:
    """Per cent of the error that is gone, mean over paired seeds, with its 95 % interval (None for a single seed)."""

    mean: float
    low: float | None
    high: float | None
    counted: bool = True  # False where neither of the two learned anything

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
        for row in rows(records, problem, name=name, say=say):
            if row["primary"] and row["rate"] == rate and row["adam"] is not None and row["madam"] is not None:
                metric = metrics_of(problem, row["solver"])[0]
                compare = partial(_gain, row, metric)
                control = None if row["marginal_is_madam"] or row["marginal"] is None else compare("marginal")
                paper = row["paper"] and metric.relative(row["paper"]["madam"][0], row["paper"]["adam"][0])
                paper = paper if paper is not None and math.isfinite(paper) else None
                moved = _moved(records, name, row["solver"])
                seeds = len(row["seeds"])
                found = CellSummary(name, row["solver"], rate, seeds, compare("adam"), control, paper, moved, optimizer)
                cells.append(found)
    return cells


def _as_madam(record: Record, optimizer: str) -> Record:
    if record["config"]["optimizer"] != optimizer:
        return record
    return {**record, "config": {**record["config"], "optimizer": "madam"}}


def _gain(row: dict[str, Any], metric: Metric, baseline: str) -> Gain | None:
    mine, other = row["per_seed"]["madam"], row["per_seed"][baseline]
    found: Any = t_interval([metric.relative(mine[seed], other[seed]) for seed in mine])
    return None if found is None else Gain(**found, counted=metric.counts(row["madam"], row[baseline]))


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
    header = ("benchmark", "solver", "over Adam", "over control", "paper", "weights moved", "seeds")
    body = [
        (
            Cell(cell.benchmark),
            Cell(cell.solver),
            _cell(cell.over_adam),
            _cell(cell.over_control),
            Cell("" if cell.paper is None else f"{cell.paper:+.1f}"),
            Cell("" if cell.moved is None else f"{cell.moved:.3f}"),
            Cell(str(cell.seeds)),
        )
        for cell in cells
    ]
    title = "No cells"
    if cells:
        variant = cells[0].optimizer.removeprefix("madam").removeprefix(":")
        name = f"MAdam ({variant})" if variant else "MAdam"
        title = f"What {name} gains, in per cent of the error: {style.RATES[cells[0].rate]}"
    idle = any(gain is not None and not gain.counted for cell in cells for gain in (cell.over_adam, cell.over_control))
    notes = [
        in_words("Adam", counts([cell.over_adam for cell in cells])),
        in_words("the control (marginal)", counts([cell.over_control for cell in cells])),
        "Mean over paired seeds with its 95 % t-interval; marked where the interval does not hold zero. "
        "Weights moved: the part of the solver's total weight that changes hands from one step to the next.",
        *(
            ["In brackets, and not counted: neither of the two learned anything (errors of 0.9 or more)."]
            if idle
            else []
        ),
    ]
    return write_tables([Table(title, header, tuple(body))], notes, format)


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
