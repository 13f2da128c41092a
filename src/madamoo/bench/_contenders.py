"""The solvers and optimizers that the lab compares, by name."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from madamoo import MAdam, MultiObjective, PreferenceMetric, solvers
from madamoo.optimizer import AdaTask, MTAdam
from madamoo.solvers import Solver

from ._benchmark import Benchmark
from ._methods import RAYS, build_method, is_conditioned, ray_solver
from ._spec import parse

OPTIMIZERS = {
    "adam": "Adam on the solver's direction: the baseline",
    "madam": "MAdam; options are those of PreferenceMetric, and beta1, beta2",
    "marginal": "control: divides by the average of d^2 whatever lambda does",
    "mtadam": "MTAdam, which balances by itself",
    "adatask": "AdaTask, which balances by itself",
}
RESTLESS = "restless"  # a preference drawn anew each step, uniform on the simplex
ALONE = {"mtadam": MTAdam, "adatask": AdaTask}  # they balance by themselves


def available_solvers() -> list[str]:
    return sorted([*solvers.available(), RESTLESS])


def build_solver(spec: str, benchmark: Benchmark, seed: int) -> Solver:
    """The solver, told what the objectives are and what to draw from where it wants to know."""
    name, options = parse(spec)
    if name not in available_solvers():
        raise ValueError(f"no solver is called {name!r}; there are {', '.join(available_solvers())}")
    try:
        if name == RESTLESS:
            return solvers.RLW("dirichlet", seed=seed, **options)
        known = inspect.signature(type(solvers.get(name))).parameters
        told = {"kinds": benchmark.kinds, "seed": seed}
        return solvers.get(name, **{key: value for key, value in told.items() if key in known}, **options)
    except TypeError as error:
        raise ValueError(f"cannot build the solver {spec!r}: {error}") from None


def is_static(spec: str) -> bool:
    """Whether the solver's weights never change: then the control is MAdam itself."""
    name, options = parse(spec)
    return name in solvers.available() and solvers.get(name, **options).static


def check_solver(spec: str, benchmark: Benchmark) -> None:
    if is_conditioned(spec):
        build_method(spec, benchmark, 0)
    elif parse(spec)[0] == RAYS:
        ray_solver(spec, benchmark)
    else:
        build_solver(spec, benchmark, 0)


def check_optimizer(spec: str, solver: str) -> None:
    name, _ = parse(spec)
    if name in ALONE and solver != "ls":
        raise ValueError(f"{name} balances the objectives by itself: it runs with solver ls alone, got {solver!r}")
    build_optimizer(spec, [torch.zeros(1, requires_grad=True)], lr=1e-3, solver=None, seed=0, total_steps=1)


def build_optimizer(
    spec: str, params: Iterable[Tensor], *, lr: float, solver: Solver | None, seed: int, total_steps: int
) -> Any:
    """The optimizer, all with Adam's usual settings and no weight decay."""
    name, options = parse(spec)
    if name not in OPTIMIZERS:
        raise ValueError(f"no optimizer is called {name!r}; there are {', '.join(OPTIMIZERS)}")
    try:
        betas = float(options.pop("beta1", 0.9)), float(options.pop("beta2", 0.999))  # "0" is read as a whole number
        if name in ALONE:
            return ALONE[name](params, lr=lr, betas=betas, **options)
        if name == "adam":
            inner = torch.optim.AdamW(params, lr=lr, betas=betas, weight_decay=0.0, fused=True, **options)
            return MultiObjective(inner, solver)
        fixed: dict[str, Any] = {"estimator": "marginal"} if name == "marginal" else {}
        metric = PreferenceMetric(**options, **fixed, seed=seed, total_steps=total_steps)
        return MAdam(params, lr=lr, betas=betas, solver=solver, metric=metric)
    except TypeError as error:
        raise ValueError(f"cannot build the optimizer {spec!r}: {error}") from None
