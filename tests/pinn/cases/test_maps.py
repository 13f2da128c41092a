"""Maps of cases: right values at right places, in exact cases and in those whose reference is interpolated."""

import torch

from madamoo.pinn import Interval, Problem, Rectangle, Reference, TimeDomain
from madamoo.pinn.cases import Case, View, get, maps


class Exact(torch.nn.Module):
    """The solution of the one-dimensional wave, shifted by 0.5."""

    def forward(self, x):
        x, t = x[:, :1], x[:, 1:]
        pi = torch.pi
        return 0.5 + torch.sin(pi * x) * torch.cos(2 * pi * t) + torch.sin(4 * pi * x) * torch.cos(8 * pi * t) * 0.5


def test_an_exact_case():
    case = get("wave1d")
    problem = case.problem(scale=0.02, dtype=torch.float64)
    found = {one.kind: one for one in maps(case, Exact(), problem, problem.reference, count=21)}
    assert set(found) == {"solution", "error", "residual"} and found["residual"].what == "pde"
    assert found["solution"].axes == ("t", "x") and found["solution"].at == ""
    t, x = torch.meshgrid(found["solution"].x, found["solution"].y, indexing="ij")
    wanted = Exact()(torch.stack([x.reshape(-1), t.reshape(-1)], 1)).reshape(21, 21)
    torch.testing.assert_close(found["solution"].values.double(), wanted, atol=1e-6, rtol=0)
    torch.testing.assert_close(found["error"].values, torch.full((21, 21), 0.5), atol=1e-5, rtol=0)
    assert found["residual"].values.abs().max() < 1e-3  # a constant more solves the equation too


def test_slices_are_interpolated_from_the_nearest_one_and_holes_are_gaps():
    space = Rectangle([0, 0], [1, 2]) - Rectangle([0.4, 0.8], [0.6, 1.2])
    domain = space * TimeDomain(0, 1)
    plane = torch.cartesian_prod(torch.linspace(0, 1, 6), torch.linspace(0, 2, 9)).double()
    points = torch.cat([torch.cat([plane, torch.full((len(plane), 1), t)], 1) for t in (0.0, 0.55, 1.0)]).double()
    values = points[:, :1] + 2 * points[:, 1:2] + 10 * points[:, 2:]
    reference = Reference(points, values)
    case = Case(
        "none", "none", domain, lambda data: None, lambda data: reference, "file", View(("y", "x"), ({"t": 0.5},))
    )
    problem = Problem(domain, lambda f: f.u_t - f.u_xx, {}, num_domain=10, dtype=torch.float64)

    class Zero(torch.nn.Module):
        def forward(self, x):
            return 0 * x[:, :1]

    found = {one.kind: one for one in maps(case, Zero(), problem, reference, count=11)}
    y, x = torch.meshgrid(found["error"].x, found["error"].y, indexing="ij")
    hole = (x > 0.4 + 1e-9) & (x < 0.6 - 1e-9) & (y > 0.8 + 1e-9) & (y < 1.2 - 1e-9)
    assert found["error"].at == "t = 0.5" and hole.any()
    error = found["error"].values.double()
    assert error[hole].isnan().all() and not error[~hole].isnan().all()
    known = ~error.isnan()
    torch.testing.assert_close(error[known], (x + 2 * y + 5.5)[known], atol=1e-4, rtol=0)  # t = 0.55 is the nearest
    assert (found["residual"].values[known] == 0).all()


def test_a_line_of_reference_points_gives_no_error():
    case = get("wave1d")
    line = Reference(torch.tensor([[0.0, 0.5], [1.0, 0.5]]).double(), torch.zeros(2, 1).double())
    bare = Case("none", "", case.domain, case.declare, case.reference, "file", View(("t", "x")))
    problem = Problem(Interval(0, 1) * TimeDomain(0, 1), lambda f: f.u_t, {}, num_domain=4, dtype=torch.float64)
    assert {one.kind for one in maps(bare, Exact(), problem, line, count=5)} == {"solution", "residual"}
