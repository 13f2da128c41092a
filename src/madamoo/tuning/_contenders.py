"""What can be tried: solvers and optimizers by name, those of the library and the user's own."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from madamoo import MSOAP, MAdam, MultiObjective, PreferenceMetric, solvers
from madamoo.relatives import SOAP
from madamoo.solvers import Solver

from ._setup import Setup

MakeOptimizer: TypeAlias = Callable[..., MultiObjective]
"""From parameters, ``lr``, ``solver`` and the options of :class:`madamoo.MultiObjective` to an optimizer."""

# The usual ones: loss balancing, gradient balancing, and no more of each than differ much.
SOLVERS = ("ls", "uw", "dwa", "imtl", "mgda", "cagrad", "upgrad")


def _adam(params: Any, lr: float, solver: Solver, **options: Any) -> MultiObjective:
    return MAdam(params, lr=lr, solver=solver, metric=None, **options)


def _madam(params: Any, lr: float, solver: Solver, **options: Any) -> MultiObjective:
    return MAdam(params, lr=lr, solver=solver, **options)


def _madam_eigen(params: Any, lr: float, solver: Solver, **options: Any) -> MultiObjective:
    metric = PreferenceMetric(basis="eigen")
    return MAdam(params, lr=lr, solver=solver, metric=metric, **options)


def _soap(params: Any, lr: float, solver: Solver, **options: Any) -> MultiObjective:
    return MultiObjective(SOAP(params, lr=lr), solver, **options)


def _msoap(params: Any, lr: float, solver: Solver, **options: Any) -> MultiObjective:
    return MSOAP(params, lr=lr, solver=solver, **options)


OPTIMIZERS: dict[str, MakeOptimizer] = {
    "adam": _adam,
    "madam": _madam,
    "soap": _soap,
    "madam-eigen": _madam_eigen,
    "msoap": _msoap,
}
SPOKEN = {
    "adam": "Adam",
    "madam": "MAdam",
    "soap": "SOAP",
    "madam-eigen": "MAdam in the eigenbasis",
    "msoap": "MSOAP",
}
CODE = {
    "adam": 'MAdam(model.parameters(), lr={lr}, solver="{solver}", metric=None)',
    "madam": 'MAdam(model.parameters(), lr={lr}, solver="{solver}")',
    "soap": 'MultiObjective(SOAP(model.parameters(), lr={lr}), "{solver}")',
    "madam-eigen": 'MAdam(model.parameters(), lr={lr}, solver="{solver}", metric=PreferenceMetric(basis="eigen"))',
    "msoap": 'MSOAP(model.parameters(), lr={lr}, solver="{solver}")',
}


@dataclass(frozen=True)
class Contender:
    """A solver, an optimizer and a learning rate.

    Example:
        >>> Contender("cagrad", "madam", 3e-3).name
        'MAdam with CAGrad'
    """

    solver: str
    optimizer: str
    lr: float

    @property
    def name(self) -> str:
        """As readers see it, without the rate."""
        key, colon, options = self.solver.partition(":")
        solver = type(solvers.get(key)).__name__ if key in solvers.available() else key
        return f"{SPOKEN.get(self.optimizer, self.optimizer)} with {solver}{colon}{options}"

    @property
    def label(self) -> str:
        """The same in few letters, for figures."""
        return f"{self.solver}, {self.optimizer}"


BASELINE = ("ls", "adam")


@dataclass(frozen=True)
class Field:
    """Which solvers and optimizers take part."""

    solvers: Mapping[str, Callable[[], Solver] | None]  # None: the library's own of that name; LS is always there
    optimizers: Mapping[str, MakeOptimizer]  # Adam is always there
    tried: tuple[Sequence[str], Sequence[str]]  # the solvers and the optimizers that were asked for

    @classmethod
    def of(cls, wanted_solvers: Any, wanted_optimizers: Any, own: Any) -> Field:
        """Those that are named, or the usual ones and the source's own; a dictionary adds to what names can mean."""
        chosen, known = _choose(wanted_solvers, SOLVERS, own.solvers)
        for name in chosen:
            if name not in known:
                solvers.get(name)  # says what is wrong with it
        optimizers, more = _choose(wanted_optimizers, tuple(OPTIMIZERS), own.optimizers)
        offered = {**OPTIMIZERS, **more}
        for name in optimizers:
            if name not in offered:
                raise ValueError(f"no optimizer is called {name!r}; there are {', '.join(offered)}")
        make = {name: offered[name] for name in (*optimizers, "adam")}
        field = cls({name: known.get(name) for name in (*chosen, "ls")}, make, (chosen, optimizers))
        if not any(field.is_new(s, o) for s in chosen for o in optimizers):
            raise ValueError("nothing is left to compare with Adam and LS: name another solver or optimizer")
        return field

    def is_new(self, solver: str, optimizer: str) -> bool:
        """Whether the pair is neither the baseline nor another pair by another name."""
        twin = optimizer == "msoap" and "soap" in self.tried[1]  # the same as SOAP but under gradient balancing
        return (solver, optimizer) != BASELINE and not (twin and self.solver(solver, 0).family != "gradient")

    def build(self, contender: Contender, setup: Setup, seed: int) -> MultiObjective:
        make = self.optimizers[contender.optimizer]
        found = make(setup.parameters, lr=contender.lr, solver=self.solver(contender.solver, seed), **setup.options)
        if not isinstance(found, MultiObjective):
            raise TypeError(
                f"the optimizer {contender.optimizer!r} must be a madamoo.MultiObjective, got {type(found).__name__}"
            )
        return found

    def code(self, contender: Contender) -> str:
        """The line of Python that makes a contender, or nothing where a part of it is the user's own."""
        name = contender.optimizer
        own = self.optimizers[name] is not OPTIMIZERS.get(name) or self.solvers.get(contender.solver) is not None
        return "" if own else CODE[name].format(lr=f"{contender.lr:.3g}", solver=contender.solver)

    def solver(self, name: str, seed: int) -> Solver:
        """The solver; one that draws at random gets the seed of the run, unless it was given one."""
        make = self.solvers.get(name)
        if make is not None:
            return make()
        _, options = solvers.parse(name)
        draws = "seed" in inspect.signature(type(solvers.get(name))).parameters and "seed" not in options
        return solvers.get(name, seed=seed) if draws else solvers.get(name)


def _choose(
    wanted: Sequence[str] | Mapping[str, Any] | None, usual: tuple[str, ...], own: Mapping[str, Any]
) -> tuple[list[str], dict[str, Any]]:
    """The names that take part, and what the user's own names mean."""
    if isinstance(wanted, Mapping):
        return list(wanted), {**own, **{name: make for name, make in wanted.items() if make is not None}}
    names = [*usual, *own] if wanted is None else [wanted] if isinstance(wanted, str) else list(wanted)
    return list(dict.fromkeys(names)), dict(own)
