"""The gradients of one step, complete: what all later rooms, and other processes, have to agree on."""

from __future__ import annotations

import math
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ._found import Found, add_found, unpack
from ._layout import GroupOf, Layout
from ._losses import Losses
from ._rows import Rows, SharedRows


@dataclass(frozen=True)
class Collected:
    """Losses, presence, rows and whether all of it is finite, summed over the micro-batches of a step."""

    values: Tensor  # [C], the losses; NaN where an objective is missing from all micro-batches
    present: tuple[int, ...]  # the objectives that are not
    layout: Layout
    rows: tuple[Rows, ...] = ()
    finite: bool = True


@dataclass(frozen=True)
class Collector:
    """Gathers the gradients of a step, micro-batch by micro-batch, in the blocks of a layout."""

    params: list[Tensor]
    group_of: GroupOf
    apart: Container[Tensor] = ()
    heads_together: bool = True

    def open(self, before: Collected | None, batch: Losses, layout: Layout) -> Collected:
        """The step with the losses of one more batch; its rows are still those of the batches before."""
        listed = batch.values.tolist()
        finite = all(math.isfinite(listed[i]) for i in batch.present)
        if before is None:
            return Collected(batch.values, batch.present, layout, finite=finite)
        present = tuple(sorted({*before.present, *batch.present}))
        return replace(before, values=sum_present(before.values, batch.values), present=present, finite=finite)

    def add(self, before: Collected, found: Found, *, opaque: bool, missing: bool) -> Collected:
        """The step with the gradients of one more batch; ``found`` is used up."""
        if opaque and (found.rows or missing):
            found = found.drop_zeros(self.params, before.layout.reach, missing)
        rows, layout = self._pack(before.layout, found)
        if before.rows:
            rows, layout = self._sum(before.rows, rows, layout)
        return replace(before, rows=tuple(rows), layout=layout)

    def _pack(self, layout: Layout, found: Found) -> tuple[list[Rows], Layout]:
        return layout.pack(found, self.params, self.group_of, apart=self.apart, heads_together=self.heads_together)

    def _sum(self, a: Sequence[Rows], b: Sequence[Rows], layout: Layout) -> tuple[list[Rows], Layout]:
        """Two micro-batches together. Never in place: autograd may hand out one tensor for several parameters."""
        if len(a) == len(b) and all(map(_are_alike, a, b)):
            return [_added(r, s) for r, s in zip(a, b, strict=True)], layout
        return self._pack(layout, add_found(unpack(a, self.params), unpack(b, self.params)))


def _are_alike(a: Rows, b: Rows) -> bool:
    if a.block is not b.block or a.stack.shape != b.stack.shape:
        return False
    if isinstance(a, SharedRows) and isinstance(b, SharedRows):
        return (a.objectives, a.has_rest) == (b.objectives, b.has_rest)
    return isinstance(a, type(b))


def _added(a: Rows, b: Rows) -> Rows:
    total = a.stack + b.stack
    if isinstance(a, SharedRows) or isinstance(b, SharedRows):
        return replace(a, stack=total)
    rest = a.rest if b.rest is None else b.rest if a.rest is None else a.rest + b.rest
    return replace(a, stack=total, rest=rest)


def sum_present(a: Tensor, b: Tensor) -> Tensor:
    """The sum of two vectors of losses, over those that are there."""
    return torch.where(torch.isnan(a), b, torch.where(torch.isnan(b), a, a + b))
