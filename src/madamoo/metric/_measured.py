"""What the metric does in one step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from ..direction import Direction
from ..gradients import Block, is_divided, total_norms
from ._averages import Averages, Label, Pair
from ._basis import Bases, Turn
from ._estimators import Estimator
from ._memory import Growth, check_memory
from ._momentum import Momentum, Moving
from ._store import Store


@dataclass(frozen=True)
class Measured:
    """What the metric does in one step; nothing is kept before the step is taken."""

    estimator: Estimator
    every: int  # steps from one measurement of the averages to the next
    active: bool  # whether this step is one
    heads_together: bool
    drawn: Pair | None = None
    generator_state: Tensor | None = None
    norms: Mapping[int, float] | None = None  # |g_i|, if the averages are of normalised gradients
    restarts: bool = False  # whether the averages start again
    store: Store | None = None  # the averages in the blocks of this step
    blocks: Mapping[Block, MeasuredBlock] = field(default_factory=dict)

    @property
    def every_row(self) -> bool:
        return self.active and self.estimator.every_row

    def needed(self, present: Sequence[int]) -> tuple[int, ...]:
        """The objectives whose own gradient the averages need."""
        return self.estimator.needed(present, self.drawn) if self.active else ()


@dataclass(frozen=True)
class MeasuredBlock:
    """What a step does to the averages of one block."""

    averages: Averages  # before the step
    after: Averages  # those that the step will update, with memory for the pairs that are new
    seen: Direction  # what the estimator takes for objectives, in the basis of the averages
    labels: list[Label]  # the averages that are updated
    turn: Turn  # the basis of the averages in this step
    next: Turn  # and in the next
    moved: Tensor | None  # where each coordinate of that one, as a whole, was before, if not where it is
    moving: Mapping[Tensor, Moving] | None = None  # the momentum before the metric, as it will be after the step
    m: Tensor | None = None  # and what it gives for this block, in the basis of the averages


def measure_block(
    x: Direction, measurement: Measured, store: Store, bases: Bases, momentum: Momentum | None, step: int
) -> MeasuredBlock:
    """What the step number ``step`` does to a block; nothing is allocated yet."""
    seen, averages = measurement.estimator.sees(x), store.at(x.block)
    moving, m = None, None
    if momentum is not None:
        moving = momentum.after(x)
        m, preference = momentum.averages(moving)
        if not measurement.estimator.of_direction:  # d is no longer what these weights make of the rows
            seen = replace(seen, weights=preference, complete=False)
    turn = bases.turn(seen)
    whole = turn.whole(x.d)
    following, moved = bases.after(turn, whole, step)
    seen = turn.see(seen, whole, alone=measurement.estimator.of_direction, rows=averages.rotates_rows)
    labels = measurement.estimator.labels(seen, measurement.drawn) if measurement.active else []
    m = None if m is None else turn.rotate(m)
    return MeasuredBlock(averages, averages, seen, labels, turn, following, moved, moving, m)


def with_memory(blocks: Iterable[MeasuredBlock], estimator: Estimator) -> dict[Block, MeasuredBlock]:
    """The blocks with memory for the averages that are new; raises MemoryError if there is not enough."""
    found: dict[Block, MeasuredBlock] = {}
    new: dict[torch.device, list[Growth]] = {}
    for block in blocks:
        found[block.averages.block] = block
        if missing := block.averages.missing(block.labels):
            growth = Growth(block.averages, missing, len(block.seen.weights), block.seen.d.dtype)
            new.setdefault(block.seen.d.device, []).append(growth)
    for device, growths in new.items():
        check_memory(growths, device, estimator)
        for growth in growths:
            key = growth.averages.block
            found[key] = replace(found[key], after=growth.grown(device))
    return found


def check_shards(block: Block, dtype: torch.dtype | None) -> None:
    """Raise if parameters that are divided among processes cannot have such averages."""
    if dtype is torch.float8_e5m2 and is_divided(block.params[0]):
        raise ValueError(
            "dtype=torch.float8_e5m2 has one exponent for all entries of a tensor, which processes with different "
            "shards of it would choose differently: use torch.bfloat16"
        )


def norms_of(blocks: Mapping[Block, MeasuredBlock]) -> dict[int, float]:
    """|g_i| over all parameters, for the objectives that the estimator sees by themselves in this step."""
    parts: dict[int, list[tuple[Block, Tensor]]] = {}
    for block, measured in blocks.items():
        for key, row in measured.seen.by_objective():
            parts.setdefault(key, []).append((block, row))
    largest = torch.finfo(torch.float32).max ** 0.5  # where the sum of squares overflows, any large number will do
    return {key: min(norm, largest) for key, norm in total_norms(parts).items()}
