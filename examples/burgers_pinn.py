"""Burgers' equation by a physics-informed network: one loss per equation and condition, balanced by MAdam.

``python examples/burgers_pinn.py`` declares the equation in a few lines, trains it with Adam and with MAdam on the same
points from the same weights, polishes MAdam's result by L-BFGS, and prints the relative errors. The solution to compare
with is computed on the spot, by finite differences.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from madamoo import MAdam, MultiObjective, pinn, solvers

NU, STEPS = 0.05 / math.pi, 400


def burgers(f: pinn.Fields) -> Tensor:
    return f.u_t + f.u * f.u_x - NU * f.u_xx


def finite_differences(cells: int = 400, moments: int = 11) -> pinn.Reference:
    """Central differences in conservation form and Heun's steps, on a grid that resolves the front."""
    x = torch.linspace(-1, 1, cells + 1, dtype=torch.float64)
    u, h = -torch.sin(math.pi * x), 2 / cells
    per = math.ceil(1 / (moments - 1) / (0.2 * h**2 / NU))
    step = 1 / (moments - 1) / per

    def slope(u: Tensor) -> Tensor:
        flux = (u[1:] ** 2 + u[:-1] ** 2) / 4 - NU * (u[1:] - u[:-1]) / h
        return torch.nn.functional.pad((flux[:-1] - flux[1:]) / h, (1, 1))

    rows = [u]
    for _ in range(moments - 1):
        for _ in range(per):
            first = slope(u)
            u = u + step / 2 * (first + slope(u + step * first))
        rows.append(u)
    t = torch.linspace(0, 1, moments, dtype=torch.float64)
    points = torch.cartesian_prod(t, x[::4]).flip(1)
    return pinn.Reference(points, torch.stack(rows)[:, ::4].reshape(-1, 1))


def declare(reference: pinn.Reference | None) -> pinn.Problem:
    return pinn.Problem(
        pinn.Interval(-1, 1) * pinn.TimeDomain(0, 1),
        burgers,
        {
            "initial": pinn.IC(lambda x: -torch.sin(math.pi * x[:, :1])),
            "ends": pinn.DirichletBC(0.0),
        },
        num_domain=800,
        num_boundary=80,
        num_initial=80,
        reference=reference,
    )


def train(problem: pinn.Problem, method: str) -> pinn.FNN:
    network = pinn.FNN([2, 32, 32, 32, 1], generator=torch.Generator().manual_seed(0))
    solver = solvers.LS({"pde": 1.0, "initial": 10.0, "ends": 10.0})
    if method == "madam":
        opt: MultiObjective = MAdam(network.parameters(), lr=1e-2, solver=solver)
    else:
        opt = MultiObjective(torch.optim.Adam(network.parameters(), lr=1e-2), solver)
    pinn.train(problem, network, opt, STEPS)
    return network


def main() -> None:
    problem = declare(finite_differences())
    for method in ("adam", "madam"):
        network = train(problem, method)
        print(f"{method:6} relative error {problem.error(network):.4f}")
    before = problem.error(network)
    pinn.polish(problem, network, 150, weights={"pde": 1.0, "initial": 10.0, "ends": 10.0})
    print(f"madam, then L-BFGS: relative error {problem.error(network):.4f}")
    print("L-BFGS lowered the error:", problem.error(network) < before)


if __name__ == "__main__":
    main()
