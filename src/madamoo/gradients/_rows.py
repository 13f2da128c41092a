"""The gradients of a step: blocks of parameters, and the rows g_i of each block."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import torch
from torch import Tensor
from torch._utils import _unflatten_dense_tensors

from ._processes import Processes
from ._shards import as_divided, is_divided, local, own_part, shards_of


@dataclass(frozen=True, eq=False)
class Block:
    """Parameters that are handled together, laid end to end, so that small ones are not handled one by one.

    ``owners`` tells heads from shared parameters: it holds the only objective that has ever reached each parameter of
    a block of heads, and is empty for a block that several objectives reach.
    """

    params: tuple[Tensor, ...]
    owners: tuple[int, ...] = ()

    @cached_property
    def shapes(self) -> list[torch.Size]:
        """Of what this process has of each parameter: all of it, unless ``fully_shard`` has divided it."""
        return [local(p).shape for p in self.params]

    @cached_property
    def sizes(self) -> list[int]:
        return [shape.numel() for shape in self.shapes]

    @property
    def shards(self) -> Processes:
        """The processes that have a part of the block each: what is not elementwise is summed over them."""
        return shards_of(self.params[0])

    @cached_property
    def entries(self) -> int:
        return sum(self.sizes)

    @cached_property
    def whole_sizes(self) -> list[int]:
        """Of the parameters, with what other processes have of them."""
        return [p.numel() for p in self.params]

    @cached_property
    def owner(self) -> int | None:
        """The one objective of all heads in the block; None if there are several, or if the block is shared."""
        return self.owners[0] if len(set(self.owners)) == 1 else None

    @cached_property
    def is_contiguous(self) -> bool:
        """Whether a flat tensor, cut into the shapes of the parameters, has their memory layout too."""
        return all(p.is_contiguous() for p in self.params)

    def unflatten(self, flat: Tensor) -> Sequence[Tensor]:
        """A flat tensor of the block as tensors with shape, dtype and memory layout of the parameters."""
        if is_divided(self.params[0]):
            parts = [x.view(s) for x, s in zip(flat.split(self.sizes), self.shapes, strict=True)]
            return [as_divided(p, x.to(p.dtype)) for p, x in zip(self.params, parts, strict=True)]
        parts = _unflatten_dense_tensors(flat, self.params)
        if self.is_contiguous and flat.dtype == self.params[0].dtype:
            return parts
        return [torch.empty_like(p, requires_grad=False).copy_(x) for p, x in zip(self.params, parts, strict=True)]

    def holds(self, flat: Tensor) -> bool:
        """Whether the precision of the parameters has room for all entries; that of half precision ends at 65504."""
        largest = torch.finfo(self.params[0].dtype).max
        return torch.finfo(flat.dtype).max <= largest or bool((flat.abs() <= largest).all())

    def own(self, whole: Tensor) -> Tensor:
        """What this process has of a tensor [..., entries of all shards], each parameter whole, laid end to end."""
        if not is_divided(self.params[0]):
            return whole
        lead = whole.shape[:-1]
        parts = whole.split(self.whole_sizes, dim=-1)
        cut = [own_part(p, x.reshape(*lead, *p.shape), len(lead)) for p, x in zip(self.params, parts, strict=True)]
        return torch.cat([x.reshape(*lead, size) for x, size in zip(cut, self.sizes, strict=True)], dim=-1)

    def among_zeros(self, part: Tensor) -> Tensor:
        """The same the other way round, with zeros for what other processes have."""
        if not is_divided(self.params[0]):
            return part
        lead = part.shape[:-1]
        each = []
        for p, x, shape in zip(self.params, part.split(self.sizes, dim=-1), self.shapes, strict=True):
            whole = part.new_zeros(*lead, *p.shape)
            own_part(p, whole, len(lead)).copy_(x.reshape(*lead, *shape))
            each.append(whole.reshape(*lead, p.numel()))
        return torch.cat(each, dim=-1)

    def whole(self, part: Tensor) -> Tensor:
        """The inverse of :meth:`own`, with what other processes have. Each of them has to call this."""
        return self.shards.sum(self.among_zeros(part))

    def parts(self, whole: bool = False) -> Iterator[tuple[Tensor, slice]]:
        """Where each parameter is in the block; with ``whole``, in a tensor of the entries of all shards."""
        start = 0
        for param, size in zip(self.params, self.whole_sizes if whole else self.sizes, strict=True):
            yield param, slice(start, start + size)
            start += size

    def split(self) -> list[Block]:
        """One block per parameter."""
        owners = self.owners or [None] * len(self.params)
        return [Block((p,), () if i is None else (i,)) for p, i in zip(self.params, owners, strict=True)]

    def spread(self, values: Sequence[float], like: Tensor) -> Tensor:
        """The value of its parameter for each entry of the block."""
        return spread(values, self.sizes, like)


@dataclass(frozen=True)
class SharedRows:
    """The gradients of a block that several objectives share: one row per objective.

    Two tasks on one trunk of 27,450 parameters: one ``SharedRows`` with a stack of shape [2, 27450]. If ``has_rest``,
    the last row is the sum of all that was not differentiated objective by objective, its weights already in it.
    """

    block: Block
    objectives: tuple[int, ...]
    stack: Tensor  # [len(objectives) + has_rest, entries]
    has_rest: bool = False

    @property
    def single(self) -> Tensor:
        """The rows of the objectives, without the rest: [len(objectives), entries]."""
        return self.stack[:-1] if self.has_rest else self.stack

    def by_param(self) -> Iterator[tuple[Tensor, tuple[int, ...], Tensor]]:
        """Each parameter, the objectives that have a row, and these rows in its shape: a view."""
        for (param, part), shape in zip(self.block.parts(), self.block.shapes, strict=True):
            yield param, self.objectives, self.single[:, part].view(len(self.objectives), *shape)

    def pieces(self) -> Iterator[tuple[int, Tensor]]:
        """Each objective with its gradient, piece by piece."""
        return zip(self.objectives, self.single, strict=True)


@dataclass(frozen=True)
class HeadRows:
    """The gradients of a block of heads: of each parameter, that of its own objective.

    Two tasks with a head each: one ``HeadRows`` whose ``stack`` [1, entries] holds both heads end to end, or none of
    them, [0, entries], where the objectives were not differentiated by themselves. ``rest`` is what comes with its
    weights already in it.
    """

    block: Block
    stack: Tensor
    rest: Tensor | None = None  # [entries]

    @property
    def has_rest(self) -> bool:
        return self.rest is not None

    def by_param(self) -> Iterator[tuple[Tensor, tuple[int, ...], Tensor]]:
        block = self.block
        for (param, part), owner, shape in zip(block.parts(), block.owners, block.shapes, strict=True):
            keys = (owner,) if len(self.stack) else ()
            yield param, keys, self.stack[:, part].view(len(keys), *shape)

    def pieces(self) -> Iterator[tuple[int, Tensor]]:
        for row in self.stack:
            yield from zip(self.block.owners, row.split(self.block.sizes), strict=True)


Rows: TypeAlias = SharedRows | HeadRows


def spread(values: Sequence[float], sizes: Sequence[int], like: Tensor) -> Tensor:
    """Each value as often as its size says."""
    each = like.new_tensor(values)
    if all(value == values[0] for value in values):
        return each[:1].expand(sum(sizes))
    return each.repeat_interleave(torch.tensor(sizes, device=like.device), output_size=sum(sizes))


def are_same(a: Sequence[object], b: Sequence[object]) -> bool:
    """Whether both hold the same objects in the same order; ``==`` would compare the entries of tensors."""
    return a is b or (len(a) == len(b) and all(map(operator.is_, a, b)))


def by_param(rows: Iterable[Rows]) -> Iterator[tuple[Tensor, tuple[int, ...], Tensor]]:
    """Each parameter, the objectives that have a row of their own, and these rows in its shape: a view."""
    for r in rows:
        yield from r.by_param()
