"""From what a user asks for to a checked configuration."""

from __future__ import annotations

from ..problems import Benchmark, Profile, get
from ..runs import Config, canonical
from ._contenders import check_optimizer, check_solver
from ._schedules import build_schedule


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
    problem = get(benchmark)
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
    benchmark = get(config.benchmark)
    return benchmark, benchmark.profiles[config.profile]


def reductions(config: Config, profile: Profile) -> list[str]:
    """In words, where a run is smaller than the paper's: as its profile says, and what was chosen besides."""
    chosen = [
        f"{key} {mine}, not the profile's {theirs}"
        for key in ("epochs", "batch", "model", "schedule")
        if (mine := getattr(config, key)) != (theirs := getattr(profile, key))
    ]
    return [*profile.reductions, *chosen]
