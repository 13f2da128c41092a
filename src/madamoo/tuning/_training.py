"""One training run of one contender."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from madamoo import MultiObjective

from ._contenders import Contender, Field
from ._setup import Build, Setup, as_number, make, seeded

DIVERGED = math.nan
FIRST, FACTOR = 4, 2  # a trial is judged after a quarter of its steps and after half of them


def judged_at(steps: int) -> list[int]:
    """The steps after which a trial is compared with the others, and may be stopped.

    Example:
        >>> judged_at(1000), judged_at(1)
        ([250, 500], [])
    """
    first = max(1, steps // FIRST)
    return [step for step in (first, first * FACTOR) if step < steps]


def train(
    build: Build,
    field: Field,
    contender: Contender,
    seed: int,
    judge: Callable[[int, float], None] | None = None,
) -> float:
    """Train with the seed, and return the validation number; NaN if a loss or that number was not finite.

    Args:
        judge: gets the validation number at the steps of :func:`judged_at`, and may raise to end the run.
    """
    with seeded(seed), quiet():
        setup = make(build, seed)
        optimizer = field.build(contender, setup, seed)
        schedule = None if setup.schedule is None else setup.schedule(optimizer)
        stops = judged_at(setup.steps) if judge is not None else []
        for step in range(1, setup.steps + 1):
            if not advance(setup, optimizer):
                return DIVERGED
            if schedule is not None:
                schedule.step()
            if judge is not None and step in stops:
                value = validated(setup)
                if not math.isfinite(value):
                    return DIVERGED
                judge(step, value)
        value = validated(setup)
        return value if math.isfinite(value) else DIVERGED


@torch.no_grad()
def validated(setup: Setup) -> float:
    return as_number(setup.validate())


def advance(setup: Setup, optimizer: MultiObjective) -> bool:
    """One step; False if a loss or a gradient was not finite."""
    optimizer.zero_grad()
    optimizer.backward(setup.losses())
    if optimizer.skipped:
        return False
    optimizer.step()
    return True


@contextmanager
def quiet() -> Iterator[None]:
    """Within it, what the page says anyway is not warned of: that a loss is not finite."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "a loss, a gradient or a weight is not finite")
        yield
