"""What identifies a run: two runs of equal configuration give equal numbers."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

LONGEST = 180  # letters in a folder's name: file systems take 255 bytes


@dataclass(frozen=True)
class Config:
    """Everything that a run's numbers depend on, but for the data and the machine.

    Example:
        >>> Config("digits", "cpu", "ls", "madam", 3e-3, 0, 20, 64, "mlp", "cosine").name
        'ls_madam_lr0.003_seed0_4773c266'
    """

    benchmark: str
    profile: str
    solver: str
    optimizer: str
    lr: float
    seed: int
    epochs: int
    batch: int
    model: str
    schedule: str

    @property
    def name(self) -> str:
        """A name for the run's folder: readable, and different for every configuration."""
        digest = hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:8]
        return f"{_plain(f'{self.solver}_{self.optimizer}_lr{self.lr:g}_seed{self.seed}')[:LONGEST]}_{digest}"

    def folder(self, root: Path) -> Path:
        return root / _plain(self.benchmark)[-LONGEST:].lstrip("-") / self.name

    def differences(self, other: dict[str, Any]) -> list[str]:
        """In words, where ``other``, a configuration as in a record, is not this one."""
        mine = asdict(self)
        return [
            f"{key} {other.get(key)!r}, not {mine.get(key)!r}"
            for key in sorted({*mine, *other})
            if other.get(key) != mine.get(key)
        ]


def _plain(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._+-]+", "-", text)
