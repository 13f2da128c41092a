"""Trainings with ParetoMTL, EPO, FERERO and COSMOS on convex quadratics, whose Pareto set is known."""

import copy

import numpy as np
import pytest
import torch
from scipy.optimize import minimize, nnls
from torch.nn.functional import cosine_similarity

from madamoo import MultiObjective, PreferenceMetric
from madamoo.solvers._cosmos import COSMOS
from madamoo.solvers._epo import EPO
from madamoo.solvers._ferero import FERERO
from madamoo.solvers._paretomtl import ParetoMTL


class Quadratics:
    """l_i = sum_k H_ik (x_k - c_ik)^2 / 2 + 0.1. The Pareto set is where sum_i w_i grad l_i = 0, w on the simplex."""

    def __init__(self, count):
        rng = np.random.default_rng(count)
        self.H = torch.tensor(rng.uniform(0.5, 3.0, size=(count, 6)))
        self.centres = torch.tensor(rng.normal(size=(count, 6)))
        self.start = torch.tensor(1.5 * rng.normal(size=6))

    def losses(self, x):
        return (self.H * (x - self.centres) ** 2).sum(1) / 2 + 0.1

    def front(self, w):
        """The losses of the Pareto optimal point with weights w."""
        H = torch.as_tensor(w)[:, None] * self.H
        return self.losses((H * self.centres).sum(0) / H.sum(0))

    def unrest(self, x):
        """Length of the shortest convex combination of the gradients, beside that of the longest: 0 on the front."""
        J = (self.H * (x - self.centres)).numpy()
        J = J / np.linalg.norm(J, axis=1).max()
        u = nnls(np.vstack([J.T, np.ones(len(J))]), np.append(np.zeros(J.shape[1]), 1.0))[0]
        return np.linalg.norm(u @ J) / u.sum()


TWO, FIVE = Quadratics(2), Quadratics(5)
METRICS = [None, "auto"]


def on_the_ray(r):
    """The losses where the front of the two objectives meets the ray r_1 l_1 = r_2 l_2, by bisection."""
    low, high = 0.0, 1.0
    for _ in range(60):
        w = (low + high) / 2
        losses = TWO.front([w, 1 - w])
        low, high = (w, high) if r[0] * losses[0] > r[1] * losses[1] else (low, w)
    return losses


def train(problem, solver, preference, estimator, steps=250, lr=0.1):
    x = problem.start.clone().requires_grad_()
    metric = None if estimator is None else PreferenceMetric(estimator, rampup=0)
    opt = MultiObjective(torch.optim.Adam([x], lr=lr, betas=(0.8, 0.99)), solver, metric)
    scheduler = torch.optim.lr_scheduler.LambdaLR(opt, lambda t: (1 - t / steps) ** 2)
    for _ in range(steps):
        opt.zero_grad()
        opt.backward(problem.losses(x), preference=preference)
        opt.step()
        scheduler.step()
    return x.detach(), opt


@pytest.mark.parametrize("r, estimator", [([0.5, 0.5], None), ([0.8, 0.2], "auto"), ([0.25, 0.75], None)])
@pytest.mark.parametrize("method, tolerance", [(EPO, 0.03), (FERERO, 1e-3)])
def test_two_objectives_end_on_the_ray(method, tolerance, r, estimator):
    x, _ = train(TWO, method(), r, estimator)
    target = on_the_ray(r)
    assert abs(r[0] * target[0] / (r[1] * target[1]) - 1) < 1e-6  # the front meets the ray
    torch.testing.assert_close(TWO.losses(x), target, rtol=tolerance, atol=0)
    assert TWO.unrest(x) < max(tolerance, 5e-3)


@pytest.mark.parametrize("method, estimator", [(EPO, "auto"), (FERERO, None)])
def test_one_hot_preference_ends_at_the_end_of_the_front(method, estimator):
    for i in (0, 1):
        x, opt = train(TWO, method(), [1.0 - i, float(i)], estimator)
        assert opt.weights.tolist() == [1.0 - i, float(i)]
        assert float(TWO.losses(x)[i]) == pytest.approx(0.1, abs=1e-3)


@pytest.mark.parametrize("estimator", METRICS)
@pytest.mark.parametrize("method, tolerance", [(EPO, 0.06), (FERERO, 1e-2)])
def test_five_objectives_end_on_the_ray(method, tolerance, estimator):
    target = FIVE.front([0.3, 0.1, 0.2, 0.15, 0.25])
    x, _ = train(FIVE, method(), (1 / target).tolist(), estimator)
    torch.testing.assert_close(FIVE.losses(x), target, rtol=tolerance, atol=0)
    assert FIVE.unrest(x) < tolerance


