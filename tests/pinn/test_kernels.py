"""Traces of the tangent kernel against Jacobians in closed form and by finite rows, and NTK in training."""

import numpy as np
import pytest
import torch

from madamoo import MAdam, solvers
from madamoo.pinn import (
    FNN,
    IC,
    DirichletBC,
    Interval,
    NeumannBC,
    PeriodicBC,
    PointSetBC,
    Problem,
    TimeDomain,
    kernel_sums,
    kernel_traces,
    observe_kernel,
    train,
)


class Polynomial(torch.nn.Module):
    """u = a + b x + c x^2: linear in its parameters, so every Jacobian can be written down."""

    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.tensor([0.3, -0.2, 0.7], dtype=torch.float64))

    def forward(self, x):
        return self.w[0] + x * self.w[1] + x * x * self.w[2]


def ode(**options):
    """u'' + 2 u' = 1, u(0) = u(1) = 0, measured at two points."""
    measured = torch.tensor([[0.25], [0.5]], dtype=torch.float64)
    return Problem(
        Interval(0, 1),
        lambda f: f.u_xx + 2 * f.u_x - 1,
        {"ends": DirichletBC(0.0), "data": PointSetBC(measured, torch.tensor([1.0, 2.0]))},
        **{"num_domain": 40, "num_boundary": 6, "dtype": torch.float64, **options},
    )


@pytest.mark.parametrize("derivatives", ["taylor", "reverse"])
def test_traces_and_sums_of_a_polynomial(derivatives):
    problem, network = ode(derivatives=derivatives), Polynomial()
    x = problem.points.numpy()[:, 0]
    ends = problem.constraint_points("ends").x.numpy()[:, 0]
    data = np.array([0.25, 0.5])
    J = {  # d residual / d (a, b, c)
        "pde": np.stack([0 * x, 2 + 0 * x, 2 + 4 * x], 1),
        "ends": np.stack([1 + 0 * ends, ends, ends**2], 1),
        "data": np.stack([1 + 0 * data, data, data**2], 1),
    }
    found = kernel_traces(problem, network)
    assert list(found) == ["pde", "ends", "data"]
    for name, jacobian in J.items():
        assert found[name] == pytest.approx(np.trace(jacobian @ jacobian.T))
    sums = kernel_sums(problem, network)
    conditions = (J["ends"].sum(0) + J["data"].sum(0)) @ (J["ends"].sum(0) + J["data"].sum(0))
    assert sums["pde"] == pytest.approx(J["pde"].sum(0) @ J["pde"].sum(0))
    assert sums["ends"] == sums["data"] == pytest.approx(conditions)


def test_every_condition_on_a_network_equals_one_gradient_per_point():
    problem = Problem(
        Interval(-1, 1) * TimeDomain(0, 1),
        lambda f: f.u_t + f.u * f.u_x - f.c * f.u_xx,
        {
            "initial": IC(lambda x: torch.sin(x[:, :1])),
            "slope": NeumannBC(0.5),
            "periodic": PeriodicBC("x"),
            "periodic_slope": PeriodicBC("x", derivative_order=1),
        },
        unknowns={"c": 0.1},
        num_domain=20,
        num_boundary=8,
        num_initial=5,
        dtype=torch.float64,
    )
    network = FNN([2, 7, 1], generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    params = [*network.parameters(), *problem.parameters()]
    wanted = {}
    for name, residual in (problem.residuals(network) | problem.constraint_errors(network)).items():
        rows = [torch.autograd.grad(r, params, retain_graph=True, allow_unused=True) for r in residual.reshape(-1)]
        wanted[name] = float(sum(g.square().sum() for row in rows for g in row if g is not None))
    found = kernel_traces(problem, network)
    assert found == pytest.approx(wanted)
    # A part of the points estimates the whole; all of them are the whole.
    assert kernel_traces(problem, network, points=10**6) == found
    few = kernel_traces(problem, network, points=4)
    assert few != found and all(0.3 < few[name] / found[name] < 3 for name in found)


def test_fewer_points_are_a_better_estimate_than_random_combinations():
    """The reason why there is no Hutchinson estimate: the kernel has few large eigenvalues, so that is noisy."""
    problem = ode(num_domain=400)
    network = FNN([1, 20, 20, 1], generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    params = list(network.parameters())
    exact = kernel_traces(problem, network)["pde"]
    sampled = [abs(kernel_traces(problem, network, points=k)["pde"] / exact - 1) for k in (16, 20, 24, 28)]
    generator, probed = torch.Generator().manual_seed(0), []
    for _ in range(8):
        residual = problem.residuals(network)["pde"]
        estimate = 0.0
        for _ in range(16):
            signs = torch.randint(0, 2, residual.shape, generator=generator).to(residual) * 2 - 1
            rows = torch.autograd.grad((signs * residual).sum(), params, retain_graph=True, allow_unused=True)
            estimate += float(sum(g.square().sum() for g in rows if g is not None)) / 16
        probed.append(abs(estimate / exact - 1))
    assert max(sampled) < 0.5 * np.mean(probed)


def test_training_balances_an_equation():
    for name in ("ntk", "lra"):
        problem, network = ode(), FNN([1, 12, 12, 1], generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        opt = MAdam(network.parameters(), lr=3e-3, solver=name)
        with torch.no_grad():
            first = sum(problem.losses(network).values())
        assert sum(train(problem, network, opt, 60).values()) < first, name
        assert opt.objectives == problem.objectives
        assert opt.weights_by_name["ends"] > opt.weights_by_name["pde"] >= 1.0, name


def test_pinnacles_form_in_training():
    problem, network = ode(), FNN([1, 12, 12, 1], generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    opt = MAdam(network.parameters(), lr=1e-3, solver="ntkpinnacle")
    for _ in range(2):
        sums = kernel_sums(problem, network)
        train(problem, network, opt, 1)
        weights = opt.weights_by_name
        assert weights["pde"] == pytest.approx((sums["pde"] + sums["ends"]) / sums["pde"])
        assert weights["ends"] == weights["data"] == pytest.approx((sums["pde"] + sums["ends"]) / sums["ends"])


def test_the_optimizers_order_of_objectives_holds():
    problem, network = ode(), Polynomial()
    opt = MAdam(network.parameters(), solver=solvers.NTK(), objectives=["data", "pde", "ends"])
    observe_kernel(problem, network, opt, points=None)
    opt.backward(problem.losses(network))
    traces = kernel_traces(problem, network)
    for name, weight in opt.weights_by_name.items():
        assert weight == pytest.approx(sum(traces.values()) / traces[name])


def test_points_are_checked():
    with pytest.raises(ValueError, match="points must be at least 1 or None, got 0"):
        kernel_traces(ode(), Polynomial(), points=0)
