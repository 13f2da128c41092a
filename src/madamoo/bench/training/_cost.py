"""What a run costs: memory, and the machine it was measured on."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from madamoo import __version__


def describe_environment(device: torch.device) -> dict[str, Any]:
    return {
        "madamoo": __version__,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else str(device),
        "threads": torch.get_num_threads(),
    }


def clock(device: torch.device, threads: int) -> tuple[str, Callable[[], float]]:
    """What a run's seconds are counted by, and its name.

    On one thread of a processor that is processor time: the wall time of an idle machine, whatever else runs beside.
    """
    if device.type == "cpu" and threads == 1:
        return "processor", time.process_time
    return "wall", time.perf_counter


def reset_peak_memory(device: torch.device) -> None:
    """Forget earlier peaks, such as those of runs done before in this process."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    else:
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")


def peak_memory(device: torch.device) -> int | None:
    """Bytes: what torch allocated on a GPU; on a CPU the largest resident set of the process, where Linux tells it."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    return None
