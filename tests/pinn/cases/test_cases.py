"""The cases: term counts, residuals on known functions, points, and references that solve what is coded."""

import itertools
import math
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from madamoo.pinn import GeometryXTime, Reference, cases
from madamoo.pinn.cases import Data, MissingFile, burgers, chaotic, flow, heat, poisson, wave

DATA = Data()
PI = math.pi

# name: equations, constraints, multiplier, kind of the reference
PUBLISHED = {
    "burgers1d": (1, 2, 1, "file"),
    "burgers2d": (2, 6, 4, "computed"),
    "poisson2d": (1, 2, 1, "file"),
    "poisson-boltzmann2d": (1, 2, 1, "file"),
    "poisson3d": (1, 1, 4, "computed"),
    "poisson2d-many-area": (1, 1, 1, "computed"),
    "poisson5d": (1, 1, 4, "exact"),
    "heat2d-varying": (1, 2, 4, "computed"),
    "heat2d-multiscale": (1, 2, 4, "exact"),
    "heat2d-complex": (1, 4, 4, "computed"),
    "heat2d-long": (1, 2, 4, "file"),
    "heat5d": (1, 2, 4, "exact"),
    "ns2d-cavity": (3, 5, 1, "file"),
    "ns2d-step": (3, 5, 1, "file"),
    "ns2d-long": (3, 8, 4, "computed"),
    "wave1d": (1, 3, 1, "exact"),
    "wave2d-heterogeneous": (1, 3, 4, "computed"),
    "wave2d-long": (1, 2, 4, "exact"),
    "kuramoto-sivashinsky": (1, 1, 1, "computed"),
    "gray-scott": (2, 2, 4, "computed"),
}


def need(*files: str) -> None:
    if files and not DATA.has(*files):
        pytest.skip(f"needs pinnacle/{files[0]} in the folder that MADAMOO_DATA names")


def build(name: str, **options):
    case = cases.get(name)
    need(*(file for file in case.files if not file.startswith("ref/") or "coef" in file))
    options = {"scale": 0.02, "reference": False, "dtype": torch.float64, **options}
    return case, case.problem(DATA, **options)


def test_the_twenty_published_cases_and_their_variants():
    assert {n for n in cases.available() if cases.get(n).published} == set(PUBLISHED)
    labels = {cases.get(name).label for name in PUBLISHED}
    assert len(labels) == 20
    for name in cases.available():
        case = cases.get(name)
        if not case.published:
            assert case.label in labels and case.note
    with pytest.raises(ValueError, match=r"name must be one of burgers1d.*got 'burgers'"):
        cases.get("burgers")


