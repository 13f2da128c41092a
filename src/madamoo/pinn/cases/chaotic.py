"""Chaotic dynamics: Gray-Scott and Kuramoto-Sivashinsky, as published without a boundary condition, and periodic."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .._constraints import IC, Constraint, PeriodicBC
from .._fields import Fields
from .._geometry import Interval, Rectangle, TimeDomain
from .._problem import Equations
from .._reference import Reference
from ._case import Case, View
from ._data import Data, on_grid

PI = math.pi
ALPHA, BETA, GAMMA = 100 / 16, 100 / 16**2, 100 / 16**4
FEED, DECAY, DIFFUSION = 0.04, 0.1, (1e-5, 5e-6)
Array = NDArray[np.float64]


def _ks(f: Fields) -> Tensor:
    return f.u_t + ALPHA * f.u * f.u_x + BETA * f.u_xx + GAMMA * f.u_xxxx


def _declare_ks(periodic: bool) -> Callable[[Data], tuple[Equations, Mapping[str, Constraint]]]:
    constraints: dict[str, Constraint] = {"initial": IC(lambda x: torch.cos(x[:, :1]) * (1 + torch.sin(x[:, :1])))}
    if periodic:
        constraints |= {"periodic": PeriodicBC("x"), "periodic_x": PeriodicBC("x", derivative_order=1)}
    return lambda data: (_ks, constraints)


def solve_ks(data: Data, n: int = 512, step: float = 1e-4) -> Reference:
    from ..references import kuramoto_sivashinsky

    times = np.linspace(0, 1, 101)
    x, u = kuramoto_sivashinsky(lambda x: np.cos(x) * (1 + np.sin(x)), list(times), n, step, ALPHA, BETA, GAMMA)
    every = max(1, n // 128)
    return on_grid([x[::every], times], u[:, ::every].T)


def _start_u(x: Tensor) -> Tensor:
    return 1 - torch.exp(-80 * ((x[:, :1] + 0.05) ** 2 + (x[:, 1:2] + 0.02) ** 2))


def _start_v(x: Tensor) -> Tensor:
    return torch.exp(-80 * ((x[:, :1] - 0.05) ** 2 + (x[:, 1:2] - 0.02) ** 2))


def _gray_scott(f: Fields) -> dict[str, Tensor]:
    reaction = f.u * f.v**2
    return {
        "pde_u": f.u_t - DIFFUSION[0] * f.laplacian("u") - FEED * (1 - f.u) + reaction,
        "pde_v": f.v_t - DIFFUSION[1] * f.laplacian("v") + DECAY * f.v - reaction,
    }


def _declare_gray_scott(periodic: bool) -> Callable[[Data], tuple[Equations, Mapping[str, Constraint]]]:
    constraints: dict[str, Constraint] = {
        "initial_u": IC(_start_u, component="u"),
        "initial_v": IC(_start_v, component="v"),
    }
    if periodic:
        for variable in "xy":
            for which in "uv":
                constraints[f"periodic_{which}_{variable}"] = PeriodicBC(variable, component=which)
    return lambda data: (_gray_scott, constraints)


def solve_gray_scott(data: Data, n: int = 512, step: float = 0.5) -> Reference:
    from ..references import gray_scott

    def start(x: Array, y: Array) -> tuple[Array, Array]:
        points = torch.from_numpy(np.stack([x.ravel(), y.ravel()], 1))
        return _start_u(points).numpy().reshape(x.shape), _start_v(points).numpy().reshape(x.shape)

    times = np.linspace(0, 200, 21)
    x, found = gray_scott(start, list(times), n, step, DIFFUSION, FEED, DECAY)
    every = max(1, n // 64)
    return on_grid([x[::every], x[::every], times], found[:, :, ::every, ::every].transpose(2, 3, 0, 1))


KS = Case(
    "kuramoto-sivashinsky",
    "Chaotic KS",
    Interval(0, 2 * PI) * TimeDomain(0, 1),
    _declare_ks(False),
    lambda data: data.computed("kuramoto-sivashinsky", "n=512 step=1e-4 v1", lambda: solve_ks(data)),
    "computed",
    View(("t", "x")),
    note="published without a boundary condition; the reference is periodic",
)
GRAY_SCOTT = Case(
    "gray-scott",
    "Chaotic GS",
    Rectangle((-1, -1), (1, 1)) * TimeDomain(0, 200),
    _declare_gray_scott(False),
    lambda data: data.computed("gray-scott", "n=512 step=0.5 v1", lambda: solve_gray_scott(data)),
    "computed",
    View(("x", "y"), ({"t": 0.0}, {"t": 100.0}, {"t": 200.0}), ("u", "v")),
    outputs=("u", "v"),
    multiplier=4,
    note="published without a boundary condition; the reference is periodic",
)
WELL_POSED = "the published case made well posed by periodic boundary conditions"

CASES = [
    KS,
    replace(KS, name="kuramoto-sivashinsky-periodic", declare=_declare_ks(True), published=False, note=WELL_POSED),
    GRAY_SCOTT,
    replace(
        GRAY_SCOTT, name="gray-scott-periodic", declare=_declare_gray_scott(True), published=False, note=WELL_POSED
    ),
]
