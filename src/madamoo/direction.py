"""Room three: rows and weights in, the direction d = sum_i lambda_i g_i out, block by block."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from .gradients import REST, Rows, sizes_of, spread


@dataclass(frozen=True)
class Direction:
    """What is known of a block of parameters in one step; the metric needs nothing else.

    ``weights`` are those that made ``d``, for all C objectives: lambda, or ones for a head under a gradient-balancing
    solver. ``rows`` are the gradients of the objectives ``keys``; both may be fewer than C, or none; ``owners`` are
    those of :class:`Rows`. ``complete`` says that nothing else is in ``d``. ``mask``, if there is one, holds a factor
    for each coordinate of each row: the weights of a solver that works coordinate by coordinate. ``memo`` is for what
    ``backward`` computes of the rows and ``step`` needs again.
    """

    params: tuple[Tensor, ...]
    d: Tensor  # [entries of all parameters]
    weights: tuple[float, ...]
    keys: tuple[int, ...]
    rows: Tensor  # [len(keys), entries]
    complete: bool
    mask: Tensor | None = None
    owners: tuple[int, ...] = ()
    memo: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def scaled(self, factor: float) -> Direction:
        """The same with all gradients multiplied by ``factor``."""
        return self if factor == 1.0 else replace(self, d=self.d * factor, rows=self.rows * factor, memo={})

    def part(self, columns: slice) -> Direction:
        """What is known of some coordinates."""
        mask = None if self.mask is None else self.mask[:, columns]
        return replace(self, d=self.d[columns], rows=self.rows[:, columns], mask=mask, memo={})

    def by_objective(self) -> Iterator[tuple[int, Tensor]]:
        """The gradients piece by piece, each with its objective; one may have several pieces."""
        if self.owners:
            yield from zip(self.owners, self.rows[0].split(sizes_of(self.params)), strict=True)
        else:
            yield from zip(self.keys, self.rows, strict=True)


def combine(rows: Rows, weights: Sequence[float], dtype: torch.dtype, mask: Tensor | None = None) -> Direction:
    """d = sum_i weights_i g_i for one block, computed in ``dtype``; a REST row has its weights in it already."""
    stack = rows.stack.to(dtype)
    if rows.owners:
        own = [weights[i] for i in rows.owners]
        d = stack[0] if all(w == 1.0 for w in own) else stack[0] * spread(own, sizes_of(rows.params), stack)
        return Direction(rows.params, d, tuple(weights), rows.keys, stack, complete=True, owners=rows.owners)
    masked = stack if mask is None else mask * stack
    coefficients = [1.0 if key == REST else weights[key] for key in rows.keys]
    d = masked[0] if coefficients == [1.0] else stack.new_tensor(coefficients) @ masked
    single = [k for k, key in enumerate(rows.keys) if key != REST]
    complete = len(single) == len(rows.keys)
    keys = tuple(rows.keys[k] for k in single)
    return Direction(rows.params, d, tuple(weights), keys, stack if complete else stack[single], complete, mask)


def clip_factor(directions: Sequence[Direction], max_norm: float | None) -> float:
    """The factor at most 1 that brings the norm of d over all parameters down to ``max_norm``."""
    if max_norm is None or not directions:
        return 1.0
    norm = float(torch.nn.utils.get_total_norm([x.d for x in directions]))
    if norm == float("inf"):  # in float32 alone: the entries themselves are finite
        norm = float(torch.nn.utils.get_total_norm([x.d.double() for x in directions]))
    return min(1.0, max_norm / norm) if norm > 0 else 1.0