@pytest.mark.parametrize(
    "r, angles, estimator",
    [([0.5, 0.5], (33.75, 56.25), None), ([1.0, 0.0], (78.75, 90), "auto"), ([0.0, 1.0], (0, 11.25), None)],
)
def test_paretomtl_ends_in_its_region(r, angles, estimator):
    """The regions of five evenly spaced rays are the angles nearest to them."""
    x, _ = train(TWO, ParetoMTL(), r, estimator)
    losses = TWO.losses(x)
    angle = float(torch.rad2deg(torch.atan2(losses[1], losses[0])))
    assert angles[0] - 0.1 <= angle <= angles[1] + 0.1
    assert TWO.unrest(x) < 1e-2


@pytest.mark.parametrize("estimator", METRICS)
def test_paretomtl_on_five_objectives(estimator):
    target = FIVE.front([0.3, 0.1, 0.2, 0.15, 0.25])
    rays = torch.vstack([1 / target, torch.eye(5, dtype=torch.float64)]).tolist()
    x, _ = train(FIVE, ParetoMTL(rays), rays[0], estimator)
    losses = FIVE.losses(x)
    u = 1 / torch.tensor(rays, dtype=torch.float64).clamp_min(1e-9)
    distance = (u / u.norm(dim=1, keepdim=True)) @ losses / losses.norm()
    assert distance[0] >= distance.max() - 1e-3
    assert FIVE.unrest(x) < 2e-2


@pytest.mark.parametrize("estimator", METRICS)
@pytest.mark.parametrize("problem, a", [(TWO, [0.7, 0.3]), (FIVE, [0.3, 0.1, 0.2, 0.15, 0.25])], ids=["two", "five"])
def test_cosmos_ends_at_the_minimum_of_its_objective(problem, a, estimator):
    x, opt = train(problem, COSMOS(weight=0.5), a, estimator)
    a = torch.tensor(a, dtype=torch.float64)

    def objective(point):
        losses = problem.losses(torch.as_tensor(point))
        return float(a @ losses - 0.5 * cosine_similarity(a, losses, dim=0))

    best = minimize(objective, x.numpy(), method="BFGS", options={"gtol": 1e-6})
    assert objective(x) == pytest.approx(best.fun, abs=1e-4)
    assert torch.dist(x, torch.tensor(best.x)) < 1e-2
    assert opt.weights.min() >= 0 and problem.unrest(x) < 1e-2
    # The cosine draws the losses to a: nearer to it than without.
    without = problem.front(a)
    assert cosine_similarity(problem.losses(x), a, dim=0) > cosine_similarity(without, a, dim=0)


@pytest.mark.parametrize("method", [EPO, FERERO, COSMOS])
def test_preferences_that_change_each_step(method):
    """As in the training of preference-conditioned models: nothing of the last preference is left."""
    x = TWO.start.clone().requires_grad_()
    opt = MultiObjective(torch.optim.Adam([x], lr=0.01), method(), PreferenceMetric(rampup=0))
    rng = np.random.default_rng(0)
    for _ in range(20):
        r = rng.dirichlet([0.5, 0.5])
        opt.zero_grad()
        opt.backward(TWO.losses(x), preference=r)
        J = TWO.H * (x.detach() - TWO.centres)
        expected = method().weights(TWO.losses(x), J @ J.T, torch.tensor(r))
        torch.testing.assert_close(opt.weights, expected, rtol=1e-9, atol=1e-9)
        opt.step()
    assert torch.isfinite(x).all()


@pytest.mark.parametrize("method", [ParetoMTL, EPO, FERERO, COSMOS])
def test_a_resumed_training_goes_on_as_it_was(method):
    def run(x, opt, steps):
        for _ in range(steps):
            opt.zero_grad()
            opt.backward(TWO.losses(x), preference=[0.9, 0.1])
            opt.step()

    def make(start):
        x = start.clone().requires_grad_()
        return x, MultiObjective(torch.optim.Adam([x], lr=0.1), method(), PreferenceMetric(rampup=3))

    x, opt = make(TWO.start)
    run(x, opt, 5)
    again, loaded = make(x.detach())
    loaded.load_state_dict(copy.deepcopy(opt.state_dict()))
    run(x, opt, 5)
    run(again, loaded, 5)
    assert torch.equal(x, again) and torch.equal(opt.weights, loaded.weights)
    if method is ParetoMTL:
        assert loaded.solver.remaining == opt.solver.remaining < opt.solver.search_steps
