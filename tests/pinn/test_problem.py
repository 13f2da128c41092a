"""Declarations: the losses are what they say, and wrong declarations are refused in words."""

import math
import subprocess
import sys

import pytest
import torch
from torch import nn

from madamoo import MAdam, MultiObjective, PreferenceMetric, solvers
from madamoo.pinn import (
    FNN,
    IC,
    DirichletBC,
    Disk,
    Interval,
    NeumannBC,
    OperatorBC,
    PeriodicBC,
    PointSetBC,
    Problem,
    Rectangle,
    Reference,
    RobinBC,
    TimeDomain,
)

PI = math.pi
SQUARE = Rectangle((0, 0), (1, 1))


class Formula(nn.Module):
    """A solution in closed form in place of a network."""

    def __init__(self, function, dtype=torch.float64):
        super().__init__()
        self.function = function
        self.scale = nn.Parameter(torch.ones((), dtype=dtype))

    def forward(self, x):
        return self.scale * self.function(x)


def heat(**options):
    options = {"num_domain": 60, "num_boundary": 40, "num_initial": 20, "dtype": torch.float64, **options}
    return Problem(
        Interval(0, 1) * TimeDomain(0, 1),
        lambda f: f.u_t - f.u_xx,
        {"initial": IC(lambda x: torch.sin(PI * x[:, :1])), "ends": DirichletBC(0.0)},
        **options,
    )


def exact_heat(x):
    return torch.sin(PI * x[:, :1]) * torch.exp(-(PI**2) * x[:, 1:2])


def test_an_exact_solution_has_no_losses():
    for derivatives in ("taylor", "reverse"):
        for sampler in ("pseudo", "hammersley", "uniform"):
            problem = heat(derivatives=derivatives, sampler=sampler)
            losses = problem.losses(Formula(exact_heat))
            assert tuple(losses) == problem.objectives == ("pde", "initial", "ends")
            assert max(loss.item() for loss in losses.values()) < 1e-20
            # and twice the solution violates the initial condition alone
            losses = problem.losses(Formula(lambda x: 2 * exact_heat(x)))
            assert losses["pde"] < 1e-20 and losses["ends"] < 1e-20
            at = problem.constraint_points("initial").x
            torch.testing.assert_close(losses["initial"], exact_heat(at).square().mean())


def test_every_kind_of_condition():
    """u = x^2 y on the unit square: each condition's error is known at each point."""
    problem = Problem(
        SQUARE,
        lambda f: {
            "first": f.laplacian("u") - 2 * f.y,
            "second": f.hessian(0, 1) - f.hessian("y", "x") + f.jacobian(0, 1),
        },
        {
            "left": DirichletBC(lambda x: x[:, 1:2], on=lambda x: x[:, 0] == 0),
            "flux": NeumannBC(1.0, on=lambda x: x[:, 0] == 1),
            "robin": RobinBC(lambda x, u: 3 * u, on=lambda x: x[:, 1] == 1),
            "operator": OperatorBC(lambda f: f.u_x * f.normals[:, :1] + f.u, on=SQUARE),
            "periodic": PeriodicBC("x"),
            "slope": PeriodicBC("x", derivative_order=1),
            "probe": PointSetBC(torch.tensor([[0.5, 0.5], [1.0, 1.0]]), torch.tensor([0.0, 1.0])),
        },
        dtype=torch.float64,
    )
    network = Formula(lambda x: x[:, :1] ** 2 * x[:, 1:2])
    errors = problem.constraint_errors(network)
    x = {name: problem.constraint_points(name).x for name in problem.constraints}

    def parts(name):
        return x[name].T[:, :, None]

    a, b = parts("left")
    torch.testing.assert_close(errors["left"], -b)
    a, b = parts("flux")
    torch.testing.assert_close(errors["flux"], 2 * b - 1)
    a, b = parts("robin")
    torch.testing.assert_close(errors["robin"], a**2 - 3 * a**2)
    a, b = parts("operator")
    n = problem.constraint_points("operator").normals
    torch.testing.assert_close(errors["operator"], 2 * a * b * n[:, :1] + a**2 * b)
    _, b = parts("periodic")
    torch.testing.assert_close(errors["periodic"], -b)
    torch.testing.assert_close(errors["slope"], -2 * b)
    torch.testing.assert_close(errors["probe"], torch.tensor([[0.125], [0.0]], dtype=torch.float64))
    residuals = problem.residuals(network)
    assert residuals["pde_first"].abs().max() < 1e-12
    torch.testing.assert_close(residuals["pde_second"], problem.points[:, :1] ** 2)


