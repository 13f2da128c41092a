"""How much memory averages take, before they are made; and a refusal, with advice, where there is not so much."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from ._averages import Averages, Pair

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


def check_room(needed: int, device: torch.device, what: str, others: Iterable[tuple[str, Callable[[], int]]]) -> None:
    """Raise if ``needed`` bytes are not free; of ``others``, what could be asked for instead, name those that fit."""
    free = free_memory(device)
    if needed == 0 or free is None or needed <= free:
        return
    fitting = [f"{name} ({readable(size)})" for name, size in ((name, f()) for name, f in others) if size <= free]
    advice = f"these would fit: {', '.join(fitting)}" if fitting else "no other estimator or dtype would fit either"
    raise MemoryError(
        f"the averages of {what} need {readable(needed)} more on {device}, where {readable(free)} are free; {advice}"
    )


def readable(size: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            break
        size /= 1024
    return f"{size:.0f} bytes" if unit == "bytes" else f"{size:.3g} {unit}"
