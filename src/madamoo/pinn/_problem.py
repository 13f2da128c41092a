"""A problem: a domain, equations, conditions, points, and from these the named losses of a network."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ._constraints import Constraint, Domain, Points, Pools
from ._fields import MODES, Derivatives, Fields, Names, Network, Recorder, default_variables
from ._geometry import Geometry, GeometryXTime
from ._indices import Index
from ._networks import FNN
from ._reference import Reference

Equations = Callable[[Fields], Tensor | Mapping[str, Tensor]]
PDE = "pde"
"""The name of the residual when the equations return one tensor; the names of several begin with it."""


@dataclass
class _Group:
    """Conditions on the same points: one evaluation of the network for all of them."""

    points: Points
    inputs: Tensor  # the points, and after them their images
    normals: Tensor | None
    names: list[str]
    requests: set[Index]


class Problem:
    """Losses of a network by name: the mean squares of the equations' residuals and of the conditions' errors.

    Args:
        domain: A geometry, or ``geometry * TimeDomain(t0, t1)``; time is the last coordinate.
        equations: From :class:`Fields` to the residual ``[n, 1]``, or to a dict of several by name. The names of their
            losses begin with "pde": ``"continuity"`` becomes ``"pde_continuity"``.
        constraints: Conditions by name.
        outputs: The names of the network's outputs, in order.
        variables: The names of the coordinates; by default x, y, z (x1, x2, ... beyond three) and t.
        unknowns: Coefficients to be found with the solution: a name and its first value each. The equations read them
            as ``f.name``; :meth:`parameters` are for the optimizer.
        num_domain, num_boundary, num_initial: How many points; ``sampler`` is how they are spread.
        residual_points: "all" evaluates the equations on the boundary and initial points too, as DeepXDE does.
        derivatives: "taylor" carries them through the network in one forward pass, "reverse" is nested
            ``torch.autograd.grad``; "auto" is the first where the network's operations allow it.
        generator: Of the first draw; None is the plain sequence.

    Example: u_t = u_xx on an interval.

    >>> from madamoo.pinn import FNN, IC, DirichletBC, Interval, TimeDomain
    >>> heat = Problem(
    ...     Interval(0, 1) * TimeDomain(0, 1),
    ...     lambda f: f.u_t - f.u_xx,
    ...     {"initial": IC(lambda x: torch.sin(torch.pi * x[:, :1])), "ends": DirichletBC(0.0)},
    ...     num_domain=64, num_boundary=16, num_initial=16,
    ... )
    >>> list(heat.losses(FNN([2, 8, 1])))
    ['pde', 'initial', 'ends']
    """

    def __init__(
        self,
        domain: Domain,
        equations: Equations,
        constraints: Mapping[str, Constraint],
        *,
        outputs: Sequence[str] = ("u",),
        variables: Sequence[str] | None = None,
        unknowns: Mapping[str, float] | None = None,
        num_domain: int = 1000,
        num_boundary: int = 200,
        num_initial: int = 200,
        sampler: str = "hammersley",
        residual_points: str = "all",
        reference: Reference | None = None,
        derivatives: str = "auto",
        dtype: torch.dtype | None = None,
        device: torch.device | str = "cpu",
        generator: torch.Generator | None = None,
    ) -> None:
        if not isinstance(domain, Geometry | GeometryXTime):
            raise TypeError(f"domain must be a Geometry or a Geometry * TimeDomain, got {type(domain).__name__}")
        if not callable(equations):
            raise TypeError(f"equations must be a function of the fields, got {type(equations).__name__}")
        if not isinstance(constraints, Mapping):
            raise TypeError(
                f"constraints must be a dict, one name per condition, got {type(constraints).__name__}: the names are "
                "those of the losses"
            )
        if residual_points not in ("all", "domain"):
            raise ValueError(f"residual_points must be 'all' or 'domain', got {residual_points!r}")
        if derivatives not in MODES:
            raise ValueError(f"derivatives must be one of {', '.join(MODES)}, got {derivatives!r}")
        time = isinstance(domain, GeometryXTime)
        names = tuple(variables) if variables is not None else default_variables(domain.dim, time)
        if len(names) != domain.dim:
            raise ValueError(f"variables must be {domain.dim} names, one per dimension of the domain, got {names}")
        if num_domain < 1:
            raise ValueError(f"num_domain must be at least 1, got {num_domain}")
        for name, constraint in constraints.items():
            if not isinstance(constraint, Constraint):
                raise TypeError(f"constraints[{name!r}] must be a Constraint, got {type(constraint).__name__}")
            if constraint.at == "initial" and not time:
                raise ValueError(f"constraints[{name!r}] holds at the first moment, but the domain has no time")
        self.domain, self.equations, self.constraints = domain, equations, dict(constraints)
        self.names = Names(names, tuple(outputs), time)
        self.unknowns = _unknowns(unknowns or {}, self.names)
        self.dtype = torch.get_default_dtype() if dtype is None else dtype
        self.device = torch.device(device)
        self.unknowns.to(self.device, self.dtype)
        self.num_domain, self.num_boundary, self.num_initial = num_domain, num_boundary, num_initial * time
        self.sampler, self.residual_points, self.reference = sampler, residual_points, reference
        self.derivatives = derivatives
        self.anchors = torch.empty(0, domain.dim, dtype=torch.float64, device="cpu")
        self.sample(generator)
        self.equation_names, self._requests = self._dry_run()
        clash = set(self.equation_names) & set(self.constraints)
        if clash:
            raise ValueError(f"a constraint and an equation have the same name: {', '.join(sorted(clash))}")

    @property
    def objectives(self) -> tuple[str, ...]:
        """The names of the losses: equations, then constraints."""
        return (*self.equation_names, *self.constraints)

    def parameters(self) -> Iterator[nn.Parameter]:
        """The unknown coefficients, for the optimizer; the network has its own."""
        return iter(self.unknowns.values())

    def to(self, device: torch.device | str) -> Problem:
        """Move points and unknown coefficients to a device; returns the problem itself."""
        self.device = torch.device(device)
        self.unknowns.to(self.device)
        self._groups = self._choose()
        self._collect()
        return self

    def sample(self, generator: torch.Generator | None = None) -> None:
        """Draw all points again; points added by :meth:`add_anchors` stay."""
        self._domain_points = self.domain.random_points(self.num_domain, self.sampler, generator)
        empty = torch.empty(0, self.domain.dim, dtype=torch.float64, device="cpu")
        boundary, normals, initial = empty, empty, empty
        if self.num_boundary:
            boundary, normals = self.domain.random_boundary_points(self.num_boundary, self.sampler, generator)
        if isinstance(self.domain, GeometryXTime) and self.num_initial:
            initial = self.domain.random_initial_points(self.num_initial, self.sampler, generator)
        self._pools = Pools(boundary, normals, initial)
        self._groups = self._choose()
        self._collect()

    def add_anchors(self, points: Tensor) -> None:
        """Evaluate the equations at these points too, from now on (they may repeat points that are there)."""
        if points.dim() != 2 or points.shape[1] != self.domain.dim:
            raise ValueError(f"points must be a tensor [n, {self.domain.dim}], got shape {tuple(points.shape)}")
        self.anchors = torch.cat([self.anchors, points.detach().double().cpu()])
        self._collect()

    @property
    def points(self) -> Tensor:
        """Where the equations are evaluated, ``[n, dim]``."""
        return self._points

    def constraint_points(self, name: str) -> Points:
        """Where a condition is evaluated; float64."""
        return next(group.points for group in self._groups if name in group.names)

    def losses(self, network: Network) -> dict[str, Tensor]:
        """One scalar per objective, for ``opt.backward``."""
        self._check_network(network)
        found = {name: value.square().mean() for name, value in self.residuals(network).items()}
        for name, error in self.constraint_errors(network).items():
            found[name] = error.square().mean()
        return {name: found[name] for name in self.objectives}

    def residuals(self, network: Network, points: Tensor | None = None) -> dict[str, Tensor]:
        """The residual of each equation, ``[n, 1]``, at the problem's points or at these."""
        x = self._points if points is None else points.to(self.device, self.dtype)
        computed = Derivatives(network, x, self.names, self._requests, self.derivatives)
        found = self.equations(Fields(self.names, x, computed.get, dict(self.unknowns)))
        return _by_name(found)

    def constraint_errors(self, network: Network) -> dict[str, Tensor]:
        """By how much each condition is violated at its points, ``[n, 1]``."""
        found: dict[str, Tensor] = {}
        for group in self._groups:
            computed = Derivatives(network, group.inputs, self.names, group.requests, self.derivatives)
            fields = Fields(self.names, group.inputs, computed.get, dict(self.unknowns), group.normals)
            for name in group.names:
                found[name] = _column(self.constraints[name].error(fields), f"constraints[{name!r}]")
        return found

    def constraint_error(self, network: Network, name: str, rows: Tensor) -> Tensor:
        """By how much one condition is violated at some of its points, ``[len(rows), 1]``."""
        group = next(group for group in self._groups if name in group.names)
        rows = rows.to(self.device)
        count = len(group.points.x)
        used = torch.cat([rows + first for first in range(0, len(group.inputs), count)])  # with their images
        computed = Derivatives(network, group.inputs[used], self.names, group.requests, self.derivatives)

        def get(output: int, index: Index) -> Tensor:
            # A condition may have values of its own for all points, so it sees all of them, with zeros at the others.
            column = computed.get(output, index)
            return column.new_zeros(len(group.inputs), 1).index_copy(0, used, column)

        fields = Fields(self.names, group.inputs, get, dict(self.unknowns), group.normals)
        return _column(self.constraints[name].error(fields), f"constraints[{name!r}]")[rows]

    def error(self, network: Network) -> float:
        """The relative L2 error against the reference."""
        if self.reference is None:
            raise ValueError("reference: this problem was declared without one")
        return self.reference.error(network)

    def _dry_run(self) -> tuple[tuple[str, ...], set[Index]]:
        """The names of the residuals and the derivatives they ask for, from a run on a few points."""
        few = self._points[:3]
        recorder = Recorder(len(few), few)
        found = _by_name(self.equations(Fields(self.names, few, recorder.get, dict(self.unknowns))), len(few))
        return tuple(found), recorder.requests

    def _choose(self) -> list[_Group]:
        groups: dict[bytes, _Group] = {}
        for name, constraint in self.constraints.items():
            try:
                points = constraint.choose(self.domain, self.names, self._pools)
            except ValueError as error:
                raise ValueError(f"constraints[{name!r}]: {error}") from None
            if not len(points.x):
                pool = self._pools.boundary if constraint.at == "boundary" else self._pools.initial
                raise ValueError(
                    f"constraints[{name!r}] has no points: none of the {len(pool)} {constraint.at} points fulfils its "
                    f"'on'; check it, or raise num_{constraint.at}"
                )
            inputs = points.x if points.images is None else torch.cat([points.x, points.images])
            key = inputs.numpy().tobytes()
            if key not in groups:
                normals = None if points.normals is None else points.normals.to(self.device, self.dtype)
                groups[key] = _Group(points, inputs.to(self.device, self.dtype), normals, [], set())
            group = groups[key]
            recorder = Recorder(len(inputs), group.inputs)
            fields = Fields(self.names, group.inputs, recorder.get, dict(self.unknowns), group.normals)
            try:
                _column(constraint.error(fields), f"constraints[{name!r}]")
            except (ValueError, AttributeError) as error:
                raise type(error)(f"constraints[{name!r}]: {error}") from None
            group.names.append(name)
            group.requests |= recorder.requests
        return list(groups.values())

    def _collect(self) -> None:
        parts = [self._domain_points, self.anchors]
        if self.residual_points == "all":
            parts += [self._pools.boundary, self._pools.initial]
        self._points = torch.cat(parts).to(self.device, self.dtype)

    def _check_network(self, network: Network) -> None:
        if isinstance(network, nn.Module):
            first = next(network.parameters(), None)
            if first is not None and first.dtype != self.dtype:
                raise ValueError(f"the network is {first.dtype}, the problem {self.dtype}: give Problem(dtype=...)")
        if isinstance(network, FNN) and network.inputs != self.domain.dim:
            variables = f"{self.domain.dim} variables ({', '.join(self.names.variables)})"
            raise ValueError(f"the network takes {network.inputs} inputs, the problem has {variables}")


