"""Processes that compute together. This file alone calls collectives of torch.distributed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor
from torch import distributed as dist

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

BUCKET = 25 << 20
"""Bytes that are sent together at most, as in DistributedDataParallel; what is larger is sent by itself."""

T = TypeVar("T")


@dataclass(frozen=True)
class Processes:
    """The processes of a group: sums, maxima and lists over all of them, each the identity in a process alone.

    Of two replicas under DDP, ``sum(losses)`` adds up the losses of both; of a weight in two shards under FSDP2,
    ``block.shards.sum(norms)`` adds up what each shard has to give. None is no group: one process.
    """

    group: ProcessGroup | None = None

    @classmethod
    def of(cls, group: ProcessGroup | None) -> Processes:
        """The processes of ``group``; those of all, where torch.distributed has started, if it is None."""
        if not (dist.is_available() and dist.is_initialized()):
            return ONE
        group = dist.group.WORLD if group is None else group
        return ONE if dist.get_world_size(group) == 1 else cls(group)

    @cached_property
    def count(self) -> int:
        return 1 if self.group is None else dist.get_world_size(self.group)

    @cached_property
    def rank(self) -> int:
        return 0 if self.group is None else dist.get_rank(self.group)

    def sum(self, x: Tensor) -> Tensor:
        return self._reduced(x, "SUM")

    def largest(self, x: Tensor) -> Tensor:
        """The maximum of each entry. NaN, which not every backend lets through, becomes infinity."""
        if self.group is not None and x.is_floating_point():
            x = x.nan_to_num(torch.inf, torch.inf, -torch.inf)
        return self._reduced(x, "MAX")

    def any(self, flag: bool) -> bool:
        """Whether it is so in one of them."""
        return flag if self.group is None else bool(self.largest(torch.tensor([float(flag)], device="cpu")))

    def gather(self, thing: T) -> list[T]:
        """What each of them has, in order; small things only, for they are pickled."""
        if self.group is None:
            return [thing]
        everyone: list[Any] = [None] * self.count
        dist.all_gather_object(everyone, thing, self.group)
        return everyone

    def joined(self, part: Tensor, dim: int, size: int) -> Tensor:
        """The parts of all, laid end to end: ``size`` entries along ``dim``, cut as :meth:`torch.Tensor.chunk` does."""
        if self.group is None:
            return part
        shape = [*part.shape]
        shape[dim] = -(-size // self.count)
        sent = part.new_zeros(shape)
        sent.narrow(dim, 0, part.shape[dim]).copy_(part)
        parts = [torch.empty_like(sent) for _ in range(self.count)]
        dist.all_gather(parts, sent, self.group)
        return torch.cat(parts, dim).narrow(dim, 0, size)

    def means(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The mean of each tensor, sent in buckets. The tensors given stay as they are."""
        if self.group is None:
            return [*tensors]
        buckets: dict[Any, list[int]] = {}
        sizes: dict[Any, int] = {}
        for k, x in enumerate(tensors):
            kind, size = (x.dtype, x.device), x.numel() * x.element_size()
            number = sizes.get(kind, 0) // BUCKET
            buckets.setdefault((*kind, number), []).append(k)
            sizes[kind] = sizes.get(kind, 0) + size
        sent = []
        for members in buckets.values():
            flat = torch.cat([tensors[k].reshape(-1) for k in members])
            sent.append((members, flat, dist.all_reduce(flat, group=self.group, async_op=True)))
        result = [*tensors]
        for members, flat, work in sent:
            work.wait()
            parts = flat.div_(self.count).split([tensors[k].numel() for k in members])
            for k, part in zip(members, parts, strict=True):
                result[k] = part.view(tensors[k].shape)
        return result

    def _reduced(self, x: Tensor, how: str) -> Tensor:
        if self.group is None:
            return x
        sent = x.to(self._device(x), copy=True)
        dist.all_reduce(sent, getattr(dist.ReduceOp, how), self.group)
        return sent.to(x.device)

    def _device(self, x: Tensor) -> torch.device:
        """Where the group can take a tensor from: its own place, but for NCCL, which knows the GPU only."""
        if x.device.type == "cpu" and dist.get_backend(self.group) == "nccl":
            return torch.device("cuda", torch.cuda.current_device())
        return x.device

    def __deepcopy__(self, memo: dict[int, Any]) -> Processes:
        return self  # a group is nothing to copy


ONE = Processes()
"""One process."""
