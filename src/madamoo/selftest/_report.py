"""What a user sends us: the machine, the failures and the speed, as text and as JSON."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import torch

from .. import __version__
from ._run import Outcome


@dataclass(frozen=True)
class Report:
    """A selftest that has ended.

    Example:
        >>> report = Report({"madamoo": "0.1.0"}, (Outcome("resume", "failed", "they differ", 0.1),), {})
        >>> report.failed
        True
    """

    machine: Mapping[str, str]
    outcomes: Sequence[Outcome]
    speed: Mapping[str, float]  # milliseconds per step

    @property
    def failed(self) -> bool:
        return any(outcome.failed for outcome in self.outcomes)

    def as_dict(self) -> dict[str, object]:
        """Plain values, for JSON."""
        outcomes = [asdict(outcome) for outcome in self.outcomes]
        return {"machine": dict(self.machine), "checks": outcomes, "milliseconds_per_step": dict(self.speed)}


def environment(device: torch.device) -> dict[str, str]:
    """The versions and the hardware that a result depends on; no names of users, hosts or folders."""
    found = {
        "madamoo": __version__,
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "Python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "CPU cores": str(os.cpu_count()),
        "threads": str(torch.get_num_threads()),
        "device": str(device),
    }
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        found["device name"] = f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB"
        found["compute capability"] = f"{properties.major}.{properties.minor}"
        found["CUDA"] = str(torch.version.cuda or f"ROCm {torch.version.hip}")
        found["cuDNN"] = str(torch.backends.cudnn.version())
        found["TF32"] = str(torch.backends.cuda.matmul.allow_tf32)
    return found


def describe(report: Report) -> str:
    """The report as text to paste."""
    states = [outcome.state for outcome in report.outcomes]
    counts = ", ".join(f"{states.count(state)} {state}" for state in ("passed", "failed", "skipped"))
    lines = ["----- madamoo selftest -----"]
    lines += [f"{name}: {value}" for name, value in report.machine.items()]
    lines.append(f"checks: {counts} in {sum(outcome.seconds for outcome in report.outcomes):.0f} s")
    lines += [f"  {o.state}: {o.name}: {o.message}" for o in report.outcomes if o.state != "passed"]
    if report.speed:
        lines += ["", *_speed_table(report.speed)]
    return "\n".join([*lines, "----- end -----"])


def _speed_table(speed: Mapping[str, float]) -> list[str]:
    plain = next(iter(speed.values()))
    width = max(map(len, speed))
    head = f"{'step of':<{width}}  {'ms':>8}  / Adam"
    return [head, *(f"{name:<{width}}  {ms:8.2f}  {ms / plain:6.2f}" for name, ms in speed.items())]