def test_points():
    problem = heat()
    assert len(problem.points) == 120 and len(heat(residual_points="domain").points) == 60
    before = problem.points.clone()
    problem.add_anchors(torch.tensor([[0.5, 0.5]]))
    assert len(problem.points) == 121
    problem.sample(torch.Generator().manual_seed(0))
    assert len(problem.points) == 121 and not torch.equal(problem.points[:60], before[:60])
    assert torch.equal(problem.points[60], torch.tensor([0.5, 0.5], dtype=torch.float64))


def test_the_error_is_relative():
    points = torch.rand(50, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    problem = heat(reference=Reference.exact(exact_heat, points))
    assert problem.error(Formula(exact_heat)) < 1e-12
    assert math.isclose(problem.error(Formula(lambda x: 1.3 * exact_heat(x))), 0.3, rel_tol=1e-9)


def test_any_solver_and_optimizer_lowers_the_losses():
    for make in (
        lambda params: MAdam(params, lr=1e-2, solver=solvers.CAGrad(c=0.4)),
        lambda params: MAdam(params, lr=1e-2, solver=solvers.UW()),
        lambda params: MultiObjective(torch.optim.AdamW(params, lr=1e-2), metric=PreferenceMetric("full")),
    ):
        problem = heat(dtype=torch.float32)
        network = FNN([2, 16, 16, 1], generator=torch.Generator().manual_seed(0))
        opt = make(network.parameters())
        first = sum(loss.item() for loss in problem.losses(network).values())
        for _ in range(60):
            opt.zero_grad()
            opt.backward(problem.losses(network))
            opt.step()
        assert opt.objectives == problem.objectives
        assert sum(loss.item() for loss in problem.losses(network).values()) < first / 2


def bad(match, error=ValueError):
    return pytest.raises(error, match=match)


def test_wrong_declarations():
    time = Interval(0, 1) * TimeDomain(0, 1)
    with bad(r"f\.u_y: there is no such field or derivative; the variables are x, t, the outputs u", AttributeError):
        Problem(time, lambda f: f.u_y, {})
    with bad(r"constraints\['top'\]: f\.w_x: there is no such", AttributeError):
        Problem(time, lambda f: f.u, {"top": OperatorBC(lambda f: f.w_x)})
    with bad(r"constraints\['hole'\] has no points: none of the 200 boundary points fulfils its 'on'"):
        Problem(time, lambda f: f.u, {"hole": DirichletBC(on=lambda x: x[:, 0] > 2)})
    with bad(r"constraints\['hole'\] has no points"):
        Problem(SQUARE, lambda f: f.u, {"hole": DirichletBC(on=Disk((0.5, 0.5), 0.1))})
    with bad(r"has no points.*raise num_initial"):
        Problem(time, lambda f: f.u, {"initial": IC()}, num_initial=0)
    with bad(r"constraints\['initial'\] holds at the first moment, but the domain has no time"):
        Problem(SQUARE, lambda f: f.u, {"initial": IC()})
    with bad(r"the residual 'pde' must be a tensor \[n, 1\].*got \(3,\)"):
        Problem(time, lambda f: f.u[:, 0], {})
    with bad(r"at least one residual"):
        Problem(time, lambda f: {}, {})
    with bad(r"constraints\['ends'\]: func must return one value per point, a tensor \(200, 1\), got \(200, 2\)"):
        Problem(time, lambda f: f.u, {"ends": DirichletBC(lambda x: x)})
    with bad(r"on must return one bool per point, a mask of shape \(200,\), got torch.bool \(200, 1\)"):
        Problem(time, lambda f: f.u, {"ends": DirichletBC(on=lambda x: x[:, :1] > 0)})
    with bad(r"component must be one of u, got 'v'"):
        Problem(time, lambda f: f.u, {"ends": DirichletBC(component="v")})
    with bad(r"variables must be 2 names"):
        Problem(time, lambda f: f.u, {}, variables=("x",))
    with bad(r"points must have one column per variable \(x, t\), got 1"):
        Problem(time, lambda f: f.u, {"data": PointSetBC(torch.zeros(1, 1), 0.0)})
    with bad(r"have no normals"):
        Problem(time, lambda f: f.normals, {})
    with bad(r"the same name: pde"):
        Problem(time, lambda f: f.u, {"pde": IC()})
    with bad("Geometry", TypeError):
        Problem(TimeDomain(0, 1), lambda f: f.u, {})  # type: ignore[arg-type]
    with bad("equations must be a function of the fields, got NoneType", TypeError):
        Problem(time, None, {})  # type: ignore[arg-type]
    with bad("constraints must be a dict, one name per condition, got list", TypeError):
        Problem(time, lambda f: f.u, [DirichletBC(0.0)])  # type: ignore[arg-type]
    with bad(r"unknowns\['c'\] must be a number, its first value, got 'one'"):
        Problem(time, lambda f: f.u, {}, unknowns={"c": "one"})  # type: ignore[dict-item]
    with bad("unknowns: 'u' is a variable or an output already"):
        Problem(time, lambda f: f.u, {}, unknowns={"u": 1.0})
    problem = heat(dtype=torch.float32)
    with bad(r"the network takes 1 inputs, the problem has 2 variables \(x, t\)"):
        problem.losses(FNN([1, 4, 1]))
    with bad(r"must return a tensor \(120, 1\), one column per output \(u\), got \(120, 2\)"):
        problem.losses(FNN([2, 4, 2]))
    with bad(r"the network is torch.float64, the problem torch.float32"):
        problem.losses(FNN([2, 4, 1], dtype=torch.float64))
    with bad("declared without one"):
        problem.error(FNN([2, 4, 1]))


def test_an_unknown_coefficient_is_found():
    """u_t = c u_xx from values of the solution with c = 0.2; the equations see it as f.c."""

    def solution(x):
        return torch.sin(PI * x[:, :1]) * torch.exp(-0.2 * PI**2 * x[:, 1:2])

    domain = Interval(0, 1) * TimeDomain(0, 1)
    data = domain.random_points(100, "sobol")
    problem = Problem(
        domain,
        lambda f: f.u_t - f.c * f.u_xx,
        {"data": PointSetBC(data, solution(data))},
        unknowns={"c": 1.0},
        num_domain=100,
        num_boundary=0,
        num_initial=0,
        dtype=torch.float64,
    )
    network = FNN([2, 20, 20, 1], generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    opt = MAdam([*network.parameters(), *problem.parameters()], lr=1e-2)
    for _ in range(500):
        opt.zero_grad()
        opt.backward(problem.losses(network))
        opt.step()
    assert abs(problem.unknowns["c"].item() - 0.2) < 0.03


def test_importing_it_needs_no_extra():
    code = "import sys, madamoo.pinn; print(sorted({m.split('.')[0] for m in sys.modules} & set(sys.argv[1:])))"
    extras = ["scipy", "skfem", "netgen", "deepxde", "matplotlib"]
    out = subprocess.run([sys.executable, "-c", code, *extras], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"
