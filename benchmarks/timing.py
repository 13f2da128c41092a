"""Timing by turns: every arm once a round, so that whatever else the machine does falls on all of them alike."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

Step = Callable[[], object]


def mean_times(
    arms: Mapping[str, Step], rounds: int, warmup: int = 10, clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """The mean time of each arm in seconds, over ``rounds`` rounds in which all arms take turns, in random order.

    A mean and not a median: steps of which every tenth is slow count as what they cost together.
    """
    order = list(arms)
    shuffle = random.Random(0).shuffle
    for _ in range(warmup):
        for name in order:
            arms[name]()
    total = dict.fromkeys(arms, 0.0)
    gc.collect()
    gc.disable()  # a collection would fall on one arm
    try:
        for _ in range(rounds):
            shuffle(order)
            for name in order:
                start = clock()
                arms[name]()
                total[name] += clock() - start
            if len(order) * rounds > 100:
                gc.collect(0)
    finally:
        gc.enable()
    return {name: seconds / rounds for name, seconds in total.items()}


def peak_bytes(step: Step) -> int:
    """How many bytes of tensors one call holds at its worst, above what there was before it."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        step()
    events = [e for e in record.profiler.kineto_results.events() if e.name() == "[memory]"]  # type: ignore[union-attr]
    held = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak


def tensor_bytes(tensors: Sequence[Tensor]) -> int:
    """The bytes of the storages behind some tensors, each counted once."""
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
    return sum(storages.values())


def describe_machine() -> str:
    return f"torch {torch.__version__}, {torch.get_num_threads()} threads"
