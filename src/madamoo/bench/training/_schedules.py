"""Learning-rate schedules, as functions of the step alone: nothing of them is in a checkpoint."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..runs import parse


def build_schedule(spec: str, steps_per_epoch: int, total_steps: int) -> Callable[[int], float]:
    """The factor on the learning rate by step: ``constant``, ``halve:every=<epochs>``, or ``cosine``, down to zero."""
    name, options = parse(spec)
    schedules: dict[str, Callable[..., Callable[[int], float]]] = {
        "constant": lambda: lambda step: 1.0,
        "halve": lambda every: lambda step: 0.5 ** (step // (every * steps_per_epoch)),
        "cosine": lambda: lambda step: 0.5 * (1.0 + math.cos(math.pi * step / total_steps)),
    }
    if name not in schedules:
        raise ValueError(f"no schedule is called {name!r}; there are {', '.join(schedules)}")
    every: Any = options.get("every", 1)
    if not isinstance(every, int) or every < 1:
        raise ValueError(f"every must be a number of epochs, at least 1, got {every!r}")
    try:
        return schedules[name](**options)
    except TypeError:
        raise ValueError(f"cannot build the schedule {spec!r}: only halve has an option, every=<epochs>") from None
