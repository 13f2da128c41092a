"""What identifies a run: two runs of equal configuration give equal numbers."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from . import _registry
from ._benchmark import Benchmark, Profile
from ._contenders import check_optimizer, check_solver
from ._schedules import build_schedule
from ._spec import canonical

LONGEST = 180  # letters in a folder's name: file systems take 255 bytes


@dataclass(frozen=True)
class Config:
    """Everything that a run's numbers depend on, but for the data and the machine."""

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

    def reductions(self, profile: Profile) -> list[str]:
        """In words, where the run is smaller than the paper's: as its profile says, and what was chosen besides."""
        chosen = [
            f"{key} {mine}, not the profile's {theirs}"
            for key in ("epochs", "batch", "model", "schedule")
            if (mine := getattr(self, key)) != (theirs := getattr(profile, key))
        ]
        return [*profile.reductions, *chosen]

    def differences(self, other: dict[str, Any]) -> list[str]:
        """In words, where ``other``, a configuration as in a record, is not this one."""
        mine = asdict(self)
        return [
            f"{key} {other.get(key)!r}, not {mine.get(key)!r}"
            for key in sorted({*mine, *other})
            if other.get(key) != mine.get(key)
        ]


def configure(
    benchmark: str,
    *,
    solver: str = "ls",
    optimizer: str = "madam",
    seed: int = 0,
    profile: str = "cpu",
    lr: float | None = None,
    epochs: int | None = None,
    batch: int | None = None,
    model: str | None = None,
    schedule: str | None = None,
) -> Config:
    """A checked configuration; what is None comes from the profile."""
    problem = _registry.get(benchmark)
    if profile not in problem.profiles:
        raise ValueError(f"{benchmark} has no profile {profile!r}; it has {', '.join(problem.profiles)}")
    size = problem.profiles[profile]
    lr = size.lr if lr is None else lr
    if not 0 < lr < float("inf"):
        raise ValueError(f"the learning rate must be positive, got {lr!r}")
    for name, number in (("epochs", epochs), ("batch", batch)):
        if number is not None and number < 1:
            raise ValueError(f"{name} must be at least 1, got {number!r}")
    solver, optimizer = canonical(solver), canonical(optimizer)
    schedule = canonical(schedule or size.schedule)
    build_schedule(schedule, 1, 1)
    check_solver(solver, problem)
    check_optimizer(optimizer, solver)
    return Config(
        benchmark=benchmark if benchmark.endswith(".py") else problem.name,
        profile=profile,
        solver=solver,
        optimizer=optimizer,
        lr=float(lr),
        seed=int(seed),
        epochs=epochs or size.epochs,
        batch=batch or size.batch,
        model=model or size.model,
        schedule=schedule,
    )


def problem_of(config: Config) -> tuple[Benchmark, Profile]:
    benchmark = _registry.get(config.benchmark)
    return benchmark, benchmark.profiles[config.profile]


def _plain(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._+-]+", "-", text)
