"""The gradients of one step, complete: what all later rooms, and other processes, have to agree on."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from ._found import Found, add_found, unpack
from ._layout import GroupOf, Layout
from ._losses import Losses
from ._rows import Rows, SharedRows


@dataclass(frozen=True)
class Collected:
    """Losses, presence, rows and whether all of it is finite, summed over the micro-batches of a step.

    ``unsent`` are gradients of micro-batches that other processes have not seen yet; there are none in ``rows``.
    """

    values: Tensor  # [C], the losses; NaN where an objective is missing from all micro-batches
    present: tuple[int, ...]  # the objectives that are not
    layout: Layout
    rows: tuple[Rows, ...] = ()
    finite: bool = True
    unsent: Found | None = None
    opaque: bool = False  # whether it is hidden, in what is unsent, which objective reaches which parameter

    def keep(self, found: Found, opaque: bool) -> Collected:
        """The step with gradients that are to be sent later."""
        unsent = found if self.unsent is None else add_found(self.unsent, found)
        return replace(self, unsent=unsent, opaque=opaque or self.opaque)


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

    def add(
        self,
        before: Collected,
        found: Found,
        *,
        opaque: bool,
        missing: bool,
        signs: Tensor | None = None,
        send: Callable[[Sequence[Rows]], Sequence[Rows]] | None = None,
    ) -> Collected:
        """The step with the gradients of one more batch; ``found`` is used up.

        ``signs`` say what all processes together have found, and ``send`` makes their rows the same in all of them.
        """
        if signs is not None or (opaque and (found.rows or missing)):
            found = found.drop_zeros(self.params, before.layout.reach, before.present, missing, signs)
        pack = partial(Layout.pack, apart=self.apart, heads_together=self.heads_together)
        rows: Sequence[Rows]
        rows, layout = pack(before.layout, found, self.params, self.group_of)
        rows = rows if send is None else send(rows)
        before = replace(before, unsent=None, opaque=False)
        if not before.rows:
            return replace(before, rows=tuple(rows), layout=layout)
        # Never in place: autograd may hand out one tensor for several parameters.
        if len(rows) == len(before.rows) and all(map(_are_alike, before.rows, rows)):
            summed = [_added(r, s) for r, s in zip(before.rows, rows, strict=True)]
            return replace(before, rows=tuple(summed), layout=layout)
        both = add_found(unpack(before.rows, self.params), unpack(rows, self.params))
        rows, layout = pack(layout, both, self.params, self.group_of)
        return replace(before, rows=tuple(rows), layout=layout)


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
