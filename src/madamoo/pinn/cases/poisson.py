"""Poisson equations: holes, many blocks, three and five dimensions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import reduce

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .._constraints import Constraint, DirichletBC, NeumannBC, RobinBC
from .._fields import Fields
from .._geometry import Cuboid, Disk, Geometry, Hypercube, Rectangle, Sphere
from .._problem import Equations
from .._reference import Reference
from ._case import Case, View, exact_reference, file_reference
from ._data import Data

PI = math.pi
SQUARE = Rectangle((-0.5, -0.5), (0.5, 0.5))
SQUARE_HOLES = tuple((x, y, 0.1) for x in (0.3, -0.3) for y in (0.3, -0.3))
BOLTZMANN = Rectangle((-1, -1), (1, 1))
BOLTZMANN_HOLES = ((0.5, 0.5, 0.2), (0.4, -0.4, 0.4), (-0.2, -0.7, 0.1), (-0.6, 0.5, 0.3))
CUBE_HOLES = ((0.4, 0.3, 0.6, 0.2), (0.6, 0.7, 0.6, 0.2), (0.2, 0.8, 0.7, 0.1), (0.6, 0.2, 0.3, 0.1))
BLOCKS, HALF = 5, 10.0


def without(whole: Geometry, holes: tuple[tuple[float, ...], ...]) -> Geometry:
    ball = Disk if whole.dim == 2 else Sphere
    return reduce(lambda left, hole: left - ball(hole[:-1], hole[-1]), holes, whole)


def _declare_holes(data: Data) -> tuple[Equations, Mapping[str, Constraint]]:
    return lambda f: f.laplacian(), {
        "outer": DirichletBC(1.0, on=SQUARE),
        "disks": DirichletBC(0.0, on=lambda x: ~SQUARE.on_boundary(x)),
    }


def boltzmann_source(x: Tensor, y: Tensor) -> Tensor:
    return 10 * (17 + x**2 + y**2) * torch.sin(PI * x) * torch.sin(4 * PI * y)


def _declare_boltzmann(data: Data) -> tuple[Equations, Mapping[str, Constraint]]:
    return lambda f: -f.laplacian() + 64 * f.u - boltzmann_source(f.x, f.y), {
        "outer": DirichletBC(0.2, on=BOLTZMANN),
        "disks": DirichletBC(1.0, on=lambda x: ~BOLTZMANN.on_boundary(x)),
    }


def source_3d(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    r2 = x**2 + y**2 + z**2
    waves = torch.sin(PI * x), torch.sin(10 * PI * y), torch.sin(5 * PI * z)
    return 20 * torch.exp(sum(waves)) * (r2 - 1) / (r2 + 1) + 100 * math.prod(waves)  # type: ignore[arg-type]


def reaction_3d(z: Tensor) -> Tensor:
    return torch.where(z < 0.5, 64.0, 100.0).to(z.dtype)


def _declare_3d(data: Data) -> tuple[Equations, Mapping[str, Constraint]]:
    return lambda f: -f.laplacian() + reaction_3d(f.z) * f.u - source_3d(f.x, f.y, f.z), {"boundary": NeumannBC(0.0)}


def solve_3d(data: Data, size: float = 0.05) -> Reference:
    from ..references import disk_mesh, poisson_3d

    def of(function: object, *coordinates: NDArray[np.float64]) -> NDArray[np.float64]:
        found: NDArray[np.float64] = function(*map(torch.from_numpy, coordinates)).numpy()  # type: ignore[operator]
        return found

    mesh = disk_mesh((0, 0, 0), (1, 1, 1), CUBE_HOLES, size)
    points, values = poisson_3d(
        mesh, lambda x: of(source_3d, x[0], x[1], x[2]), [], reaction=lambda x: of(reaction_3d, x[2])
    )
    return Reference(torch.from_numpy(points), torch.from_numpy(values)[:, None])


class Blocks:
    """Coefficients that are constant (a), or of one sine (f), on each of 5 x 5 blocks of [-10, 10]^2."""

    def __init__(self, data: Data) -> None:
        self.a = torch.from_numpy(data.table("ref/poisson_a_coef.dat"))
        self.f = torch.from_numpy(data.table("ref/poisson_f_coef.dat")).reshape(BLOCKS, BLOCKS, 2, 2)

    def __call__(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """a and f at these places."""
        width = 2 * HALF / BLOCKS
        scaled = (x + HALF) / width, (y + HALF) / width
        i, j = (part.floor().clamp(0, BLOCKS - 1).long() for part in scaled)
        a, f = self.a.to(x)[i, j], self.f.to(x)[i, j]
        wave = torch.sin(PI * (scaled[0] - i)) * torch.sin(PI * (scaled[1] - j))
        return a, f[..., 0, 0] + f[..., 1, 1] * wave


def _declare_blocks(data: Data) -> tuple[Equations, Mapping[str, Constraint]]:
    blocks = Blocks(data)

    def equation(f: Fields) -> Tensor:
        a, source = blocks(f.x, f.y)
        return a * f.laplacian() + source

    return equation, {"boundary": RobinBC(lambda x, u: -u)}


def solve_blocks(data: Data, cells: int = 120) -> Reference:
    """Lap u = -f / a: with a outside the divergence the equation is Poisson's with a source that jumps."""
    from ..references import Robin, poisson_2d, square_mesh

    blocks = Blocks(data)

    def source(x: NDArray[np.float64]) -> NDArray[np.float64]:
        a, f = blocks(torch.from_numpy(x[0]), torch.from_numpy(x[1]))
        return (f / a).numpy()

    mesh = square_mesh((-HALF, -HALF), (HALF, HALF), (cells, cells))
    points, values = poisson_2d(mesh, source, [Robin(lambda x: x[0] > -np.inf)])
    return Reference(torch.from_numpy(points), torch.from_numpy(values)[:, None])


