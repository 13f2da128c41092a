"""Initial and boundary conditions, under DeepXDE's names: where they hold, and by how much they are violated."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ._fields import Fields, Names
from ._geometry import Geometry, GeometryXTime

Domain = Geometry | GeometryXTime
Value = float | Callable[[Tensor], Tensor]
"""A number, or a function from points ``[n, dim]`` to ``[n, 1]``."""
On = Geometry | Callable[[Tensor], Tensor] | None
"""A geometry (points of its boundary), a function from points to a mask ``[n]``, or None: all."""


@dataclass(frozen=True)
class Pools:
    """The points from which the conditions take theirs."""

    boundary: Tensor
    normals: Tensor
    initial: Tensor


@dataclass(frozen=True)
class Points:
    """Where a condition is evaluated; ``images`` are the points that x is identified with (periodic conditions)."""

    x: Tensor
    normals: Tensor | None = None
    images: Tensor | None = None


class Constraint(ABC):
    """One condition: one loss, the mean square of :meth:`error` over its points.

    Example:
        >>> from madamoo.pinn import IC, DirichletBC
        >>> DirichletBC(0.0).at, IC(1.0).at
        ('boundary', 'initial')
    """

    on: On = None
    at = "boundary"

    def choose(self, domain: Domain, names: Names, pools: Pools) -> Points:
        """Its points out of the pools."""
        x, normals = (pools.boundary, pools.normals) if self.at == "boundary" else (pools.initial, None)
        keep = mask_of(self.on, x, names)
        return Points(x[keep], None if normals is None else normals[keep])

    @abstractmethod
    def error(self, f: Fields) -> Tensor:
        """What is zero where the condition holds, ``[n, 1]``."""


def mask_of(on: On, x: Tensor, names: Names) -> Tensor:
    if on is None:
        return torch.ones(len(x), dtype=torch.bool, device="cpu")
    keep = on.on_boundary(x[:, : on.dim]) if isinstance(on, Geometry) else on(x)
    if not isinstance(keep, Tensor) or keep.shape != (len(x),) or keep.dtype != torch.bool:
        found = f"{keep.dtype} {tuple(keep.shape)}" if isinstance(keep, Tensor) else type(keep).__name__
        raise ValueError(f"on must return one bool per point, a mask of shape ({len(x)},), got {found}")
    return keep


def column(value: Value, x: Tensor) -> Tensor:
    """A number or a function of the points, as a column."""
    if not callable(value):
        return x.new_full((len(x), 1), float(value))
    found = value(x)
    if not isinstance(found, Tensor) or found.shape not in ((len(x), 1), (len(x),)):
        shape = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
        raise ValueError(f"func must return one value per point, a tensor ({len(x)}, 1), got {shape}")
    return found.reshape(-1, 1)


class DirichletBC(Constraint):
    """u = func(x) on the boundary, or where ``on`` holds.

    Example:
        >>> from madamoo import pinn
        >>> problem = pinn.Problem(pinn.Interval(0, 1), lambda f: f.u_xx + 1, {"ends": pinn.DirichletBC(0.0)})
        >>> problem.objectives
        ('pde', 'ends')
    """

    def __init__(self, func: Value = 0.0, on: On = None, component: str | int = 0) -> None:
        self.func, self.on, self.component = func, on, component

    def error(self, f: Fields) -> Tensor:
        return f.output(self.component) - column(self.func, f.points)


class IC(DirichletBC):
    """u = func(x) at the first moment.

    Example:
        >>> IC(lambda x: torch.sin(x[:, :1])).at
        'initial'
    """

    at = "initial"


class NeumannBC(Constraint):
    """du/dn = func(x).

    Example:
        >>> from madamoo import pinn
        >>> insulated = {"left": pinn.NeumannBC(0.0, on=lambda x: x[:, 0] == 0)}
        >>> pinn.Problem(pinn.Interval(0, 1), lambda f: f.u_xx, insulated).objectives
        ('pde', 'left')
    """

    def __init__(self, func: Value = 0.0, on: On = None, component: str | int = 0) -> None:
        self.func, self.on, self.component = func, on, component

    def error(self, f: Fields) -> Tensor:
        return f.normal_derivative(self.component) - column(self.func, f.points)


class RobinBC(Constraint):
    """du/dn = func(x, u).

    Example:
        >>> from madamoo import pinn
        >>> cooled = {"ends": pinn.RobinBC(lambda x, u: 1 - u)}
        >>> pinn.Problem(pinn.Interval(0, 1), lambda f: f.u_xx, cooled).objectives
        ('pde', 'ends')
    """

    def __init__(self, func: Callable[[Tensor, Tensor], Tensor], on: On = None, component: str | int = 0) -> None:
        self.func, self.on, self.component = func, on, component

    def error(self, f: Fields) -> Tensor:
        return f.normal_derivative(self.component) - self.func(f.points, f.output(self.component))


class OperatorBC(Constraint):
    """func(f) = 0 for any expression of the fields, on the boundary or ``at="initial"``: ``lambda f: f.u_t``.

    Example:
        >>> from madamoo import pinn
        >>> domain = pinn.Interval(0, 1) * pinn.TimeDomain(0, 1)
        >>> at_rest = {"rest": pinn.OperatorBC(lambda f: f.u_t, at="initial")}
        >>> pinn.Problem(domain, lambda f: f.u_tt - f.u_xx, at_rest, num_initial=10).objectives
        ('pde', 'rest')
    """

    def __init__(self, func: Callable[[Fields], Tensor], on: On = None, at: str = "boundary") -> None:
        if at not in ("boundary", "initial"):
            raise ValueError(f"at must be 'boundary' or 'initial', got {at!r}")
        self.func, self.on, self.at = func, on, at

    def error(self, f: Fields) -> Tensor:
        return self.func(f)


class PeriodicBC(Constraint):
    """u, or with ``derivative_order=1`` its derivative, is the same at both ends of a variable.

    Example:
        >>> from madamoo import pinn
        >>> same = {"ends": pinn.PeriodicBC("x"), "slopes": pinn.PeriodicBC("x", derivative_order=1)}
        >>> pinn.Problem(pinn.Interval(0, 1), lambda f: f.u_xx, same).objectives
        ('pde', 'ends', 'slopes')
    """

    def __init__(self, variable: str | int, component: str | int = 0, derivative_order: int = 0) -> None:
        if derivative_order not in (0, 1):
            raise ValueError(f"derivative_order must be 0 or 1, got {derivative_order}")
        self.variable, self.component, self.derivative_order = variable, component, derivative_order

    def choose(self, domain: Domain, names: Names, pools: Pools) -> Points:
        i = names.variable(self.variable)
        if i not in names.space:
            raise ValueError(f"variable of a PeriodicBC must be a coordinate of space, got {self.variable!r}")
        low, high = domain.low[i], domain.high[i]
        near = 1e-6 * (high - low)
        x = pools.boundary
        x = x[((x[:, i] - low).abs() <= near) | ((x[:, i] - high).abs() <= near)].clone()
        images = x.clone()
        x[:, i], images[:, i] = low, high
        return Points(x, None, images)

    def error(self, f: Fields) -> Tensor:
        half = len(f.points) // 2
        here, there = f.part(slice(0, half)), f.part(slice(half, None))
        if self.derivative_order:
            return here.jacobian(self.component, self.variable) - there.jacobian(self.component, self.variable)
        return here.output(self.component) - there.output(self.component)


class PointSetBC(Constraint):
    """u has these values at these points: measurements, or one value that fixes a constant.

    Example:
        >>> from madamoo import pinn
        >>> measured = {"measured": pinn.PointSetBC(torch.tensor([[0.5]]), 1.0)}
        >>> pinn.Problem(pinn.Interval(0, 1), lambda f: f.u_xx, measured).objectives
        ('pde', 'measured')
    """

    def __init__(self, points: Tensor, values: Tensor | float, component: str | int = 0) -> None:
        points = torch.as_tensor(points, dtype=torch.float64, device="cpu")
        self.values = torch.as_tensor(values, dtype=torch.float64, device="cpu").reshape(-1, 1).expand(len(points), 1)
        if points.dim() != 2:
            raise ValueError(f"points must be a tensor [n, dim], got shape {tuple(points.shape)}")
        self.points, self.component = points, component

    def choose(self, domain: Domain, names: Names, pools: Pools) -> Points:
        if self.points.shape[1] != len(names.variables):
            raise ValueError(
                f"points must have one column per variable ({', '.join(names.variables)}), got {self.points.shape[1]}"
            )
        return Points(self.points)

    def error(self, f: Fields) -> Tensor:
        return f.output(self.component) - self.values.to(f.points)
