"""Burgers' equation in one and two dimensions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .._constraints import IC, Constraint, DirichletBC, PeriodicBC
from .._fields import Fields
from .._geometry import Interval, Rectangle, TimeDomain
from .._problem import Equations
from .._reference import Reference
from ._case import Case, View, file_reference
from ._data import Data, on_grid

PI = math.pi
NU_1D, NU_2D, SIDE = 0.01 / PI, 0.001, 4.0


def _declare_1d(data: Data) -> tuple[Equations, Mapping[str, Constraint]]:
    return lambda f: f.u_t + f.u * f.u_x - NU_1D * f.u_xx, {
        "initial": IC(lambda x: -torch.sin(PI * x[:, :1])),
        "ends": DirichletBC(0.0),
    }


def start_2d(data: Data, which: str, number: int = 0) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """The coefficients of the initial velocity ``which`` ("u" or "v"): of sines, of cosines, and its mean."""
    mean = data.field(f"burgers2d_ic_c_{number}")["uv".index(which)]
    return data.field(f"burgers2d_ic_A{which}_{number}"), data.field(f"burgers2d_ic_B{which}_{number}"), float(mean)


def start_value(x: Tensor, coefficients: tuple[NDArray[np.float64], NDArray[np.float64], float]) -> Tensor:
    """c + sum over i, j of A_ij sin(2 pi (i x + j y) / 4) + B_ij cos(...), [n, 1]."""
    a, b, mean = coefficients
    i = torch.arange(len(a), dtype=x.dtype, device=x.device)
    angle = 2 * PI / SIDE * (x[:, 0, None, None] * i[:, None] + x[:, 1, None, None] * i)
    sines, cosines = (torch.as_tensor(part, dtype=x.dtype, device=x.device) for part in (a, b))
    return mean + (sines * torch.sin(angle) + cosines * torch.cos(angle)).sum((1, 2))[:, None]


def _declare_2d(data: Data) -> tuple[Equations, Mapping[str, Constraint]]:
    def equations(f: Fields) -> dict[str, Tensor]:
        return {
            "pde_u": f.u_t + f.u * f.u_x + f.v * f.u_y - NU_2D * f.laplacian("u"),
            "pde_v": f.v_t + f.u * f.v_x + f.v * f.v_y - NU_2D * f.laplacian("v"),
        }

    start = {which: start_2d(data, which) for which in "uv"}
    constraints: dict[str, Constraint] = {
        f"initial_{which}": IC(partial(start_value, coefficients=start[which]), component=which) for which in "uv"
    }
    for variable in "xy":
        for which in "uv":
            constraints[f"periodic_{which}_{variable}"] = PeriodicBC(variable, component=which)
    return equations, constraints


def solve_2d(data: Data, n: int = 512, step: float = 2e-3, samples: int = 64, moments: int = 11) -> Reference:
    from ..references import burgers_2d

    times = np.linspace(0, 1, moments)
    start = [start_2d(data, which) for which in "uv"]

    def first(x: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        points = torch.from_numpy(np.stack([x.ravel(), y.ravel()], 1))
        u, v = (start_value(points, part).numpy().reshape(x.shape) for part in start)
        return u, v

    x, found = burgers_2d(first, list(times), n, step, NU_2D, SIDE)
    every = n // samples
    values = found[:, :, ::every, ::every].transpose(2, 3, 0, 1)
    return on_grid([x[::every], x[::every], times], values)


CASES = [
    Case(
        "burgers1d",
        "Burgers 1d-C",
        Interval(-1, 1) * TimeDomain(0, 1),
        _declare_1d,
        file_reference("ref/burgers1d.dat", 2),
        "file",
        View(("t", "x")),
        files=("ref/burgers1d.dat",),
    ),
    Case(
        "burgers2d",
        "Burgers 2d-C",
        Rectangle((0, 0), (SIDE, SIDE)) * TimeDomain(0, 1),
        _declare_2d,
        lambda data: data.computed("burgers2d", "n=512 step=2e-3 samples=64 moments=11 v2", lambda: solve_2d(data)),
        "computed",
        View(("x", "y"), ({"t": 0.0}, {"t": 0.5}, {"t": 1.0}), ("u", "v")),
        outputs=("u", "v"),
        multiplier=4,
        files=("regenerated_inputs.npz",),
        note="PINNacle's initial values are not at hand: these are regenerated Fourier coefficients. The fronts are "
        "thinner than the grid of the reference, which is good to about 5 per cent after they form.",
    ),
]
