"""The solvers and optimizers that the lab compares, by name."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from madamoo import MAdam, MultiObjective, PreferenceMetric, solvers
from madamoo.relatives import AdaTask, MTAdam
from madamoo.solvers import Solver

from ..problems import Benchmark
from ..runs import check_options, parse
from ._methods import RAYS, build_method, is_conditioned, ray_solver

OPTIMIZERS = {
    "adam": "Adam on the solver's direction: the baseline",
    "madam": "MAdam; options are those of PreferenceMetric, and beta1, beta2",
    "marginal": "control: divides by the average of d^2 whatever lambda does",
    "mtadam": "MTAdam, which balances by itself",
    "adatask": "AdaTask, which balances by itself",
}
RESTLESS = "restless"  # a preference drawn for each step, uniform on the simplex
ALONE = {"mtadam": MTAdam, "adatask": AdaTask}  # they balance by themselves


def available_solvers() -> list[str]:
    return sorted([*solvers.available(), RESTLESS])


def build_solver(spec: str, benchmark: Benchmark, seed: int) -> Solver:
    """The solver; it gets the kinds of the objectives, which are residuals, and a seed where it has such options."""
    name, options = parse(spec)
    if name not in available_solvers():
        raise ValueError(f"no solver is called {name!r}; there are {', '.join(available_solvers())}")
    try:
        if name == RESTLESS:
            check_options(name, solvers.RLW, options, but=("distribution", "seed"))
            return solvers.RLW("dirichlet", seed=seed, **options)
        kind = type(solvers.get(name))
        check_options(name, kind, options)
        known = inspect.signature(kind).parameters
        offered: dict[str, Any] = {"kinds": benchmark.kinds, "seed": seed}
        if "reference" not in options and benchmark.residuals:
            offered["reference"] = benchmark.residuals
        return solvers.get(name, **{key: value for key, value in offered.items() if key in known}, **options)
    except TypeError as error:
        raise ValueError(f"cannot build the solver {spec!r}: {error}") from None


def is_static(spec: str) -> bool:
    """Whether the solver's weights never change: then the control is MAdam itself.

    A spec from a record may have options that no solver takes, or no longer: of that one nothing is known.
    """
    name, options = parse(spec)
    try:
        return name in solvers.available() and solvers.get(name, **options).static
    except (TypeError, ValueError, ArithmeticError, RuntimeError):
        return False


def check_solver(spec: str, benchmark: Benchmark) -> Solver:
    """The solver that a run would have."""
    if is_conditioned(spec):
        return build_method(spec, benchmark, 0).solver
    if parse(spec)[0] == RAYS:
        return ray_solver(spec, benchmark)[0]
    return build_solver(spec, benchmark, 0)


def check_optimizer(spec: str, name: str, solver: Solver) -> None:
    """Raise ValueError unless the optimizer can be built with the solver called ``name``."""
    optimizer, _ = parse(spec)
    if optimizer in ALONE and name != "ls":
        raise ValueError(f"{optimizer} balances the objectives by itself: it runs with solver ls alone, got {name!r}")
    build_optimizer(spec, [torch.zeros(1, requires_grad=True)], lr=1e-3, solver=solver, seed=0, total_steps=1)


def build_optimizer(
    spec: str, params: Iterable[Tensor], *, lr: float, solver: Solver | None, seed: int, total_steps: int
) -> Any:
    """The optimizer, all with Adam's usual settings and no weight decay."""
    name, options = parse(spec)
    if name not in OPTIMIZERS:
        raise ValueError(f"no optimizer is called {name!r}; there are {', '.join(OPTIMIZERS)}")
    try:
        betas = _number(options, "beta1", 0.9), _number(options, "beta2", 0.999)
        if name in ALONE:
            check_options(name, ALONE[name], options, but=("params", "lr", "betas"))
            return ALONE[name](params, lr=lr, betas=betas, **options)
        if name == "adam":
            check_options(name, torch.optim.AdamW, options, but=("params", "lr", "betas", "weight_decay", "fused"))
            inner = torch.optim.AdamW(params, lr=lr, betas=betas, weight_decay=0.0, fused=True, **options)
            return MultiObjective(inner, solver)
        fixed: dict[str, Any] = {"estimator": "marginal"} if name == "marginal" else {}
        check_options(name, PreferenceMetric, options, but=("seed", "total_steps", *fixed))
        # Only a fraction needs the length of the run; a ramp-up that is too long is a note in the run's record.
        length = total_steps if isinstance(options.get("rampup"), float) else None
        metric = PreferenceMetric(**options, **fixed, seed=seed, total_steps=length)
        return MAdam(params, lr=lr, betas=betas, solver=solver, metric=metric)
    except TypeError as error:
        raise ValueError(f"cannot build the optimizer {spec!r}: {error}") from None


def _number(options: dict[str, Any], key: str, default: float) -> float:
    value = options.pop(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{key} must be a number, got {value!r}")
    return float(value)
