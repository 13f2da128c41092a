"""What every loss-balancing solver keeps to: finite weights, state, missing objectives, and a way to the Pareto set."""

import inspect

import numpy as np
import pytest
import torch
from scipy.optimize import minimize, nnls

from madamoo import MultiObjective, PreferenceMetric
from madamoo.solvers import Solver
from madamoo.solvers._dbmtl import DBMTL
from madamoo.solvers._famo import FAMO
from madamoo.solvers._geometric_mean import GeometricMean
from madamoo.solvers._gradnorm import GradNorm
from madamoo.solvers._imtll import IMTLL
from madamoo.solvers._smooth_tchebycheff import SmoothTchebycheff
from madamoo.solvers._tchebycheff import Tchebycheff

MAKERS = {
    "imtll": IMTLL,
    "gradnorm": GradNorm,
    "famo": FAMO,
    "dbmtl": DBMTL,
    "geometric_mean": GeometricMean,
    "tchebycheff": Tchebycheff,
    "smooth_tchebycheff": SmoothTchebycheff,
    "smooth_tchebycheff_warm": lambda: SmoothTchebycheff(0.5, 3),
    "smooth_tchebycheff_log": lambda: SmoothTchebycheff(0.5, 3, log=True),
}
EVERY = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


def batches(count, steps=6, seed=0):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        rows = torch.randn(count, 5, generator=generator, dtype=torch.float64)
        yield torch.rand(count, generator=generator, dtype=torch.float64) + 0.1, rows @ rows.T


def gram_matrices(count):
    generator = torch.Generator().manual_seed(count)
    rows = torch.randn(count, 7, generator=generator, dtype=torch.float64)
    plain = rows @ rows.T
    one = torch.ones(count, dtype=torch.float64)
    sign = one.clone()
    sign[::2] = -1
    spread = torch.logspace(-6, 3, count, dtype=torch.float64)
    silent = plain.clone()
    silent[0] = silent[:, 0] = 0
    yield from (plain, torch.outer(one, one), torch.outer(sign, sign), torch.outer(spread, spread), silent, 0 * plain)
    yield from (1e-30 * plain, 1e30 * plain, 1e-12 * plain, 1e6 * plain)


VALUES = [0.0, 1e-30, 1e-8, 1e-3, 1.0, 1e6, 1e30, -1e-9, -1.0, -1e30]


@EVERY
def test_weights_are_finite_and_not_negative(make):
    for dtype, count in ((torch.float32, 1), (torch.float64, 2), (torch.float32, 7), (torch.float64, 40)):
        check_finite(make, dtype, count)


def check_finite(make, dtype, count):
    generator = torch.Generator().manual_seed(0)
    solver = make()
    for gram in gram_matrices(count):
        for _ in range(3):
            index = torch.randint(len(VALUES), (count,), generator=generator)
            losses = torch.tensor(VALUES, dtype=dtype)[index].requires_grad_()
            weights = solver.weights(losses, gram.to(dtype).requires_grad_())
            assert weights.dtype == dtype and weights.shape == (count,) and not weights.requires_grad
            assert bool(torch.isfinite(weights).all()) and bool((weights >= 0).all()), (losses, weights)
    for pair in ([1e300, 1e300], [1e300, 0.0]):
        losses = torch.tensor((pair * count)[:count], dtype=torch.float64)
        assert bool(torch.isfinite(solver.weights(losses, gram)).all())
    assert not any(buffer.requires_grad for buffer in solver.buffers())


@EVERY
def test_weights_stay_finite_under_a_steady_loss(make):
    gram = torch.eye(3, dtype=torch.float64)
    for value in VALUES:
        solver, losses = make(), torch.tensor([value, 1.0, 2.0], dtype=torch.float64)
        for _ in range(100):
            weights = solver.weights(losses, gram)
        assert bool(torch.isfinite(weights).all()) and float(weights.sum()) > 0


