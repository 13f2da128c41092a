"""Methods that learn a whole Pareto front: in the lab they stand where a solver does, for they bring their own.

``pamal``, ``palora``, ``cosmosnet`` and ``phn`` train one model that takes the preference, ``rays`` one model per ray.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from torch import Tensor

from madamoo import solvers
from madamoo.pareto import COSMOS, PHN, AnnealedDirichlet, DeterministicAnnealing, Dirichlet, PaLoRA, PaMaL
from madamoo.pareto import rays as make_rays
from madamoo.solvers import Solver

from ..problems import Benchmark, FrontSpec, Metric
from ..runs import check_options, parse, write

CONDITIONED = {"pamal": PaMaL, "palora": PaLoRA, "cosmosnet": COSMOS, "phn": PHN}
RAYS = "rays"
ONE_A_RAY = ("paretomtl", "epo", "ferero")
ALIASES = {"cosmos": "cosmosnet"}  # the network, where the solver alone goes by that name
METHODS = ("pamal", "palora", "cosmos", "phn", *ONE_A_RAY)
SAMPLERS = {"dirichlet": Dirichlet, "annealed": AnnealedDirichlet, "deterministic": DeterministicAnnealing}
DEFAULTS: dict[str, dict[str, Any]] = {"pamal": {"count": 2}, "palora": {"sampler": "annealed", "count": 2}}


@dataclass(frozen=True)
class Method:
    """One model for all preferences: how it is made of a plain one, and how it is trained."""

    make: Any  # Conditioned of a plain model
    sampler: Any
    solver: Solver
    penalty: float


def is_method(spec: str) -> bool:
    """Whether the run ends in a front."""
    return is_conditioned(spec) or is_of_all_rays(spec)


def is_conditioned(spec: str) -> bool:
    return parse(spec)[0] in CONDITIONED


def is_of_all_rays(spec: str) -> bool:
    name, options = parse(spec)
    return name == RAYS and "ray" not in options


def is_of_one_ray(spec: str) -> bool:
    name, options = parse(spec)
    return name == RAYS and "ray" in options


def solver_of(method: str) -> str:
    """What stands in place of the solver for ``--method``."""
    name, options = parse(method)
    if name in ONE_A_RAY:
        return write(RAYS, {"of": name, **options})
    if name not in METHODS:
        raise ValueError(f"no method is called {name!r}; there are {', '.join(METHODS)}")
    return write(ALIASES.get(name, name), options)


def front_of(benchmark: Benchmark) -> FrontSpec:
    if benchmark.front is None:
        raise ValueError(f"{benchmark.name} does not say how its front is measured: it has no `front`")
    return benchmark.front


def rays_of(benchmark: Benchmark) -> Tensor:
    return make_rays(len(benchmark.objectives), front_of(benchmark).rays)


def build_method(spec: str, benchmark: Benchmark, seed: int) -> Method:
    """The method with its own options, those that the benchmark has for it, and those of the spec, the last first."""
    name, given = parse(spec)
    options = {**DEFAULTS.get(name, {}), **front_of(benchmark).methods.get(name, {}), **given}
    count = len(benchmark.objectives)
    try:
        sampler = build_sampler(options.pop("sampler", "dirichlet"), count, options, seed)
        penalty = options.pop("penalty", 0.0)
        solver = _solver(name, options)
        check_options(name, CONDITIONED[name], options, but=("model", "n_objectives"))
        return Method(partial(CONDITIONED[name], n_objectives=count, **options), sampler, solver, penalty)
    except TypeError as error:
        raise ValueError(f"cannot build the method {spec!r}: {error}") from None


def _solver(name: str, options: dict[str, Any]) -> Solver:
    if name == "cosmosnet":
        return solvers.COSMOS(**{key: options.pop(key) for key in ("weight",) if key in options})
    return solvers.Preference(normalise=options.pop("normalise", False))


def build_sampler(kind: str, n_objectives: int, options: dict[str, Any], seed: int) -> Any:
    if kind not in SAMPLERS:
        raise ValueError(f"no sampler is called {kind!r}; there are {', '.join(SAMPLERS)}")
    count = options.pop("count", 1)
    if kind == "deterministic":
        return DeterministicAnnealing(n_objectives, count)
    return SAMPLERS[kind](n_objectives, options.pop("concentration", 1.0), count, seed)


def ray_solver(spec: str, benchmark: Benchmark) -> tuple[Solver, Tensor]:
    """The solver of ``rays:of=epo:ray=3``, and its ray."""
    _, options = parse(spec)
    rays = rays_of(benchmark)
    number, name = options.pop("ray", 0), options.pop("of", "preference")
    if not isinstance(number, int) or not 0 <= number < len(rays):
        raise ValueError(f"ray must be 0 to {len(rays) - 1}, got {number!r}")
    ray = rays[number]
    kind = type(solvers.get(str(name)))
    check_options(str(name), kind, options)
    solver = kind(**options)
    if not solver.uses_preference:
        raise ValueError(f"{spec!r}: {type(solver).__name__} takes no preference")
    return solver, ray


def metrics_of(benchmark: Benchmark, spec: str) -> tuple[Metric, ...]:
    """What is reported of a run with this solver or method."""
    if not is_method(spec):
        return benchmark.metrics
    primary = benchmark.primary
    best = replace(primary, name=f"best_{primary.name}")
    return (Metric("hypervolume", True, 4, gain="value"), Metric("monotonicity", True, 3, gain="value"), best)


def each_ray(spec: str, benchmark: Benchmark) -> Iterable[str]:
    """The specs of the single runs."""
    name, options = parse(spec)
    for ray in range(len(rays_of(benchmark))):
        yield write(name, {**options, "ray": ray})
