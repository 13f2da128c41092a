"""What the metric does in one step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..direction import Direction
from ..gradients import Block, total_norms
from ._averages import Averages, Label, Pair
from ._basis import Turn
from ._estimators import Estimator
from ._momentum import Moving
from ._store import Store


@dataclass(frozen=True)
class Measured:
    """What the metric does in one step; nothing is kept before the step is taken."""

    estimator: Estimator
    active: bool  # whether the averages are updated in this step
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
    moved: Tensor | None  # where each coordinate of that one was before, if not where it is
    moving: Mapping[Tensor, Moving] | None = None  # the momentum before the metric, as it will be after the step
    m: Tensor | None = None  # and what it gives for this block, in the basis of the averages


def norms_of(blocks: Mapping[Block, MeasuredBlock]) -> dict[int, float]:
    """|g_i| over all parameters, for the objectives that the estimator sees by themselves in this step."""
    parts: dict[int, list[tuple[Block, Tensor]]] = {}
    for block, measured in blocks.items():
        for key, row in measured.seen.by_objective():
            parts.setdefault(key, []).append((block, row))
    largest = torch.finfo(torch.float32).max ** 0.5  # where the sum of squares overflows, any large number will do
    return {key: min(norm, largest) for key, norm in total_norms(parts).items()}
