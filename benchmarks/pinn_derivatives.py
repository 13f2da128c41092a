"""Losses and one gradient per objective of a physics-informed network, beside DeepXDE's losses and autograd.

    python benchmarks/pinn_derivatives.py [--points 8192] [--rounds 10]

Each case is timed in one process, its arms by turns, in processor time. All use the same 5x100 tanh network in float32
on one thread.

deepxde      deepxde's losses (its ``TimePDE``/``PDE`` data on the pytorch backend), then ``autograd.grad`` per loss
reverse      ours, derivatives by nested reverse mode
forward      ours, derivatives by ``torch.func.jvp`` over reverse mode (where the case is written out for it)
taylor       ours, derivatives carried through the network in one forward pass; what "auto" takes

Needs deepxde for its arm (``pip install deepxde``); without it that arm is left out.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("DDE_BACKEND", "pytorch")

import torch
from timing import describe_machine, mean_times
from torch import Tensor, nn

from madamoo import pinn

PI = math.pi
Losses = Callable[[], list[Tensor]]


def burgers(count: int, mode: str) -> pinn.Problem:
    return pinn.Problem(
        pinn.Interval(-1, 1) * pinn.TimeDomain(0, 1),
        lambda f: f.u_t + f.u * f.u_x - 0.01 / PI * f.u_xx,
        {"initial": pinn.IC(lambda x: -torch.sin(PI * x[:, :1])), "ends": pinn.DirichletBC()},
        num_domain=count,
        num_boundary=count // 4,
        num_initial=count // 4,
        derivatives=mode,
    )


def lid_driven(count: int, mode: str) -> pinn.Problem:
    def steady(f: pinn.Fields) -> dict[str, Tensor]:
        return {
            "momentum_x": f.u * f.u_x + f.v * f.u_y + f.p_x - 0.01 * f.laplacian("u"),
            "momentum_y": f.u * f.v_x + f.v * f.v_y + f.p_y - 0.01 * f.laplacian("v"),
            "continuity": f.u_x + f.v_y,
        }

    return pinn.Problem(
        pinn.Rectangle((0, 0), (1, 1)),
        steady,
        {
            "u": pinn.DirichletBC(lambda x: 4 * x[:, :1] * (1 - x[:, :1]) * (x[:, 1:2] == 1), component="u"),
            "v": pinn.DirichletBC(component="v"),
        },
        outputs=("u", "v", "p"),
        num_domain=count,
        num_boundary=count // 4,
        derivatives=mode,
    )


def poisson_5d(count: int, mode: str) -> pinn.Problem:
    def source(x: Tensor) -> Tensor:
        return torch.sin(PI / 2 * x).sum(1, keepdim=True)

    return pinn.Problem(
        pinn.Hypercube([0] * 5, [1] * 5),
        lambda f: f.laplacian() + PI**2 / 4 * source(f.points),
        {"boundary": pinn.DirichletBC(source)},
        num_domain=count,
        num_boundary=count // 4,
        derivatives=mode,
    )


def kuramoto(count: int, mode: str) -> pinn.Problem:
    return pinn.Problem(
        pinn.Interval(0, 2 * PI) * pinn.TimeDomain(0, 1),
        lambda f: f.u_t + 6.25 * f.u * f.u_x + 100 / 256 * f.u_xx + 100 / 65536 * f.u_xxxx,
        {"initial": pinn.IC(lambda x: torch.cos(x[:, :1]) * (1 + torch.sin(x[:, :1])))},
        num_domain=count,
        num_boundary=count // 4,
        num_initial=count // 4,
        derivatives=mode,
    )


CASES = {"burgers": (burgers, 2, 1), "lid-driven": (lid_driven, 2, 3), "poisson-5d": (poisson_5d, 5, 1)}
CASES["kuramoto-sivashinsky"] = (kuramoto, 2, 1)


def deepxde_losses(name: str, count: int, network: nn.Module) -> Losses:
    """The same case declared for DeepXDE, its own losses of our network's values."""
    import deepxde as dde
    import numpy as np

    def residual(x: Tensor, y: Tensor) -> Any:
        jacobian, hessian = dde.grad.jacobian, dde.grad.hessian
        if name == "burgers":
            return jacobian(y, x, i=0, j=1) + y * jacobian(y, x, i=0, j=0) - 0.01 / PI * hessian(y, x, i=0, j=0)
        if name == "lid-driven":
            u, v = y[:, 0:1], y[:, 1:2]
            u_x, u_y = jacobian(y, x, i=0, j=0), jacobian(y, x, i=0, j=1)
            v_x, v_y = jacobian(y, x, i=1, j=0), jacobian(y, x, i=1, j=1)
            lap = [hessian(y, x, component=c, i=0, j=0) + hessian(y, x, component=c, i=1, j=1) for c in (0, 1)]
            return [
                u * u_x + v * u_y + jacobian(y, x, i=2, j=0) - 0.01 * lap[0],
                u * v_x + v * v_y + jacobian(y, x, i=2, j=1) - 0.01 * lap[1],
                u_x + v_y,
            ]
        if name == "poisson-5d":
            lap = sum(hessian(y, x, i=i, j=i) for i in range(5))
            return lap + PI**2 / 4 * torch.sin(PI / 2 * x).sum(1, keepdim=True)
        u_xx = hessian(y, x, i=0, j=0)
        u_t, u_x = jacobian(y, x, i=0, j=1), jacobian(y, x, i=0, j=0)
        return u_t + 6.25 * y * u_x + 100 / 256 * u_xx + 100 / 65536 * hessian(u_xx, x, i=0, j=0)

    everywhere = lambda x, on: on  # noqa: E731
    amounts = {"num_domain": count, "num_boundary": count // 4, "train_distribution": "Hammersley"}
    if name in ("burgers", "kuramoto-sivashinsky"):
        interval = dde.geometry.Interval(*((-1, 1) if name == "burgers" else (0, 2 * PI)))
        geometry = dde.geometry.GeometryXTime(interval, dde.geometry.TimeDomain(0, 1))
        if name == "burgers":
            conditions = [
                dde.icbc.IC(geometry, lambda x: -np.sin(PI * x[:, :1]), everywhere),
                dde.icbc.DirichletBC(geometry, lambda x: 0, everywhere),
            ]
        else:
            conditions = [dde.icbc.IC(geometry, lambda x: np.cos(x[:, :1]) * (1 + np.sin(x[:, :1])), everywhere)]
        data = dde.data.TimePDE(geometry, residual, conditions, num_initial=count // 4, **amounts)
    elif name == "lid-driven":
        geometry = dde.geometry.Rectangle([0, 0], [1, 1])
        lid = lambda x: 4 * x[:, :1] * (1 - x[:, :1]) * (x[:, 1:2] == 1)  # noqa: E731
        conditions = [dde.icbc.DirichletBC(geometry, lid, everywhere, component=0)]
        conditions.append(dde.icbc.DirichletBC(geometry, lambda x: 0, everywhere, component=1))
        data = dde.data.PDE(geometry, residual, conditions, **amounts)
    else:
        geometry = dde.geometry.Hypercube([0] * 5, [1] * 5)
        exact = lambda x: np.sin(PI / 2 * x).sum(1, keepdims=True)  # noqa: E731
        data = dde.data.PDE(geometry, residual, [dde.icbc.DirichletBC(geometry, exact, everywhere)], **amounts)

    # PDE.losses asks only these two things of the model
    class Model:
        net = nn.Sequential(network)  # not ours itself: DeepXDE's attributes have the names of some of ours

    Model.net.auxiliary_vars = None  # type: ignore[assignment]
    x = torch.as_tensor(data.train_x, dtype=torch.float32)

    def losses() -> list[Tensor]:
        inputs = x.detach().requires_grad_()
        Model.net.inputs = inputs  # type: ignore[assignment]
        found = data.losses_train(None, network(inputs), lambda a, b: (a - b).square().mean(), inputs, Model)
        dde.gradients.clear()
        return list(found)

    return losses


def forward_over_reverse(problem: pinn.Problem, network: nn.Module, equation: Callable[..., Tensor]) -> Losses:
    """u_xx as the forward derivative of the reverse one, by torch.func; two variables, one output."""
    weights = dict(network.named_parameters())

    def u(x: Tensor) -> Tensor:
        return torch.func.functional_call(network, weights, (x,))

    def gradient(x: Tensor) -> tuple[Tensor, Tensor]:
        value, back = torch.func.vjp(u, x)
        return back(torch.ones_like(value))[0], value

    def losses() -> list[Tensor]:
        x = problem.points
        along = torch.zeros_like(x)
        along[:, 0] = 1
        first, second, value = torch.func.jvp(gradient, (x,), (along,), has_aux=True)
        residual = equation(value, first[:, :1], first[:, 1:], second[:, :1])
        return [residual.square().mean(), *(e.square().mean() for e in problem.constraint_errors(network).values())]

    return losses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=8192)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    given = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{describe_machine()}; {given.points} points in the domain, a quarter on the boundary, a quarter initial")
    print(f"{'case':22}{'C':>3}  " + "".join(f"{arm:>22}" for arm in ("deepxde", "reverse", "forward", "taylor")))
    for name in given.cases:
        build, dim, outputs = CASES[name]
        network = pinn.FNN([dim, *[100] * 5, outputs], generator=torch.Generator().manual_seed(0))
        params = list(network.parameters())
        taylor = build(given.points, "taylor")
        sources: dict[str, Losses] = {}
        try:
            sources["deepxde"] = deepxde_losses(name, given.points, network)
        except ModuleNotFoundError:
            print("deepxde is not installed: its arm is left out")
        reverse = build(given.points, "reverse")
        sources["reverse"] = lambda: list(reverse.losses(network).values())  # noqa: B023
        if name == "burgers":
            sources["forward"] = forward_over_reverse(
                taylor, network, lambda u, u_x, u_t, u_xx: u_t + u * u_x - 0.01 / PI * u_xx
            )
        sources["taylor"] = lambda: list(taylor.losses(network).values())  # noqa: B023

        def step(losses: Losses) -> list[tuple[Tensor, ...]]:
            found = losses()
            return [
                torch.autograd.grad(loss, params, retain_graph=i < len(found) - 1, materialize_grads=True)  # noqa: B023
                for i, loss in enumerate(found)
            ]

        arms = {arm: (lambda losses=losses: step(losses)) for arm, losses in sources.items()}
        times = mean_times(arms, given.rounds, warmup=1, clock=time.process_time)
        base = times.get("deepxde", times["reverse"])
        cells = (
            f"{1e3 * times[a]:12.0f} ms {times[a] / base:5.2f}x" if a in times else f"{'-':>22}"
            for a in ("deepxde", "reverse", "forward", "taylor")
        )
        print(f"{name:22}{len(taylor.objectives):3}  " + "".join(f"{cell:>22}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
