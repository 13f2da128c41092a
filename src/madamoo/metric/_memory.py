"""How much memory averages take, before they are made; and a refusal, with advice, where there is not so much."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from ._averages import Averages, Label
from ._estimators import Estimator, Separable
from ._rounding import DROPPED

META = torch.device("meta")
MEMINFO = Path("/proc/meminfo")


def bytes_of(tensors: Iterable[Tensor]) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)


def free_memory(device: torch.device) -> int | None:
    """Bytes that can still be allocated on a device; None if that is not known."""
    if device.type == "cuda":
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + cached
    if device.type == "cpu" and MEMINFO.exists():
        for line in MEMINFO.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None


@dataclass(frozen=True)
class Growth:
    """The averages of a block, and the new pairs of ``count`` objectives that a step is about to add to them."""

    averages: Averages
    new: list[Label]
    count: int
    dtype: torch.dtype

    def grown(self, device: torch.device) -> Averages:
        return self.averages.grown(self.new, self.count, self.dtype, device)

    def bytes(self, estimator: Estimator | None = None, dtype: torch.dtype | None = None) -> int:
        """How much more they take afterwards, or would with another estimator and dtype: by the same code, on a device
        without memory."""
        held, old = bytes_of(self.averages.tensors()), self.averages
        empty = type(old)(old.block, old.owners, old.dtype, turned=old.turned)
        if estimator is not None:
            empty = estimator.empty(old.block, dtype, old.turned)
        return bytes_of(empty.grown([*old.pairs, *self.new], self.count, self.dtype, META).tensors()) - held


def bytes_for(empty: Averages, estimator: Estimator, reaching: int, count: int, dtype: torch.dtype) -> int:
    """What the averages of a parameter take that ``reaching`` of ``count`` objectives reach."""
    if estimator.of_direction:
        reaching = count = 1
    return Growth(empty, estimator.pairs(range(reaching), None), count, dtype).bytes()


def check_memory(growths: Sequence[Growth], device: torch.device, estimator: Estimator) -> None:
    """Raise if what a step is about to allocate on a device is not free there, and say what would fit."""
    free, needed = free_memory(device), sum(growth.bytes() for growth in growths)
    if free is None or needed <= free:
        return
    fitting = []
    for other in {e.name: e for e in (estimator, Separable())}.values():
        for dtype in (None, *DROPPED):
            size = sum(growth.bytes(other, dtype) for growth in growths)
            if size <= free:
                fitting.append(f"estimator={other.name!r}{f', dtype={dtype}' if dtype else ''} ({readable(size)})")
    advice = f"these would fit: {', '.join(fitting)}" if fitting else "no other estimator or dtype would fit either"
    raise MemoryError(
        f"the averages of estimator={estimator.name!r} for {max(growth.count for growth in growths)} objectives need "
        f"{readable(needed)} more on {device}, where {readable(free)} are free; {advice}"
    )


def readable(size: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            break
        size /= 1024
    return f"{size:.0f} bytes" if unit == "bytes" else f"{size:.3g} {unit}"
