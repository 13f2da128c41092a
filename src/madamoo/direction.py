"""Room three: rows and weights in, the direction d = sum_i lambda_i g_i out, block by block."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from .gradients import Block, HeadRows, Rows, total_norms


@dataclass(frozen=True)
class Direction:
    """What is known of a block of parameters in one step; the metric needs nothing else.

    ``weights`` are those that made ``d``, for all C objectives: lambda, or ones for a head under a gradient-balancing
    solver. ``rows`` are the gradients of the ``objectives``, which may be fewer than C, or none. In a block of heads
    ``owners`` has the objective of each parameter, and ``rows`` is the one row of their own gradients, or empty.
    ``complete`` says that nothing else is in ``d``. ``mask``, if there is one, holds a factor for each coordinate of
    each row: the weights of a solver that works coordinate by coordinate. ``memo`` is for what ``backward`` computes of
    the rows and ``step`` needs again.
    """

    block: Block
    d: Tensor  # [entries of all parameters]
    weights: tuple[float, ...]
    objectives: tuple[int, ...]
    rows: Tensor  # [objectives, entries]; [1, entries] or [0, entries] for heads
    complete: bool
    mask: Tensor | None = None
    owners: tuple[int, ...] = ()
    memo: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def scaled(self, factor: float) -> Direction:
        """The same with all gradients multiplied by ``factor``."""
        return replace(self, d=self.d * factor, rows=self.rows * factor, memo={})

    def part(self, columns: slice) -> Direction:
        """What is known of some coordinates."""
        mask = None if self.mask is None else self.mask[:, columns]
        return replace(self, d=self.d[columns], rows=self.rows[:, columns], mask=mask, memo={})

    def by_objective(self) -> Iterator[tuple[int, Tensor]]:
        """The gradients piece by piece, each with its objective; one may have several pieces."""
        if self.owners and self.block.owner is None:
            for row in self.rows:
                yield from zip(self.owners, row.split(self.block.sizes), strict=True)
        elif self.owners:
            yield from zip(self.owners, self.rows, strict=False)
        else:
            yield from zip(self.objectives, self.rows, strict=True)


def combine(rows: Rows, weights: Sequence[float], dtype: torch.dtype, mask: Tensor | None = None) -> Direction:
    """d = sum_i weights_i g_i for one block, computed in ``dtype``; a rest has its weights in it already."""
    block, stack = rows.block, rows.stack.to(dtype)
    if isinstance(rows, HeadRows):
        rest = None if rows.rest is None else rows.rest.to(dtype)
        d = rest
        if len(stack):
            own = [weights[i] for i in block.owners]
            masked = stack[0] if mask is None else mask[0] * stack[0]
            d = masked if all(w == 1.0 for w in own) else masked * block.spread(own, stack)
            d = d if rest is None else d + rest
        assert d is not None
        return Direction(block, d, tuple(weights), (), stack, rest is None, mask, block.owners)
    masked = stack
    if mask is not None:
        masked = torch.cat([mask * stack[:-1], stack[-1:]]) if rows.has_rest else mask * stack
    coefficients = [weights[i] for i in rows.objectives] + [1.0] * rows.has_rest
    d = masked[0] if coefficients == [1.0] else stack.new_tensor(coefficients) @ masked
    single = stack[:-1] if rows.has_rest else stack
    return Direction(block, d, tuple(weights), rows.objectives, single, not rows.has_rest, mask)


def clip_factor(directions: Sequence[Direction], max_norm: float | None) -> float:
    """The factor at most 1 that brings the norm of d over all parameters down to ``max_norm``."""
    if max_norm is None or not directions:
        return 1.0
    (norm,) = total_norms({"d": [(x.block, x.d) for x in directions]}).values()
    if norm == float("inf"):  # in float32 alone: the entries themselves are finite
        (norm,) = total_norms({"d": [(x.block, x.d.double()) for x in directions]}).values()
    return min(1.0, max_norm / norm) if norm > 0 else 1.0
