"""From what a user asks for to a checked configuration."""

from __future__ import annotations

from ..problems import Benchmark, Profile, check_model, get
from ..runs import BadValue, Config, canonical, naming
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
    with naming("benchmark", benchmark):
        problem = get(benchmark)
    if profile not in problem.profiles:
        raise BadValue("profile", profile, f"{benchmark} has the profiles {', '.join(problem.profiles)}")
    size = problem.profiles[profile]
    lr = size.lr if lr is None else lr
    if not 0 < lr < float("inf"):
        raise BadValue("lr", lr, "a learning rate must be positive")
    if abs(seed) >= 2**63:
        raise BadValue("seed", seed, "a seed must fit into 64 bits")
    for name, number in (("epochs", epochs), ("batch", batch)):
        if number is not None and number < 1:
            raise BadValue(name, number, "it must be at least 1")
    with naming("schedule", schedule):
        schedule = canonical(schedule or size.schedule)
        build_schedule(schedule, 1, 1)
    with naming("solver", solver):
        solver = canonical(solver)
        made = check_solver(solver, problem)
    with naming("optimizer", optimizer):
        optimizer = canonical(optimizer)
        check_optimizer(optimizer, solver, made)
    with naming("model", model):
        check_model(model or size.model)
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
