"""The closed forms are what they are said to be, and a training gets there."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from madamoo import MultiObjective, PreferenceMetric, solvers
from madamoo.pareto import (
    ConcaveFront,
    ConvexFront,
    Dirichlet,
    Quadratics,
    ThreeQuadratics,
    TiltedQuadratics,
    Uniform,
    igd_plus,
    lattice,
    non_dominated,
    rays,
)

PROBLEMS = {
    "tilted": TiltedQuadratics(),
    "ill-conditioned": TiltedQuadratics(stiff=10.0, soft=0.01),
    "convex": ConvexFront(),
    "convex, 5": ConvexFront(5),
    "concave": ConcaveFront(),
    "concave, 1": ConcaveFront(1),
    "concave, 6": ConcaveFront(6),
    "three": ThreeQuadratics(),
    "three, worse": ThreeQuadratics(soft=0.2),
}
LINEAR = [name for name in PROBLEMS if not name.startswith("concave")]
SIZES = {2: 21, 3: 66}


def normal(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("name", PROBLEMS)
def test_nothing_dominates_the_pareto_set(name):
    """Neither near it nor far from it."""
    problem = PROBLEMS[name]
    x = problem.pareto_set(Uniform(problem.n_objectives, count=50, seed=1)(0.0))
    best = problem.losses(x)
    for scale in (1e-3, 0.03, 0.3, 2.0):
        others = problem.losses(x[:, None] + scale * normal(50, 2000, problem.dim))
        better = (others <= best[:, None]).all(dim=-1) & (others < best[:, None] - 1e-12).any(dim=-1)
        assert not bool(better.any())


@pytest.mark.parametrize("name", PROBLEMS)
def test_gradients_cancel_on_the_pareto_set(name):
    """Some convex combination of them is zero: for two, they point in opposite directions."""
    problem = PROBLEMS[name]
    for shares in lattice(problem.n_objectives, 7).double():
        x = problem.pareto_set(shares)
        jacobian = torch.autograd.functional.jacobian(problem.losses, x)
        weights = solvers.MGDA().weights(problem.losses(x), jacobian @ jacobian.T)
        assert float((weights @ jacobian).norm()) < 1e-6
        assert bool((weights >= -1e-9).all())


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_pareto_set_misses_nothing(name):
    """The x where the largest weighted loss is least is on the front, wherever the weights put it."""
    problem, ends = PROBLEMS[name], []
    for weights in Uniform(problem.n_objectives, count=8, seed=4)(0.0).double() + 0.1:

        def slack(v, problem=problem, weights=weights):
            return (v[-1] - weights * problem.losses(torch.as_tensor(v[:-1]))).numpy()

        def slopes(v, problem=problem, weights=weights):
            jacobian = torch.autograd.functional.jacobian(problem.losses, torch.as_tensor(v[:-1]))
            return np.hstack([-weights[:, None] * jacobian, np.ones((len(weights), 1))])

        found = minimize(
            lambda v: v[-1],
            np.append(0.3 * problem.point(seed=1).x.detach().numpy(), 9.0),
            jac=lambda v: np.eye(len(v))[-1],
            constraints={"type": "ineq", "fun": slack, "jac": slopes},
            method="SLSQP",
            options={"ftol": 1e-13, "maxiter": 500},
        )
        ends.append(problem.losses(torch.tensor(found.x[:-1])))
    assert float(problem.distance(ends).max()) < 1e-5


def test_front_is_a_front():
    for name in PROBLEMS:
        problem = PROBLEMS[name]
        points = problem.front(SIZES[problem.n_objectives])
        assert points.shape == (SIZES[problem.n_objectives], problem.n_objectives) and points.dtype == torch.float64
        assert non_dominated(points).all()
        assert points.argmin(dim=0)[0] == 0  # its ends, where one loss is as low as it can be
        torch.testing.assert_close(points.amin(dim=0), torch.zeros(problem.n_objectives, dtype=torch.float64))


@pytest.mark.parametrize("name", LINEAR)
def test_solution_is_least(name):
    problem = PROBLEMS[name]
    for a in lattice(problem.n_objectives, 4).double():
        x = problem.solution((2 * a).tolist()).requires_grad_()
        (gradient,) = torch.autograd.grad(a @ problem.losses(x), x)
        assert float(gradient.abs().max()) < 1e-9
        others = problem.losses(x.detach() + 0.1 * normal(500, problem.dim)) @ a
        assert float(others.min()) > float(a @ problem.losses(x.detach()))


def test_tilted_quadratics_are_the_papers():
    x1, x2 = 0.3, -0.7
    expected = [
        0.55 * (x1 - 1.5) ** 2 + 0.9 * (x1 - 1.5) * x2 + 0.55 * x2**2,
        0.55 * (x1 + 1.5) ** 2 - 0.9 * (x1 + 1.5) * x2 + 0.55 * x2**2,
    ]
    assert TiltedQuadratics().losses(torch.tensor([x1, x2], dtype=torch.float64)).tolist() == pytest.approx(expected)
    eigenvalues = torch.linalg.eigvalsh(TiltedQuadratics(5.0, 0.5).hessians)
    torch.testing.assert_close(eigenvalues, torch.tensor([[0.5, 5.0]] * 2, dtype=torch.float64))


def test_three_quadratics_are_alike():
    problem = ThreeQuadratics()
    eigenvalues = torch.linalg.eigvalsh(problem.hessians)
    torch.testing.assert_close(eigenvalues, torch.tensor([[0.5, 0.5, 2.0]] * 3, dtype=torch.float64))
    a = torch.tensor([0.5, 0.3, 0.2])
    turned = problem.losses(problem.solution(a.roll(1)))
    torch.testing.assert_close(turned, problem.losses(problem.solution(a)).roll(1))


@pytest.mark.parametrize("dim", [1, 2, 5])
def test_closed_forms_of_the_fronts(dim):
    convex = ConvexFront(dim).front(31)
    torch.testing.assert_close(convex.sqrt().sum(1), torch.full((31,), 2.0, dtype=torch.float64), atol=1e-6, rtol=0)
    concave = ConcaveFront(dim).front(31)
    # |x - c| + |x + c| = 2 between the centres
    reach = (-torch.log1p(-concave)).sqrt().sum(1)
    torch.testing.assert_close(reach, torch.full((31,), 2.0, dtype=torch.float64), atol=1e-5, rtol=0)


def test_the_concave_front_is_out_of_reach_of_linear_scalarisation():
    problem = ConcaveFront()
    points = problem.front(2001)
    t = torch.linspace(1, -1, 2001, dtype=torch.float64)
    slope = (points[1:, 1] - points[:-1, 1]) / (points[1:, 0] - points[:-1, 0])
    turning = slope[1:] - slope[:-1]  # along growing f_1: positive where convex
    inside, outside = t[1:-1].abs() < 0.70, t[1:-1].abs() > 0.714
    assert bool((turning[inside] < 0).all()) and bool((turning[outside] > 0).all())
    for a in torch.linspace(0, 1, 41, dtype=torch.float64):
        chosen = int((a * points[:, 0] + (1 - a) * points[:, 1]).argmin())
        assert abs(float(t[chosen])) > 0.95
    with pytest.raises(ValueError, match="concave"):
        problem.solution([0.5, 0.5])


@pytest.mark.parametrize("name", PROBLEMS)
def test_distance_is_that_of_a_dense_front(name):
    problem = PROBLEMS[name]
    c = problem.n_objectives
    grid = lattice(c, 5000 if c == 2 else 150).double()
    dense = problem.losses(problem.pareto_set(torch.cat([grid**power for power in (1, 2, 4, 8)])))
    points = problem.front(SIZES[c]) + 0.5 * normal(SIZES[c], c)
    expected = torch.cdist(points, dense).amin(dim=1)
    found = problem.distance(points)
    assert bool((found <= expected + 1e-6).all())  # a sample is never nearer
    torch.testing.assert_close(found, expected, atol=5e-3, rtol=5e-3)


@pytest.mark.parametrize("name", PROBLEMS)
def test_distance_is_zero_on_the_front_alone(name):
    problem = PROBLEMS[name]
    c = problem.n_objectives
    inside, corners = Uniform(c, count=40, seed=2)(0.0), Dirichlet(c, 0.2, count=100)(0.0)
    shares = torch.cat([inside, corners, lattice(c, 9)]).double()
    on = problem.losses(problem.pareto_set(shares))
    assert float(problem.distance(on).max()) < 1e-6
    assert float(problem.distance(on[::9] + 0.1).min()) > 0.01
    with pytest.raises(ValueError, match=rf"points must have the shape \[points, {c}\], got \[{c}\]"):
        problem.distance(on[0])


def test_losses_take_any_shape_and_dtype(dtype):
    for name in PROBLEMS:
        problem = PROBLEMS[name]
        x = normal(4, 3, problem.dim).to(dtype)
        found = problem.losses(x)
        assert found.shape == (4, 3, problem.n_objectives) and found.dtype == dtype
        torch.testing.assert_close(found[1, 2], problem.losses(x[1, 2]))
        assert problem.network().to(dtype)(torch.ones(5, problem.n_objectives, dtype=dtype)).shape == (5, problem.dim)


def train(problem, solver, preference, estimator, steps=200, lr=0.1):
    model = problem.point(seed=3).double()
    metric = None if estimator is None else PreferenceMetric(estimator, rampup=0)
    opt = MultiObjective(torch.optim.Adam(model.parameters(), lr=lr, betas=(0.8, 0.99)), solver, metric)
    scheduler = torch.optim.lr_scheduler.LambdaLR(opt, lambda t: (1 - t / steps) ** 2)
    for _ in range(steps):
        opt.zero_grad()
        opt.backward(problem.losses(model()), preference=preference)
        opt.step()
        scheduler.step()
    return model().detach()


@pytest.mark.parametrize("estimator", [None, "auto"])
@pytest.mark.parametrize("name", ["tilted", "convex", "three"])
def test_a_solver_finds_the_solution(name, estimator):
    problem = PROBLEMS[name]
    a = [0.7, 0.3] if problem.n_objectives == 2 else [0.5, 0.3, 0.2]
    x = train(problem, solvers.Preference(), a, estimator)
    torch.testing.assert_close(x, problem.solution(a), atol=1e-3, rtol=0)


def test_tchebycheff_finds_the_inside_of_the_concave_front():
    problem = ConcaveFront()
    a = [0.45, 0.55]
    inside = train(problem, solvers.SmoothTchebycheff(mu=0.01), a, None)
    losses = problem.losses(inside)
    assert float(problem.distance(losses[None])) < 1e-3 and float(losses.min()) > 0.4
    end = train(problem, solvers.Preference(), a, None)
    assert float(problem.losses(end).min()) < 0.01


@pytest.mark.parametrize("name", ["tilted", "three"])
def test_a_conditioned_network_learns_the_front(name):
    problem = PROBLEMS[name]
    network = problem.network().double()
    opt = MultiObjective(torch.optim.Adam(network.parameters(), lr=5e-3), solvers.Preference())
    sampler = Uniform(problem.n_objectives)
    steps = 600
    scheduler = torch.optim.lr_scheduler.LambdaLR(opt, lambda t: 1 - t / steps)
    for t in range(steps):
        (a,) = sampler(t / steps).double()
        opt.zero_grad()
        opt.backward(problem.losses(network(a)), preference=a)
        opt.step()
        scheduler.step()
    count = SIZES[problem.n_objectives]
    with torch.no_grad():
        found = problem.losses(network(rays(problem.n_objectives, count).double()))
    untrained = problem.losses(problem.network().double()(rays(problem.n_objectives, count).double())).detach()
    assert igd_plus(found, problem.front(count)) < 0.1 * igd_plus(untrained, problem.front(count))
    assert float(problem.distance(found).mean()) < 0.05


def test_modules_are_made_without_touching_the_global_generator():
    problem = TiltedQuadratics()
    before = torch.random.get_rng_state()
    first, second = problem.network(seed=1), problem.network(seed=1)
    problem.point()
    assert torch.equal(torch.random.get_rng_state(), before)
    for p, q in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(p, q)
    assert not torch.equal(problem.network(seed=2)[0].weight, first[0].weight)
    assert problem.network(inputs=1, hidden=4)(torch.ones(1)).shape == (2,)
    assert problem.point([1, 2])().tolist() == [1.0, 2.0]
    start = torch.tensor([1.0, 2.0], dtype=torch.float64)
    model = problem.point(start)
    model.x.data.zero_()
    assert model.x.dtype == torch.float64 and start.tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Quadratics(torch.eye(2), torch.eye(2)), r"hessians must have the shape \[C, dim, dim\]"),
        (lambda: Quadratics([[[1.0]]], [[1.0]]), "the number of centres must be an integer of at least 2, got 1"),
        (lambda: Quadratics([[[1.0]], [[-1.0]]], [[1.0], [2.0]]), "positive definite"),
        (lambda: Quadratics([[[1.0, 0.5], [0.0, 1.0]]] * 2, torch.eye(2)), "symmetric"),
        (lambda: TiltedQuadratics(soft=0.0), "soft must be positive"),
        (lambda: ThreeQuadratics(stiff=-1.0), "stiff must be positive"),
        (lambda: ConvexFront(0), "dim must be an integer of at least 1"),
        (lambda: ConcaveFront(0), "dim must be an integer of at least 1"),
        (lambda: TiltedQuadratics().point([1.0]), "start must be 2 numbers"),
        (lambda: TiltedQuadratics().solution([1.0, 0.0, 0.0]), "preference must have 2 entries"),
        (lambda: TiltedQuadratics().front(1), "count must be an integer of at least 2"),
    ],
)
def test_bad_arguments_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_pareto_set_of_numpy_solves():
    """x(a) against numpy, one by one."""
    problem = ThreeQuadratics()
    H, c = problem.hessians.numpy(), problem.centres.numpy()
    for a in lattice(3, 4).double().numpy():
        whole = sum(w * h for w, h in zip(a, H, strict=True))
        pull = sum(w * h @ z for w, h, z in zip(a, H, c, strict=True))
        np.testing.assert_allclose(problem.solution(a.tolist()), np.linalg.solve(whole, pull), atol=1e-12)
