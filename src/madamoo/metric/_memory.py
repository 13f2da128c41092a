"""How much memory averages take, before they are made; and a refusal, with advice, where there is not so much."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from ._averages import Averages, Make, Pair
from ._rounding import DROPPED
from ._separable import Separable

META = torch.device("meta")
MEMINFO = Path("/proc/meminfo")


def bytes_of(tensors: Iterable[Tensor]) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)


def bytes_of_new(empty: Averages, pairs: Sequence[Pair], count: int, dtype: torch.dtype) -> int:
    """What averages of these pairs would take: made by the same code, on a device without memory."""
    empty.allocate(pairs, count, dtype, META)
    return bytes_of(empty.tensors())


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
class Room:
    """What the averages of a block will hold after a step, and what they hold before."""

    params: tuple[Tensor, ...]
    pairs: list[Pair]
    count: int
    dtype: torch.dtype
    held: list[Tensor]

    def bytes_with(self, make: Make) -> int:
        """How much more that takes with averages of this kind."""
        return bytes_of_new(make(self.params), self.pairs, self.count, self.dtype) - bytes_of(self.held)


def check_room(rooms: Sequence[Room], device: torch.device, make: Make, estimator: str) -> None:
    """Raise if what a step is about to allocate on a device is not free there, and say what would fit."""
    free, needed = free_memory(device), sum(room.bytes_with(make) for room in rooms)
    if free is None or needed <= free:
        return
    kinds: dict[str, type[Averages]] = {estimator: type(make(())), "separable": Separable}
    fitting = []
    for name, other in kinds.items():
        for dtype in (None, *DROPPED):
            size = sum(room.bytes_with(partial(other, dtype=dtype)) for room in rooms)
            if size <= free:
                fitting.append(f"estimator={name!r}{f', dtype={dtype}' if dtype else ''} ({readable(size)})")
    advice = f"these would fit: {', '.join(fitting)}" if fitting else "no other estimator or dtype would fit either"
    raise MemoryError(
        f"the averages of estimator={estimator!r} for {max(room.count for room in rooms)} objectives need "
        f"{readable(needed)} more on {device}, where {readable(free)} are free; {advice}"
    )


def readable(size: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            break
        size /= 1024
    return f"{size:.0f} bytes" if unit == "bytes" else f"{size:.3g} {unit}"
