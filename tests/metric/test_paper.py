"""The metric through the public API, against the paper's equations."""

import numpy as np
import pytest
import torch

from given_rows import Given, averages, both_ways, build, draw, start
from madamoo import MultiObjective, PreferenceMetric, solvers
from madamoo.metric import ESTIMATORS

PLAIN = {"eps": 1e-8, "ramp": "paper", "bias_correction": False, "floor": False}


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_one_objective_is_adam_on_the_whitened_gradient(estimator, close):
    """100 steps of a noisy problem: MAdam, and torch's Adam fed with g / sqrt(EMA(g^2))."""
    dtype = torch.float32 if estimator == "full" else torch.float64
    ours, theirs = start(dtype), start(dtype)
    opt = build(ours, estimator, solver=solvers.LS())
    adam, v, beta = torch.optim.Adam([theirs], lr=1e-2), torch.zeros_like(theirs), 0.999
    generator = torch.Generator().manual_seed(1)
    for t in range(1, 101):
        x = torch.randn(8, 5, generator=generator, dtype=dtype)
        opt.zero_grad()
        opt.backward([(x @ ours - 1).square().mean()])
        opt.step()
        (g,) = torch.autograd.grad((x @ theirs - 1).square().mean(), theirs)
        v = beta * v + (1 - beta) * g * g
        theirs.grad = g / torch.sqrt(v / (1 - beta**t) + 1e-16)
        adam.step()
        close(ours.detach(), theirs.detach(), dtype, rtol=1e-10 if dtype == torch.float64 else 1e-4)


@pytest.mark.parametrize("ramp", ["largest", "paper"])
def test_full_with_constant_weights_is_collapsed(ramp, dtype, feed, close):
    rows, _ = draw(40, 4)
    options = {"bias_correction": dtype == torch.float64, "ramp": ramp, "rampup": 10}
    found = []
    for estimator in ("full", "collapsed"):
        param = start(dtype)
        found.append(feed(build(param, estimator, solvers.LS([0.1, 0.2, 0.3, 0.6]), **options), param, rows))
    close(*found, dtype)


@pytest.mark.parametrize("estimator", ["full", "diagonal", "marginal"])
def test_every_average_under_a_restless_preference(estimator, dtype, feed, brute_force, close):
    for count in (1, 2, 5):
        rows, weights = draw(30, count)
        param = start(dtype)
        found = feed(build(param, estimator, floor=False), param, rows, weights)
        if estimator == "marginal":  # the average of d^2: one objective, d, of weight 1
            rows, weights = np.einsum("tc,tcn->tn", weights, rows)[:, None], np.ones((30, 1))
        squares = [(i, i) for i in range(count)]
        pairs = (lambda t, pairs=squares: pairs) if estimator == "diagonal" else None
        close(found, brute_force(rows, weights, pairs, floor=False), dtype)


@pytest.mark.parametrize("estimator", ["full", "diagonal"])
def test_missing_objectives_rest(estimator, feed, brute_force, close):
    rows, weights = draw(60, 4)
    rng = np.random.default_rng(2)
    rows[(rng.random((60, 4)) < 0.4) & (np.arange(4) != rng.integers(4, size=(60, 1)))] = np.nan
    param = start()
    found = feed(build(param, estimator), param, rows, weights)

    def diagonal(t):
        return [(i, i) for i in range(4) if not np.isnan(rows[t, i]).any()]

    close(found, brute_force(rows, weights, diagonal if estimator == "diagonal" else None))


@pytest.mark.parametrize("solver, count", [(None, 6), (solvers.RLW, 4), (solvers.MGDA, 4), (Given, 2)])
def test_pair_follows_its_generator(solver, count, feed, brute_force, drawn, close):
    rows, weights = draw(80, count)
    param = start()
    opt = build(param, "pair", solver and solver(), seed=7)
    pairs = drawn(7, count, 80)
    if solver is None:
        found = feed(opt, param, rows, weights)
    else:  # the weights are the solver's: record them
        found, weights = [], []
        for g in rows:
            found.append(feed(opt, param, g[None])[0])
            weights.append(opt.weights)
        found, weights = torch.stack(found), torch.stack(weights).cpu()
    close(found, brute_force(rows, weights, lambda t: both_ways(*pairs[t])), rtol=1e-7)

    entries = averages(opt)
    counts = {(i, j): sum((i, j) in both_ways(*p) for p in pairs) for i in range(count) for j in range(i, count)}
    assert {tuple(p): n for p, n in zip(entries["pairs"], entries["n"], strict=True)} == {
        pair: n for pair, n in counts.items() if n
    }


