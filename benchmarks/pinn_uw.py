"""Why uncertainty weighting does worse with MAdam than with Adam on a small Burgers problem, and what mends it.

    python benchmarks/pinn_uw.py errors     # relative errors by optimizer and rate
    python benchmarks/pinn_uw.py trace      # weights, sizes of the direction before and after the metric, and steps

UW makes lambda_i about 1 / (2 l_i). As the losses fall, lambda grows and the gradients shrink. The metric multiplies
today's lambda with averages of gradients of the last thousand steps.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from statistics import fmean, stdev
from typing import Any

import numpy as np
import torch
from torch import Tensor

from madamoo import MAdam, MultiObjective, PreferenceMetric, pinn, solvers

VISCOSITY = 0.1 / np.pi
STEPS = 800
CONTENDERS: dict[str, dict[str, Any] | None] = {
    "adam": None,
    "marginal": {"estimator": "marginal"},
    # Averages of all pairs; "auto" takes the marginal average under UW.
    "madam": {"estimator": "full"},
    "madam normalise": {"estimator": "full", "normalise": True},
    "madam beta=.99": {"estimator": "full", "beta": 0.99},
    "madam normalise beta=.99": {"estimator": "full", "normalise": True, "beta": 0.99},
}


def exact(points: np.ndarray) -> np.ndarray:
    """The solution of Burgers' equation from -sin(pi x), by Cole and Hopf, with Gauss-Hermite quadrature."""
    nodes, weights = np.polynomial.hermite.hermgauss(100)
    x, t = points[:, :1], points[:, 1:]
    y = x - np.sqrt(4 * VISCOSITY * t) * nodes
    f = weights * np.exp((1 - np.cos(np.pi * y)) / (2 * np.pi * VISCOSITY) - 2 / (2 * np.pi * VISCOSITY))
    return -(np.sin(np.pi * y) * f).sum(1, keepdims=True) / f.sum(1, keepdims=True)


def problem() -> pinn.Problem:
    grid = np.stack(np.meshgrid(np.linspace(-1, 1, 101), np.linspace(0, 1, 51)), -1).reshape(-1, 2)
    return pinn.Problem(
        pinn.Interval(-1, 1) * pinn.TimeDomain(0, 1),
        lambda f: f.u_t + f.u * f.u_x - VISCOSITY * f.u_xx,
        {"initial": pinn.IC(lambda x: -torch.sin(torch.pi * x[:, :1])), "ends": pinn.DirichletBC(0.0)},
        num_domain=300,
        num_boundary=50,
        num_initial=50,
        sampler="hammersley",
        reference=pinn.Reference(torch.tensor(grid), torch.tensor(exact(grid))),
    )


def build(network: pinn.FNN, optimizer: str, lr: float, solver: str) -> MultiObjective:
    options, made = CONTENDERS[optimizer], solvers.get(solver)
    if options is None:
        return MultiObjective(torch.optim.Adam(network.parameters(), lr=lr), made)
    return MAdam(network.parameters(), lr=lr, solver=made, metric=PreferenceMetric(**options))


def steps(
    found: pinn.Problem, optimizer: str, lr: float, seed: int, solver: str
) -> Iterator[tuple[pinn.FNN, MultiObjective, dict[str, Tensor], float]]:
    """Network, optimizer, losses and the root mean square of the update over the rate, after each step."""
    torch.manual_seed(seed)
    network = pinn.FNN([2, 20, 20, 20, 1])
    opt = build(network, optimizer, lr, solver)
    for step in range(STEPS):
        rate = lr * 0.5 * (1 + np.cos(np.pi * step / STEPS))
        opt.param_groups[0]["lr"] = rate
        opt.zero_grad()
        losses = found.losses(network)
        opt.backward(losses)
        before = torch.nn.utils.parameters_to_vector(network.parameters()).detach().clone()
        opt.step()
        after = torch.nn.utils.parameters_to_vector(network.parameters()).detach()
        yield network, opt, losses, float((after - before).square().mean().sqrt() / rate)


def trace(solver: str, lr: float, chosen: list[str]) -> None:
    found = problem()
    for optimizer in chosen:
        print(f"\n{solver}, {optimizer}, rate {lr:g}, seed 0")
        print("   step   loss: pde   initial      ends   lambda: pde   initial      ends   |d|    |d/M|  step/rate")
        for step, (network, opt, losses, moved) in enumerate(steps(found, optimizer, lr, 0, solver), 1):
            if step in (1, 50, 100, 200, 300, 400, 500, 600, 700, 800):
                rows = torch.autograd.grad(
                    sum(w * loss for w, loss in zip(opt.weights.tolist(), found.losses(network).values(), strict=True)),
                    list(network.parameters()),
                )
                size = torch.nn.utils.parameters_to_vector(rows).square().mean().sqrt()
                written = torch.cat([p.grad.flatten() for p in network.parameters()]).square().mean().sqrt()
                print(
                    f"{step:7d}",
                    *(f"{float(v.detach()):10.2e}" for v in losses.values()),
                    "   ",
                    *(f"{w:9.3g}" for w in opt.weights.tolist()),
                    f"{size:9.2e} {written:8.2e} {moved:8.3f}",
                )
        print(f"relative error {found.error(network):.4f}", flush=True)


def errors(solver: str, rates: list[float], seeds: list[int], chosen: list[str]) -> None:
    found = problem()
    print(f"{solver}: relative error, {STEPS} steps; rates on the first seed, all seeds at the best one")
    print(
        f"{'optimizer':28s}" + "".join(f"{rate:>10g}" for rate in rates) + "    at the best rate: seeds, mean",
        flush=True,
    )
    for optimizer in chosen:
        first = {rate: _error(found, optimizer, rate, seeds[0], solver) for rate in rates}
        best = min(first, key=lambda rate: first[rate])
        others = [first[best], *(_error(found, optimizer, best, seed, solver) for seed in seeds[1:])]
        spread = f" +- {stdev(others):.4f}" if len(others) > 1 else ""
        print(
            f"{optimizer:28s}" + "".join(f"{first[rate]:10.4f}" for rate in rates),
            f"   {best:g}:",
            *(f"{error:.4f}" for error in others),
            f"  {fmean(others):.4f}{spread}",
            flush=True,
        )


def _error(found: pinn.Problem, optimizer: str, lr: float, seed: int, solver: str) -> float:
    *_, (network, _, _, _) = steps(found, optimizer, lr, seed, solver)
    return float(found.error(network))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("errors", "trace"))
    parser.add_argument("--solver", default="uw")
    parser.add_argument("--rates", type=float, nargs="+", default=[3e-3, 1e-2, 3e-2])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--optimizers", nargs="+", default=list(CONTENDERS), choices=list(CONTENDERS))
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.what == "trace":
        trace(given.solver, given.rates[-1], given.optimizers)
    else:
        errors(given.solver, given.rates, given.seeds, given.optimizers)