@pytest.mark.parametrize("name", cases.available())
def test_a_case_is_whole(name: str):
    """Terms as published, points where they belong, a network that fits, and pictures."""
    case, problem = build(name)
    if case.published:
        equations, constraints, multiplier, kind = PUBLISHED[name]
        found = (len(problem.equation_names), len(problem.constraints), case.multiplier, case.kind)
        assert found == (equations, constraints, multiplier, kind)
    space = case.domain.geometry if isinstance(case.domain, GeometryXTime) else case.domain
    assert bool(space.inside(problem.points[:, : space.dim]).all())
    covered = 0
    for key, constraint in problem.constraints.items():
        at = problem.constraint_points(key)
        covered += len(at.x)
        if constraint.at == "initial":
            assert bool((at.x[:, -1] == case.domain.low[-1]).all())
        elif at.normals is not None:
            x, n = at.x[:, : space.dim], at.normals[:, : space.dim]
            assert bool(space.on_boundary(x).all())
            torch.testing.assert_close(n.norm(dim=1), torch.ones(len(n), dtype=n.dtype))
            step = 1e-5 * n
            outward = (space.distance(x + step) > 0) & (space.distance(x - step) < 0)
            assert (~outward).sum() <= 1 + 0.01 * len(x)  # along the normal of a corner there may be no inside
    assert covered > 0
    network = case.network(8, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    losses = problem.losses(network)
    assert tuple(losses) == problem.objectives and all(math.isfinite(v.item()) for v in losses.values())
    for fixed in case.view.fixed:
        points, inside = case.grid(5, fixed)
        assert points.shape == (25, case.domain.dim) and inside.any()
    assert set(case.view.outputs) <= set(case.outputs)


@pytest.mark.parametrize("name", [n for n in cases.available() if cases.get(n).exact is not None])
def test_an_exact_solution_solves_its_case(name: str):
    case, problem = build(name, reference=True)
    assert max(v.item() for v in problem.losses(case.exact).values()) < 1e-16
    assert problem.error(case.exact) < 1e-12
    assert len(problem.reference.points) == (2500 if case.domain.dim == 2 else 20000)


def test_the_published_solution_of_the_long_wave_does_not_solve_its_equation():
    """Its residual u_tt - u_xx - 2 u_yy, worked out by hand, is -2 pi^2 u."""
    _, problem = build("wave2d-long")
    x = problem.points
    a, b, t = x.T[:, :, None]
    first = torch.sin(PI * a) * torch.sinh(PI * b) * torch.cos(PI * t)
    second = torch.sinh(3 * PI * a) * torch.sin(2 * PI * b) * torch.cos(PI * t)
    # u_tt = -pi^2 (first + second); u_xx = -pi^2 first + 9 pi^2 second; u_yy = pi^2 first - 4 pi^2 second
    wanted = PI**2 * (-(first + second) + first - 9 * second - 2 * first + 8 * second)
    residual = problem.residuals(wave.published_long)["pde"]
    torch.testing.assert_close(residual, wanted, rtol=1e-8, atol=1e-5)
    torch.testing.assert_close(wanted, -2 * PI**2 * (first + second), rtol=1e-8, atol=1e-5)


def derivatives(function, x):
    """Values, gradients and Hessian diagonals of every output, by plain autograd: an oracle apart from the engine."""
    x = x.clone().requires_grad_()
    u = function(x)
    out = []
    for k in range(u.shape[1]):
        (g,) = torch.autograd.grad(u[:, k].sum(), x, create_graph=True)
        seconds = [
            torch.autograd.grad(g[:, i].sum(), x, retain_graph=True)[0][:, i].detach() for i in range(x.shape[1])
        ]
        out.append((u[:, k].detach(), g.detach(), torch.stack(seconds, 1)))
    return out


def smooth(outputs):
    """Functions without a symmetry that could hide a mistake."""

    def function(x):
        s = sum((0.3 + 0.1 * i) * x[:, i : i + 1] for i in range(x.shape[1]))
        columns = [torch.sin(s + 0.4 * k) + 0.1 * (k + 1) * x[:, :1] * x[:, -1:] ** 2 for k in range(outputs)]
        return torch.cat(columns, 1)

    return function


def written_out(name, x, d):
    """The residuals from the formulas of the benchmark's description."""
    (u, g, h), *others = d
    if name == "burgers1d":
        return [g[:, 1] + u * g[:, 0] - 0.01 / PI * h[:, 0]]
    if name == "burgers2d":
        v, gv, hv = others[0]
        return [
            g[:, 2] + u * g[:, 0] + v * g[:, 1] - 0.001 * (h[:, 0] + h[:, 1]),
            gv[:, 2] + u * gv[:, 0] + v * gv[:, 1] - 0.001 * (hv[:, 0] + hv[:, 1]),
        ]
    if name == "poisson2d":
        return [h.sum(1)]
    if name == "poisson-boltzmann2d":
        a, b = x.T
        f = 10 * (1 + 16 + a**2 + b**2) * torch.sin(PI * a) * torch.sin(4 * PI * b)
        return [-h.sum(1) + 8**2 * u - f]
    if name == "poisson3d":
        a, b, c = x.T
        r = (x**2).sum(1)
        p = torch.exp(torch.sin(PI * a) + torch.sin(10 * PI * b) + torch.sin(5 * PI * c)) * (r - 1) / (r + 1)
        f = 20 * p + 100 * torch.sin(PI * a) * torch.sin(10 * PI * b) * torch.sin(5 * PI * c)
        return [-h.sum(1) + torch.where(c < 0.5, 64.0, 100.0) * u - f]
    if name == "heat2d-complex":
        return [g[:, 2] - h[:, 0] - h[:, 1]]
    if name == "heat2d-long":
        a, b, t = x.T
        f = 5 * torch.sin(u * u) * (1 + 2 * torch.sin(t * PI / 4)) * torch.sin(4 * PI * a) * torch.sin(2 * PI * b)
        return [g[:, 2] - 0.001 * (h[:, 0] + h[:, 1]) - f]
    if name in ("ns2d-cavity", "ns2d-step", "ns2d-long"):
        (v, gv, hv), (_, gp, _) = others
        first = u * g[:, 0] + v * g[:, 1] + gp[:, 0] - 0.01 * (h[:, 0] + h[:, 1])
        second = u * gv[:, 0] + v * gv[:, 1] + gp[:, 1] - 0.01 * (hv[:, 0] + hv[:, 1])
        if name == "ns2d-long":
            a, b, t = x.T
            first = first + g[:, 2]
            second = second + gv[:, 2] + torch.sin(PI * a) * torch.sin(PI * b) * torch.sin(PI * t)
        return [first, second, g[:, 0] + gv[:, 1]]
    if name == "gray-scott":
        v, gv, hv = others[0]
        return [
            g[:, 2] - (1e-5 * (h[:, 0] + h[:, 1]) + 0.04 * (1 - u) - u * v**2),
            gv[:, 2] - (5e-6 * (hv[:, 0] + hv[:, 1]) - 0.1 * v + u * v**2),
        ]
    raise KeyError(name)


def test_residuals_are_the_written_out_formulas():
    names = ("burgers1d", "burgers2d", "poisson2d", "poisson-boltzmann2d", "poisson3d", "heat2d-complex", "heat2d-long")
    for name in (*names, "ns2d-cavity", "ns2d-step", "ns2d-long", "gray-scott"):
        if name == "burgers2d" and not DATA.has("regenerated_inputs.npz"):
            continue
        case, problem = build(name)
        function = smooth(len(case.outputs))
        found = problem.residuals(function)
        wanted = written_out(name, problem.points, derivatives(function, problem.points))
        assert len(found) == len(wanted)
        for a, b in zip(found.values(), wanted, strict=True):
            torch.testing.assert_close(a[:, 0], b, rtol=1e-9, atol=1e-9, msg=name)


def test_coefficients_are_read_where_they_belong():
    need("ref/poisson_a_coef.dat", "regenerated_inputs.npz")
    blocks = poisson.Blocks(DATA)
    a_table = np.loadtxt(DATA.path("ref/poisson_a_coef.dat"))
    f_table = np.loadtxt(DATA.path("ref/poisson_f_coef.dat")).reshape(5, 5, 2, 2)
    for i, j in itertools.product(range(5), range(5)):
        x, y = (torch.tensor([[-10 + 4 * k + 1.0]], dtype=torch.float64) for k in (i, j))
        a, f = blocks(x, y)
        assert a.item() == a_table[i, j]
        assert math.isclose(f.item(), f_table[i, j, 0, 0] + f_table[i, j, 1, 1] * math.sin(PI / 4) ** 2)
    field = DATA.field("heat_2d_coef_256")
    nearest, linear = heat.NearestField(field), wave.LinearField(field)
    for i, j in ((0, 0), (10, 200), (255, 255), (31, 7)):
        x, y = (torch.tensor([[k / 255]], dtype=torch.float64) for k in (j, i))
        assert nearest(x, y).item() == field[i, j]
        assert math.isclose(linear(x, y).item(), field[i, j], rel_tol=1e-9)
    between = torch.full((1, 1), 20.5 / 255, dtype=torch.float64)
    assert math.isclose(linear(between, between).item(), field[20:22, 20:22].mean(), rel_tol=1e-9)


def test_files_agree_with_solutions_of_our_own():
    """PINNacle's files for the two Poisson problems with holes, the cavity and Burgers' equation."""
    need("ref/poisson1_cg_data.dat", "ref/poisson_boltzmann2d.dat", "ref/lid_driven_a4.dat", "ref/burgers1d.dat")
    from scipy.interpolate import CloughTocher2DInterpolator

    from madamoo.pinn.references import Dirichlet, disk_mesh, poisson_2d, square_mesh, steady_flow

    def gap(name, points, values):
        reference = cases.get(name).reference(DATA)
        ours = CloughTocher2DInterpolator(points, values)(reference.points.numpy()).reshape(len(reference.points), -1)
        wanted = reference.values[:, : ours.shape[1]].numpy()
        return np.linalg.norm(ours - wanted) / np.linalg.norm(wanted)

    def sides(half):
        return lambda x: (abs(abs(x) - half) < 1e-9).any(0)

    for name, half, holes, outer, hole, reaction, source in (
        ("poisson2d", 0.5, poisson.SQUARE_HOLES, 1.0, 0.0, 0.0, lambda x: 0 * x[0]),
        (
            "poisson-boltzmann2d",
            1.0,
            poisson.BOLTZMANN_HOLES,
            0.2,
            1.0,
            64.0,
            lambda x: poisson.boltzmann_source(torch.from_numpy(x[0]), torch.from_numpy(x[1])).numpy(),
        ),
    ):
        mesh = disk_mesh((-half, -half), (half, half), holes, 0.05)
        on = sides(half)
        conditions = [Dirichlet(on, outer), Dirichlet(lambda x, on=on: ~on(x), hole)]
        points, u = poisson_2d(mesh, source, conditions, lambda x, r=reaction: r + 0 * x[0])
        assert gap(name, points, u) < 2e-3, name
    points, w = steady_flow(
        square_mesh((0, 0), (1, 1), (20, 20)),
        lambda x: x[0] > -1,
        lambda x: np.stack([4 * x[0] * (1 - x[0]) * (x[1] > 1 - 1e-9), 0 * x[0]]),
        0.01,
        pin=lambda x: (abs(x) < 1e-9).all(0),
    )
    assert gap("ns2d-cavity", points, w[:, :2]) < 0.04


def coarse():
    """Every computed reference at a small size, and the size above it."""
    return {
        "poisson2d-many-area": (poisson.solve_blocks, [{"cells": 10}, {"cells": 20}, {"cells": 40}], 1e-3),
        "heat2d-varying": (heat.solve_varying, [{"cells": 8, "step": 0.1}, {"cells": 16, "step": 0.1}], 0.5),
        "heat2d-complex": (heat.solve_plate, [{"size": size, "step": 0.1} for size in (2.0, 1.0)], 2e-3),
        "ns2d-long": (flow.solve_long, [{"cells": cells, "step": 0.01} for cells in (2, 4, 8)], 0.1),
        "ns2d-step-free": (flow.solve_step, [{"cells": 4}, {"cells": 8}], 0.1),
        "wave2d-heterogeneous": (wave.solve_medium, [{"n": 51}, {"n": 102}], 0.02),
        "kuramoto-sivashinsky": (chaotic.solve_ks, [{"n": 128, "step": 1e-3}, {"n": 256, "step": 1e-3}], 0.1),
        "gray-scott": (chaotic.solve_gray_scott, [{"n": 64, "step": 2.0}, {"n": 128, "step": 2.0}], 0.1),
        "burgers2d": (
            burgers.solve_2d,
            [{"n": n, "step": 5e-3, "samples": 32, "moments": 3} for n in (64, 128)],
            0.4,
        ),
    }


def difference(a: Reference, b: Reference) -> float:
    """At the points that both have, relative; where the meshes share none, by interpolation at the last moment."""
    places = {tuple(np.round(p, 7)): i for i, p in enumerate(b.points.numpy())}
    pairs = [(i, places[key]) for i, p in enumerate(a.points.numpy()) if (key := tuple(np.round(p, 7))) in places]
    if len(pairs) > 50:
        mine, theirs = map(list, zip(*pairs, strict=True))
        return float((a.values[mine] - b.values[theirs]).norm() / b.values[theirs].norm())
    from scipy.interpolate import CloughTocher2DInterpolator

    x, u, y, v = (part.numpy()[ref.points[:, 2] == 3.0] for ref in (a, b) for part in (ref.points, ref.values))
    found = CloughTocher2DInterpolator(y[:, :2], v)(x[:, :2])
    inside = ~np.isnan(found[:, 0])
    return float(np.linalg.norm((found - u)[inside]) / np.linalg.norm(u[inside]))


@pytest.mark.parametrize("name", coarse())
def test_computed_references_settle_under_refinement(name: str):
    solve, sizes, bound = coarse()[name]
    need(*cases.get(name).files)
    found = [solve(DATA, **size) for size in sizes]
    assert all(bool(reference.values.isfinite().all()) for reference in found)
    gaps = [difference(a, b) for a, b in itertools.pairwise(found)]
    assert gaps[-1] < bound, gaps
    assert all(later < 0.7 * earlier for earlier, later in itertools.pairwise(gaps)), gaps


def test_computed_references_are_kept_and_found_again(tmp_path: Path):
    data = Data(root=tmp_path / "data", cache=tmp_path / "cache")
    calls = []

    def make():
        calls.append(1)
        return Reference(torch.zeros(3, 2, dtype=torch.float64), torch.ones(3, 1, dtype=torch.float64))

    for settings, expected in (("n=1", 1), ("n=1", 1), ("n=2", 2)):
        reference = data.computed("case", settings, make)
        assert len(calls) == expected and torch.equal(reference.values, torch.ones(3, 1, dtype=torch.float64))
    (first, *_), folder = sorted((tmp_path / "cache" / "pinn").iterdir()), tmp_path / "data" / "pinnacle" / "computed"
    assert not folder.exists()  # the data folder is never written to
    # a solution that lies in the data folder is taken before the cache
    folder.mkdir(parents=True)
    for file in (tmp_path / "cache" / "pinn").iterdir():
        os.replace(file, folder / file.name)
    data.computed("case", "n=1", make)
    assert len(calls) == 2 and first.name.startswith("case-")


def test_missing_files_are_named(tmp_path: Path):
    with pytest.raises(MissingFile, match=r"pinnacle/ref/burgers1d.dat was not found.\nLooked in: .*\nExpected layout"):
        cases.get("burgers1d").problem(Data(root=tmp_path))
    with pytest.raises(MissingFile, match="set MADAMOO_DATA"):
        cases.get("burgers2d").problem(Data(root=None), reference=False)