def test_pair_is_full_on_a_repeated_batch_once_every_pair_was_seen(dtype, feed, drawn, close):
    rows, weights = draw(60, 3)
    rows[:] = np.abs(rows[0])  # of one sign: nothing cancels, and float32 is as good as float64
    found = {}
    for estimator in ("pair", "full"):
        param = start(dtype)
        found[estimator] = feed(build(param, estimator), param, rows, weights)
    seen, last = set(), 0
    for t, pair in enumerate(drawn(0, 3, 60)):
        last = t if not both_ways(*pair) <= seen else last
        seen |= both_ways(*pair)
    assert len(seen) == 9 and last < 50
    close(found["pair"][last:], found["full"][last:], dtype)
    assert not torch.allclose(found["pair"][:last], found["full"][:last], rtol=0.05)


@pytest.mark.cpu
def test_plain_form_is_algorithm_1(drawn, close):
    """A literal transcription, Adam included, on losses whose gradients are positive: no root of a negative number."""
    count, size, steps, lr, (b1, b2), warmup, tiny = 3, 4, 80, 1e-2, (0.9, 0.99), 20, 1e-8
    rng = np.random.default_rng(0)
    slopes = rng.uniform(0.2, 1.5, (steps, count, size))
    preferences = rng.dirichlet(np.ones(count), steps)

    theta, m, v = np.zeros(size), np.zeros(size), np.zeros(size)
    F = np.zeros((count, count, size))
    for t, (i, j) in enumerate(drawn(3, count, steps)):
        lam = preferences[t]
        g = slopes[t] * np.exp(slopes[t] * theta)  # of  sum_k exp(a_k theta_k)
        d = (lam[:, None] * g).sum(0)
        for p, q in {(i, i), (j, j), (i, j)}:
            F[p, q] = F[q, p] = b2 * F[p, q] + (1 - b2) * g[p] * g[q]
        C = sum(lam[p] * lam[q] * F[p, q] for p in range(count) for q in range(count))
        alpha = min(1.0, t / warmup)
        d = d / (alpha * np.sqrt(C + tiny) + (1 - alpha))
        m, v = b1 * m + (1 - b1) * d, b2 * v + (1 - b2) * d * d
        theta = theta - lr * (m / (1 - b1 ** (t + 1))) / (np.sqrt(v / (1 - b2 ** (t + 1))) + 1e-8)

    param = torch.nn.Parameter(torch.zeros(size, dtype=torch.float64))
    opt = build(param, "pair", betas=(b1, b2), rampup=warmup, seed=3, **PLAIN)
    for t in range(steps):
        opt.zero_grad()
        opt.backward(torch.exp(torch.from_numpy(slopes[t]) * param).sum(1), preference=preferences[t])
        opt.step()
    close(param.detach(), theta)


@pytest.mark.cpu
def test_adam_averages_the_preference_away_and_the_metric_whitens():
    """Proposition 1 and equations 7 and 9: stationary gradients, a preference drawn for each step.

    The gradients of three objectives are A z with z standard normal, so F = A A' in every coordinate.
    """
    count, size, steps, beta = 3, 4000, 120, 0.98
    A = np.array([[5.0, 0.0, 0.0], [0.5, 1.0, 0.0], [-0.2, -0.1, 0.3]])
    F = A @ A.T
    preferences = np.random.default_rng(1).dirichlet(np.ones(count), steps)
    preferences[-1] = 0.02, 0.08, 0.9
    memory = beta ** np.arange(steps)[::-1]
    moments = np.einsum("t,ti,tj->ij", memory / memory.sum(), preferences, preferences)  # E[lambda_i lambda_j]
    second, squared = {}, {}
    for name, metric in (("adam", None), ("madam", PreferenceMetric("full", rampup=0))):
        rng = np.random.default_rng(0)
        param = torch.nn.Parameter(torch.zeros(size, dtype=torch.float64))
        inner = torch.optim.Adam([param], lr=0.0, betas=(0.9, beta))
        opt = MultiObjective(inner, solvers.Preference(), metric)
        for preference in preferences:
            rows = A @ rng.standard_normal((count, size))
            opt.zero_grad()
            opt.backward(torch.from_numpy(rows) @ param, preference=preference)
            squared[name] = np.mean((preference @ rows / param.grad.numpy()) ** 2)  # M^2: the curvature
            opt.step()
        second[name] = inner.state[param]["exp_avg_sq"].mean().item() / (1 - beta**steps)
    asked = preferences[-1] @ F @ preferences[-1]
    assert second["adam"] == pytest.approx((moments * F).sum(), rel=0.05)
    assert second["adam"] > 10 * asked
    assert squared["madam"] == pytest.approx(asked, rel=0.05)
    assert second["madam"] == pytest.approx(1.0, rel=0.05)
