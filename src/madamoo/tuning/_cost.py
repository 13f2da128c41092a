"""What a step costs, as a multiple of the baseline's step."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch

from ._contenders import Contender, Field
from ._setup import Build, make, seeded
from ._training import advance, quiet

WARMUP, ROUNDS = 3, 30
LONGEST = 30.0  # seconds per contender, but for rounds too few to be a measurement
FEWEST = 5


@dataclass(frozen=True)
class Cost:
    """What a step of a contender costs, as a multiple of a step of the baseline.

    Example:
        >>> Cost(cpu=1.2, wall=1.1, seconds=0.004).cpu
        1.2
    """

    cpu: float
    wall: float
    seconds: float  # wall seconds of its step


def step_cost(build: Build, field: Field, contender: Contender, baseline: Contender, seed: int) -> Cost | None:
    """Both take turns, so that whatever else the machine does falls on both alike; None if one diverges at once."""
    with seeded(seed), quiet():
        setups = [make(build, seed) for _ in range(2)]
        pairs = [(s, field.build(c, s, seed)) for s, c in zip(setups, (contender, baseline), strict=True)]
        spent = [[0.0, 0.0], [0.0, 0.0]]
        begun, rounds = time.monotonic(), 0
        for turn in range(WARMUP + ROUNDS):
            if rounds >= FEWEST and time.monotonic() - begun > LONGEST:
                break
            rounds += turn >= WARMUP
            for k in (0, 1) if turn % 2 else (1, 0):
                cpu, wall = time.process_time(), time.perf_counter()
                if not advance(*pairs[k]):
                    return None
                if torch.cuda.is_available():
                    torch.cuda.synchronize()
                if turn >= WARMUP:
                    spent[k][0] += time.process_time() - cpu
                    spent[k][1] += time.perf_counter() - wall
    (own_cpu, own_wall), (cpu, wall) = spent
    return Cost(own_cpu / cpu, own_wall / wall, own_wall / rounds)