@EVERY
def test_is_constructible_documented_and_says_what_it_depends_on(make):
    solver = make()
    kind = type(solver)
    assert isinstance(solver, Solver) and kind.__module__.startswith("madamoo.solvers._")
    assert all(name in kind.__doc__ for name in list(inspect.signature(kind).parameters))
    changes = []
    for losses in (torch.tensor([1.0, 2.0]), torch.tensor([3.0, 0.5])):
        fresh = make()
        for other, gram in batches(2, steps=5):
            fresh.weights(other, gram)
        changes.append(fresh.weights(losses.double(), gram))
    assert torch.equal(*changes) is not kind.uses_losses


class Quadratics:
    """l_i = s_i (|x - a_i|^2 / 2 + 1): the Pareto set is the convex hull of the anchors a_i."""

    def __init__(self, count):
        generator = np.random.default_rng(count)
        self.anchors = np.array([[1.0, 0, 0], [-1.0, 0, 0]]) if count == 2 else generator.normal(size=(count, 3))
        self.scale = np.linspace(0.5, 2.0, count)

    def losses(self, x):
        anchors, scale = torch.from_numpy(self.anchors), torch.from_numpy(self.scale)
        return scale * ((x - anchors).square().sum(1) / 2 + 1)

    def values(self, x):
        return self.losses(torch.from_numpy(np.asarray(x))).numpy()

    def distance(self, x):
        """The smallest norm of a convex combination of the gradients, in units of their scale."""
        rows = x - self.anchors
        heavy = 1e4
        share, _ = nnls(np.vstack([rows.T, heavy * np.ones(len(rows))]), np.array([*np.zeros(x.size), heavy]))
        return np.linalg.norm(share @ rows)

    def minimum(self, function):
        return min(
            (minimize(function, a + 0.1, method="Nelder-Mead", tol=1e-10) for a in self.anchors), key=lambda r: r.fun
        )


def train(problem, solver, metric, steps=200, lr=0.1, observe=False):
    x = torch.tensor([2.0, 1.5, -2.5], dtype=torch.float64, requires_grad=True)
    inner = torch.optim.Adam([x], lr=lr)
    opt = MultiObjective(inner, solver, metric)
    schedule = torch.optim.lr_scheduler.LambdaLR(inner, lambda t: max(0.0, 1 - t / steps) ** 2)
    for _ in range(steps):
        opt.zero_grad()
        opt.backward(problem.losses(x))
        opt.step()
        schedule.step()
        if observe:
            opt.solver.observe(problem.losses(x).detach())
    return x.detach().numpy(), opt.weights.numpy()


TRAINED = {name: make for name, make in MAKERS.items() if name != "smooth_tchebycheff_warm"}


@pytest.mark.parametrize("count, metric", [(2, None), (5, "metric")])
@pytest.mark.parametrize("name", TRAINED)
def test_training_ends_on_the_pareto_set(name, count, metric):
    problem, solver = Quadratics(count), TRAINED[name]()
    metric = None if metric is None else PreferenceMetric("full", rampup=0)
    x, weights = train(problem, solver, metric, observe=name == "famo")
    assert problem.distance(x) < (0.06 if name == "tchebycheff" else 0.02), (x, weights)
    values, anchors = problem.values(x), problem.anchors
    if name == "imtll":
        np.testing.assert_allclose(weights * values, 1.0, rtol=0.05)
    if name == "geometric_mean":
        best = problem.minimum(lambda x: np.log(problem.values(x)).sum())
        assert np.log(values).sum() == pytest.approx(best.fun, rel=2e-3)
    if name == "tchebycheff":
        assert values.max() == pytest.approx(problem.minimum(lambda x: problem.values(x).max()).fun, rel=0.01)
    if name == "smooth_tchebycheff":
        mu = solver.mu * count
        best = problem.minimum(lambda x: mu * np.logaddexp.reduce(problem.values(x) / mu))
        assert mu * np.logaddexp.reduce(values / mu) == pytest.approx(best.fun, rel=1e-3)
    if name == "dbmtl":  # gradients of equal norms cancel at the point with the least sum of distances
        best = problem.minimum(lambda x: np.linalg.norm(x - anchors, axis=1).sum())
        assert np.linalg.norm(x - anchors, axis=1).sum() == pytest.approx(best.fun, rel=1e-3)
