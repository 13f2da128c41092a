"""What a case is: a problem with its reference, at a size that can be chosen, and what to draw of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .._constraints import Constraint, Domain
from .._fields import default_variables
from .._geometry import Geometry, GeometryXTime
from .._networks import FNN
from .._problem import PDE, Equations, Problem
from .._reference import Reference
from ._data import Computed, Data, Inquiry, NotComputed
from ._objectives import OBJECTIVES

DOMAIN_POINTS, BOUNDARY_POINTS, INITIAL_POINTS = 8192, 2048, 2048


@dataclass(frozen=True)
class View:
    """A picture: two variables along its axes, and one picture per set of fixed values of the others.

    ``View(("x", "y"), ({"t": 0.0}, {"t": 5.0}))`` is two maps of the plane. The values are of ``outputs``.

    Example:
        >>> from madamoo.pinn import cases
        >>> cases.get("wave1d").view.axes
        ('t', 'x')
    """

    axes: tuple[str, str]
    fixed: tuple[Mapping[str, float], ...] = ({},)
    outputs: tuple[str, ...] = ("u",)


@dataclass(frozen=True)
class Case:
    """One problem of the benchmark: everything but the sizes.

    Args:
        name: As in ``cases.get(name)``.
        label: As in PINNacle's tables; variants of ours have the label of what they vary.
        domain: Geometry and time.
        declare: From the data to the equations and the constraints by name.
        outputs: Names of the network's outputs.
        multiplier: Times the standard numbers of points (8,192, 2,048 and 2,048).
        reference: From the data to the solution to compare with.
        kind: Where the reference comes from: "exact", "file" or "computed".
        files: What the declaration and the reference read below ``pinnacle/`` in the data folder.
        exact: The solution as a function of the points, if it is known.
        view: What to draw.
        published: False for variants of ours.
        note: What to know of it.

    Example:
        >>> from madamoo.pinn import cases
        >>> case = cases.get("wave1d")
        >>> case.label, case.objectives, case.variables
        ('Wave 1d-C', ('pde', 'initial_speed', 'initial', 'ends'), ('x', 't'))
    """

    name: str
    label: str
    domain: Domain
    declare: Callable[[Data], tuple[Equations, Mapping[str, Constraint]]]
    reference: Callable[[Data], Reference]
    kind: str
    view: View
    outputs: tuple[str, ...] = ("u",)
    multiplier: int = 1
    files: tuple[str, ...] = ()
    exact: Callable[[Tensor], Tensor] | None = None
    published: bool = True
    note: str = ""

    @property
    def objectives(self) -> tuple[str, ...]:
        """The names of the losses, equations first."""
        return OBJECTIVES[self.name]

    @property
    def equation_names(self) -> tuple[str, ...]:
        return tuple(name for name in self.objectives if name.startswith(PDE))

    @property
    def variables(self) -> tuple[str, ...]:
        return default_variables(self.domain.dim, isinstance(self.domain, GeometryXTime))

    def problem(
        self, data: Data | None = None, *, scale: float = 1.0, reference: bool = True, **options: Any
    ) -> Problem:
        """The problem with the published numbers of points times ``scale``; ``options`` are :class:`Problem`'s.

        With ``reference=False`` none is loaded or computed.
        """
        data = Data() if data is None else data
        equations, constraints = self.declare(data)
        counts = {
            name: max(1, round(count * self.multiplier * scale))
            for name, count in (
                ("num_domain", DOMAIN_POINTS),
                ("num_boundary", BOUNDARY_POINTS),
                ("num_initial", INITIAL_POINTS),
            )
        }
        return Problem(
            self.domain,
            equations,
            constraints,
            **{
                "outputs": self.outputs,
                "reference": self.reference(data) if reference else None,
                **counts,
                **options,
            },
        )

    def kept(self, data: Data | None = None) -> Path | None:
        """The file that keeps the computed reference; None if it is not computed yet, or needs no computing."""
        data = Data() if data is None else data
        try:
            self.reference(Inquiry(data.root, data.cache))
        except Computed as found:
            return Path(found.args[0])
        except NotComputed:
            pass
        return None

    def network(self, width: int = 100, depth: int = 5, activation: str = "tanh", **options: Any) -> FNN:
        """A fully connected network of the right sizes; ``options`` are :class:`FNN`'s."""
        return FNN([self.domain.dim, *[width] * depth, len(self.outputs)], activation, **options)

    def grid(self, count: int = 101, fixed: Mapping[str, float] | None = None) -> tuple[Tensor, Tensor]:
        """The points of one picture [count * count, dim], the first axis slow, and which of them are in the domain."""
        chosen = self.view.fixed[0] if fixed is None else fixed
        columns: dict[str, Tensor] = {}
        names = self.variables
        sides = [
            torch.linspace(float(self.domain.low[i]), float(self.domain.high[i]), count, dtype=torch.float64)
            for i in (names.index(axis) for axis in self.view.axes)
        ]
        columns[self.view.axes[0]], columns[self.view.axes[1]] = (
            g.reshape(-1) for g in torch.meshgrid(*sides, indexing="ij")
        )
        points = torch.empty(count * count, len(names), dtype=torch.float64)
        for i, name in enumerate(names):
            if name in columns:
                points[:, i] = columns[name]
            elif name in chosen:
                points[:, i] = chosen[name]
            else:
                raise ValueError(f"fixed must have a value for {name}, got {', '.join(chosen) or 'none'}")
        space = self.domain.geometry if isinstance(self.domain, GeometryXTime) else self.domain
        assert isinstance(space, Geometry)
        return points, space.inside(points[:, : space.dim])


def exact_reference(domain: Domain, function: Callable[[Tensor], Tensor]) -> Callable[[Data], Reference]:
    """A known solution at evenly spread points: 2,500 in two dimensions, 20,000 beyond, as PINNacle takes."""

    def reference(data: Data) -> Reference:
        count = 2500 if domain.dim == 2 else 20000
        return Reference.exact(function, domain.random_points(count, "sobol"))

    return reference


def file_reference(name: str, dim: int, outputs: int = 1) -> Callable[[Data], Reference]:
    return lambda data: data.comsol(name, dim, outputs)