FIVE = Hypercube([0] * 5, [1] * 5)


def exact_5d(x: Tensor) -> Tensor:
    return torch.sin(PI / 2 * x).sum(1, keepdim=True)


def _declare_5d(data: Data) -> tuple[Equations, Mapping[str, Constraint]]:
    return lambda f: f.laplacian() + PI**2 / 4 * exact_5d(f.points), {"boundary": DirichletBC(exact_5d)}


CASES = [
    Case(
        "poisson2d",
        "Poisson 2d-C",
        without(SQUARE, SQUARE_HOLES),
        _declare_holes,
        file_reference("ref/poisson1_cg_data.dat", 2),
        "file",
        View(("x", "y")),
        files=("ref/poisson1_cg_data.dat",),
    ),
    Case(
        "poisson-boltzmann2d",
        "Poisson 2d-CG",
        without(BOLTZMANN, BOLTZMANN_HOLES),
        _declare_boltzmann,
        file_reference("ref/poisson_boltzmann2d.dat", 2),
        "file",
        View(("x", "y")),
        files=("ref/poisson_boltzmann2d.dat",),
        note="not in the tables of the paper on MAdam, which has 19 of the 20 cases",
    ),
    Case(
        "poisson3d",
        "Poisson 3d-CG",
        without(Cuboid((0, 0, 0), (1, 1, 1)), CUBE_HOLES),
        _declare_3d,
        lambda data: data.computed("poisson3d", "size=0.05 v1", lambda: solve_3d(data)),
        "computed",
        View(("x", "y"), ({"z": 0.25}, {"z": 0.6}, {"z": 0.9})),
        multiplier=4,
    ),
    Case(
        "poisson2d-many-area",
        "Poisson 2d-MS",
        Rectangle((-HALF, -HALF), (HALF, HALF)),
        _declare_blocks,
        lambda data: data.computed("poisson2d-many-area", "cells=120 v1", lambda: solve_blocks(data)),
        "computed",
        View(("x", "y")),
        files=("ref/poisson_a_coef.dat", "ref/poisson_f_coef.dat"),
        note="the reference solves what is coded, a Lap u + f = 0, not div(a grad u) + f = 0",
    ),
    Case(
        "poisson5d",
        "High-dim PNd",
        FIVE,
        _declare_5d,
        exact_reference(FIVE, exact_5d),
        "exact",
        View(("x1", "x2"), ({"x3": 0.5, "x4": 0.5, "x5": 0.5},)),
        multiplier=4,
        exact=exact_5d,
    ),
]