def _unknowns(values: Mapping[str, float], names: Names) -> nn.ParameterDict:
    taken = sorted({*values} & {*names.variables, *names.outputs})
    if taken:
        raise ValueError(f"unknowns: {taken[0]!r} is a variable or an output already")
    for name, value in values.items():
        if not isinstance(value, int | float) or not math.isfinite(value):
            raise ValueError(f"unknowns[{name!r}] must be a number, its first value, got {value!r}")
    return nn.ParameterDict({name: nn.Parameter(torch.tensor(float(value))) for name, value in values.items()})


def _by_name(found: Tensor | Mapping[str, Tensor], count: int | None = None) -> dict[str, Tensor]:
    """The residuals by name, checked. The names say that they are residuals: some solvers look for that."""
    named = found if isinstance(found, Mapping) else {PDE: found}
    if not named:
        raise ValueError("equations must return at least one residual, got none")
    return {
        name if name.startswith(PDE) else f"{PDE}_{name}": _column(value, f"equations: the residual {name!r}", count)
        for name, value in named.items()
    }


def _column(value: Tensor, what: str, count: int | None = None) -> Tensor:
    if isinstance(value, Tensor) and value.dim() == 2 and value.shape[1] == 1 and count in (None, len(value)):
        return value
    found = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
    raise ValueError(f"{what} must be a tensor [n, 1], one value per point, got {found}")
