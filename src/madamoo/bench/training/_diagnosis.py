"""A run's diagnosis: a probe that writes ``diagnostics.jsonl`` into the run's folder and changes nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from madamoo import MultiObjective, PreferenceMetric, diagnostics

from ..runs import DIAGNOSTICS, Row, append_row, read_rows, write_rows
from ._loop import Training

ROWS = 100  # at most: a measured step costs several others, and all of them cost less than a few hundred steps


def attach(
    training: Training, sink: Path | Callable[[Row], Any], state: Mapping[str, Any] | None = None
) -> diagnostics.Probe | None:
    """A probe on the run's optimizer, or None if that has no single direction.

    Args:
        sink: the run's folder, or a function of a row. In a folder, rows of steps that come again are dropped.
        state: the probe's, from the checkpoint that the run goes on from.
    """
    opt = training.optimizer
    if not isinstance(opt, MultiObjective):
        return None
    if isinstance(sink, Path):
        _cut(sink / DIAGNOSTICS, training.step)
        sink = partial(append_row, sink / DIAGNOSTICS)
    write = sink
    names = training.benchmark.objectives
    probe = diagnostics.attach(
        opt,
        every=-(-training.total_steps // ROWS),
        sinks=lambda row: write(_named(row, names)),
        exact=True,
        shadow=_shadow(opt, training.config.seed),
        keep=1,
        start=training.step,
    )
    if state is not None:
        probe.load_state_dict(state)
    return probe


def _shadow(opt: MultiObjective, seed: int) -> PreferenceMetric | None:
    """What the metric would do under plain Adam, where that takes no backward pass more than the run makes anyway."""
    free = opt.metric is None and (opt.solver.static or opt.solver.needs_gram)
    return PreferenceMetric(seed=seed) if free else None


def _named(value: Any, names: tuple[str, ...]) -> Any:
    """A row with the benchmark's names in place of the numbers of its objectives."""
    own = {str(i): name for i, name in enumerate(names)} if len(set(names)) == len(names) else {}

    def rename(value: Any) -> Any:
        if isinstance(value, dict):
            return {own.get(key, key): rename(x) for key, x in value.items()}
        return value

    return {**rename(value), "objectives": [own.get(name, name) for name in value["objectives"]]}


def _cut(path: Path, step: int) -> None:
    """Keep the rows of the steps before ``step``; a killed run may have left later ones, and part of a line."""
    if path.exists():
        write_rows(path, [row for row in read_rows(path).rows if _step(row) < step])


def _step(row: Row) -> float:
    step = row.get("step")
    return step if isinstance(step, int) else float("inf")
