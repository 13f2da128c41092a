"""The metric by itself, beside torch's fused Adam and a copy of the bytes that it must move."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from timing import Step, mean_times, peak_bytes, tensor_bytes
from torch import Tensor

from madamoo import PreferenceMetric
from madamoo.direction import Direction
from madamoo.gradients import Block, Layout

MOST_BYTES = 6e9
SIZES = (100_000, 1_000_000, 10_000_000, 30_000_000)
COUNTS = (2, 7, 20, 40)
BETA = 0.999


@dataclass(frozen=True)
class Case:
    estimator: str
    count: int
    size: int

    @property
    def averages(self) -> int:
        return 1 if self.estimator == "collapsed" else self.count * (self.count + 1) // 2

    @property
    def bytes(self) -> float:
        """Of averages and rows, what they are compared with, and a few vectors on the way."""
        return 4.0 * self.size * (4 * self.averages + 3 * self.count + 12)


@dataclass(frozen=True)
class Found:
    case: Case
    metric: float
    adam: float
    copy: float
    copy_all: float
    held: int
    peak: int


def cases() -> Iterator[Case]:
    """All that fit into memory."""
    for size in SIZES:
        yield Case("collapsed", 2, size)
        for count in COUNTS:
            yield from (c for c in (Case("full", count, size), Case("pair", count, size)) if c.bytes < MOST_BYTES)


def _metric_step(case: Case, param: Tensor) -> tuple[Step, PreferenceMetric]:
    rows = torch.randn(case.count, case.size)
    weights = tuple(1.0 / case.count for _ in range(case.count))
    metric = PreferenceMetric(case.estimator, rampup=0)
    block = Block((param,))
    layout, everyone = Layout(blocks=[block]), range(case.count)
    x = Direction(block, rows.mean(0), weights, tuple(everyone), rows, complete=True)

    def step() -> None:
        measurement = metric.measure(case.count, static=case.estimator == "collapsed")
        y = x
        if measurement.drawn is not None:  # what the gradients room hands over: two rows, and the rest in d
            i, j = measurement.drawn
            y = Direction(block, x.d, weights, (i,) if i == j else (i, j), rows[[i] if i == j else [i, j]], False)
        measurement = metric.settle(measurement, weights, everyone, [y], layout)
        metric.precondition(y, BETA, measurement)
        metric.commit(measurement, [(y, BETA)], weights, everyone)

    if case.estimator == "pair":  # all averages, as they are once every pair has been drawn
        while max((len(a.pairs) for a in metric.averages), default=0) < case.averages:
            step()
    return step, metric


def _adam_step(param: Tensor) -> Step:
    param = param.clone().requires_grad_()
    param.grad = torch.randn_like(param)
    return torch.optim.AdamW([param], fused=True).step


def _copy_step(case: Case, rows: bool) -> Step:
    """Each average read once, each that is updated written once; with ``rows``, they and d are read, d / M written."""
    source = torch.randn(case.averages, case.size)
    updated = min(case.averages, 3) if case.estimator == "pair" else case.averages
    target = torch.empty(updated, case.size)
    read = torch.randn(2 if case.estimator == "pair" else case.count if case.estimator == "full" else 0, case.size)
    d = torch.randn(case.size)

    def step() -> None:
        target.copy_(source[:updated])
        if rows:
            read.sum()
            d.clone()
        if updated < case.averages:
            source[updated:].sum()

    return step


def measure(case: Case, rounds: int, clock: Callable[[], float]) -> Found:
    torch.manual_seed(0)
    param = torch.zeros(case.size)
    step, metric = _metric_step(case, param)
    arms = {"metric": step, "adam": _adam_step(param), "copy": _copy_step(case, False), "all": _copy_step(case, True)}
    times = mean_times(arms, rounds, warmup=2 if case.size > 1_000_000 else 5, clock=clock)
    held = tensor_bytes([t for a in metric.averages for t in a.tensors()])
    return Found(case, times["metric"], times["adam"], times["copy"], times["all"], held, peak_bytes(step))
