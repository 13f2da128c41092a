"""What an optimizer remembers: of the step in the making, and of the run."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ..direction import Direction
from ..gradients import Rows
from ..metric import Measurement
from ..solvers import Solver


@dataclass
class Pending:
    """What ``backward`` has computed since the last step. It becomes part of the run in ``step``, or never."""

    params: list[Tensor]
    names: tuple[str, ...] | None
    values: Tensor  # [C], the losses summed over micro-batches; NaN where an objective is missing from all of them
    preference: Tensor | None
    measurement: Measurement | None
    opaque: bool = False  # whether the graph hides which objective reaches which parameter
    rows: list[Rows] = field(default_factory=list)
    reach: dict[Tensor, frozenset[int]] = field(default_factory=dict)
    solver: Solver | None = None  # the solver as it will be after the step
    weights: Tensor | None = None
    directions: list[tuple[Direction, float]] = field(default_factory=list)  # each with its beta
    versions: dict[Tensor, int] = field(default_factory=dict)  # of the gradients, as they were written
    vanishes: bool = False  # whether the direction is zero everywhere
    failed: bool = False

    @cached_property
    def present(self) -> tuple[int, ...]:
        return tuple(torch.nonzero(~torch.isnan(self.values)).flatten().tolist())


@dataclass
class Run:
    """What outlives a step. One object, changed in place: wrappers of the optimizer copy its attributes."""

    count: int | None = None
    names: tuple[str, ...] | None = None
    reach: dict[Tensor, frozenset[int]] = field(default_factory=dict)
    blocks: dict[Tensor, tuple[Tensor, ...]] = field(default_factory=dict)  # they are divided, never joined
    weights: Tensor | None = None
    skipped: int = 0
    opaque: bool | None = None
    warned: bool = False
    pending: Pending | None = None
    probes: tuple[Any, ...] = ()  # diagnostics that watch the run; they change nothing

    def tell(self, event: str, *facts: Any) -> None:
        """Tell the probes how far the step has come."""
        for probe in self.probes:
            getattr(probe, f"on_{event}")(*facts)
