"""The solvers and optimizers that the lab compares, by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from madamoo import MSOAP, MultiObjective, PreferenceMetric, solvers
from madamoo.metric import EigenBasis
from madamoo.pareto import Conditioned
from madamoo.relatives import SOAP, AdaTask, MTAdam
from madamoo.solvers import Solver

from ..problems import Benchmark
from ..runs import check_options, parse
from ._methods import RAYS, build_method, is_conditioned, ray_solver

RESTLESS = "restless"  # a preference drawn for each step, uniform on the simplex


@dataclass(frozen=True)
class Inner:
    """What moves the parameters, without weight decay."""

    kind: Callable[..., Optimizer]
    betas: tuple[float, float] | None = None  # Adam's, also where Adam moves only what the kind does not
    fixed: Mapping[str, Any] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)  # where they are not the kind's own
    hidden_only: bool = False  # Adam moves all but the hidden matrices


@dataclass(frozen=True)
class Contender:
    """An optimizer in the tables."""

    text: str
    inner: str = "adam"
    metric: Mapping[str, Any] | None = None  # what is fixed of the metric before the inner optimizer, if there is one
    momentum: float | None = None  # MSOAP's, before the metric; else it is the inner optimizer's
    alone: Callable[..., Optimizer] | None = None  # it balances by itself, with moments of its own


INNERS = {
    "adam": Inner(torch.optim.AdamW, (0.9, 0.999), fixed={"fused": True}),
    "sgd": Inner(torch.optim.SGD, defaults={"momentum": 0.9}),
    "soap": Inner(SOAP, (0.95, 0.95)),
    "plain": Inner(torch.optim.SGD, fixed={"momentum": 0.0}),
}
OPTIMIZERS = {
    "adam": Contender("Adam on the solver's direction: the baseline"),
    "sgd": Contender("SGD with momentum on the solver's direction", "sgd"),
    "soap": Contender("SOAP on the solver's direction: Adam in an eigenbasis", "soap"),
    "madam": Contender("MAdam; options: those of PreferenceMetric, inner=soap and the like, the inner's", metric={}),
    "madam-paper": Contender(
        "MAdam in the paper's own form, PreferenceMetric.paper(); options: beta, rampup and the like",
        metric={"estimator": "pair", "eps": 1e-8, "ramp": "paper", "bias_correction": False, "floor": False},
    ),
    "msoap": Contender(
        "MSOAP: momentum, curvature and eigenbasis at one preference; options: estimator, momentum, sides and the like",
        "plain",
        metric={"basis": "eigen"},
        momentum=0.95,
    ),
    "marginal": Contender("control: divides by the average of d^2, else as madam", metric={"estimator": "marginal"}),
    "mtadam": Contender("MTAdam, which balances by itself", alone=MTAdam),
    "adatask": Contender("AdaTask, which balances by itself", alone=AdaTask),
}
if hasattr(torch.optim, "Muon"):  # since torch 2.9; its steps are scaled to the size of Adam's: one rate serves both
    rms = {"adjust_lr_fn": "match_rms_adamw"}
    INNERS["muon"] = Inner(torch.optim.Muon, (0.9, 0.999), defaults=rms, hidden_only=True)
    OPTIMIZERS["muon"] = Contender("Muon on the hidden matrices, Adam on the rest", "muon")


def available_solvers() -> list[str]:
    """The names of all solvers that a run can name, in order: those of the library, and ``restless``."""
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


def is_madam(spec: str) -> bool:
    """Whether the optimizer is a form of MAdam, and so no baseline of it."""
    return parse(spec)[0] in ("madam", "madam-paper", "msoap")


def balances_alone(spec: str) -> bool:
    """Whether the optimizer takes no weights from a solver."""
    name, _ = parse(spec)
    return name in OPTIMIZERS and OPTIMIZERS[name].alone is not None


def check_optimizer(spec: str, name: str, solver: Solver) -> None:
    """Raise ValueError unless the optimizer can be built with the solver called ``name``."""
    if balances_alone(spec) and name != "ls":
        raise ValueError(
            f"{parse(spec)[0]} balances the objectives by itself: it runs with solver ls alone, got {name!r}"
        )
    matrix, vector = torch.zeros(2, 2, requires_grad=True), torch.zeros(2, requires_grad=True)
    build_optimizer(spec, [matrix, vector], hidden=[matrix], lr=1e-3, solver=solver, seed=0, total_steps=1)


def build_optimizer(
    spec: str,
    params: Iterable[Any],
    *,
    hidden: Sequence[Tensor] = (),
    lr: float,
    solver: Solver | None,
    seed: int,
    total_steps: int,
) -> Any:
    """The optimizer over parameters, or groups of them; ``hidden`` are the hidden matrices."""
    name, options = parse(spec)
    if name not in OPTIMIZERS:
        raise ValueError(f"no optimizer is called {name!r}; there are {', '.join(OPTIMIZERS)}")
    contender, typed = OPTIMIZERS[name], _Typed(name, options)
    try:
        if contender.alone is not None:
            betas = typed.betas((0.9, 0.999))
            chosen = typed.take(contender.alone, ("params", "lr", "betas"))
            typed.refuse_others()
            return contender.alone(params, lr=lr, betas=betas, **chosen)
        inner, metric = INNERS[contender.inner], None
        if contender.metric is not None:
            inner = _inner(options.pop("inner", contender.inner))
            metric = _metric(contender, typed, solver, seed, total_steps)
        moments = {} if inner.betas is None else {"betas": typed.betas(inner.betas)}
        chosen = typed.take(inner.kind, ("params", "lr", "betas", "weight_decay", *inner.fixed))
        typed.refuse_others()
        settings = {"lr": lr, "weight_decay": 0.0, **inner.fixed, **inner.defaults, **chosen}
        if not inner.hidden_only:
            return MultiObjective(inner.kind(params, **settings, **moments), solver, metric)
        mine, others = _split(params, hidden)
        if not mine:
            raise ValueError(f"{name} is for hidden matrices, and the model has none")
        adam = INNERS["adam"]
        rest = adam.kind(others, lr=lr, weight_decay=0.0, **adam.fixed, **moments)
        return MultiObjective([inner.kind(mine, **settings), rest], solver, metric)
    except TypeError as error:
        raise ValueError(f"cannot build the optimizer {spec!r}: {error}") from None


def _metric(
    contender: Contender, typed: _Typed, solver: Solver | None, seed: int, total_steps: int
) -> PreferenceMetric:
    chosen, withheld = dict(contender.metric or {}), ["seed", "total_steps", *(contender.metric or {})]
    if contender.momentum is None:
        withheld.append("momentum")
    else:
        chosen |= {"momentum": contender.momentum, "estimator": MSOAP.estimator_for(solver)}
    chosen |= typed.take(PreferenceMetric, tuple(withheld))
    if sides := typed.take(EigenBasis, ("every", "beta")):  # these two are the metric's
        if chosen.get("basis") != "eigen":
            raise ValueError(f"{typed.name} has {', '.join(sides)} with basis=eigen only")
        chosen["basis"] = EigenBasis(**sides)
    # Only a fraction needs the length of the run; a ramp-up that is too long is a note in the run's record.
    length = total_steps if isinstance(chosen.get("rampup"), float) else None
    return PreferenceMetric(**chosen, seed=seed, total_steps=length)


def hidden_matrices(model: nn.Module) -> list[Tensor]:
    """What Muon is meant for: matrices but those of the first layer and of the last, or the last of each head.

    torch's takes no convolutions.
    """
    network: Any = model.module if isinstance(model, Conditioned) else model
    heads = getattr(network, "heads", None) or [network]
    weights, *outputs = ([p for p in part.parameters() if p.ndim > 1] for part in (network, *heads))
    ends = {*weights[:1], *(p for found in outputs for p in found[-1:])}
    return [p for p in weights if p.ndim == 2 and p not in ends]


def _inner(name: Any) -> Inner:
    if name not in INNERS:
        raise ValueError(f"inner must be one of {', '.join(INNERS)}, got {name!r}")
    return INNERS[name]


def _split(params: Iterable[Any], hidden: Sequence[Tensor]) -> list[list[dict[str, Any]]]:
    """The groups of hidden matrices, and those of the rest."""
    params, wanted = list(params), set(hidden)
    groups = params if isinstance(params[0], dict) else [{"params": params}]
    parts = [
        [{**g, "params": [p for p in g["params"] if (p in wanted) == own]} for g in groups] for own in (True, False)
    ]
    return [[group for group in part if group["params"]] for part in parts]


@dataclass
class _Typed:
    """The options of a contender as typed, on their way to those who know them."""

    name: str
    options: dict[str, Any]
    known: list[str] = field(default_factory=list)

    def take(self, kind: Callable[..., Any], but: tuple[str, ...]) -> dict[str, Any]:
        names = [key for key in inspect.signature(kind).parameters if key not in but]
        self.known += names
        taken = {key: self.options.pop(key) for key in names if key in self.options}
        check_options(self.name, kind, taken)
        return taken

    def betas(self, default: tuple[float, float]) -> tuple[float, float]:
        self.known += ["beta1", "beta2"]
        first, second = (self.options.pop(key, usual) for key, usual in zip(("beta1", "beta2"), default, strict=True))
        for key, value in (("beta1", first), ("beta2", second)):
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise ValueError(f"{key} must be a number, got {value!r}")
        return float(first), float(second)

    def refuse_others(self) -> None:
        for key in self.options:
            raise ValueError(f"{self.name} has no option {key!r}; it has {', '.join(dict.fromkeys(self.known))}")
