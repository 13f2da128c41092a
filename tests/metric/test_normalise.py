"""Averages of normalised gradients: g_i / |g_i|, with lambda_i |g_i| in the place of lambda_i."""

import numpy as np
import pytest
import torch

from given_rows import build, draw, start
from madamoo.metric import ReferenceMetric


@pytest.mark.parametrize("every", [1, 3])
def test_normalised_averages(every, feed, brute_force, close):
    rows, weights = draw(40, 3)
    rows *= np.exp(np.random.default_rng(1).normal(size=(40, 3, 1)))  # norms that jump
    param = start()
    found = feed(build(param, "full", beta=0.9, every=every, normalise=True), param, rows, weights)
    close(found, brute_force(rows, weights, beta=0.9, every=every, normalise=True))


def test_normalised_averages_of_one_pair_a_step(feed, brute_force, drawn, close):
    rows, weights = draw(60, 4)
    rows *= np.exp(np.random.default_rng(1).normal(size=(60, 4, 1)))
    drawings = drawn(0, 4, 60)

    def pairs(t):
        i, j = drawings[t]
        return {(a, b) for a in (i, j) for b in (i, j)}

    param = start()
    found = feed(build(param, "pair", beta=0.9, normalise=True), param, rows, weights)
    close(found, brute_force(rows, weights, pairs, beta=0.9, normalise=True))


@pytest.mark.parametrize("estimator", ["full", "pair", "diagonal", "marginal"])
def test_normalised_averages_match_the_reference(estimator, feed, drawn, close):
    rows, weights = draw(30, 3)
    param = start()
    found = feed(build(param, estimator, beta=0.9, rampup=10, normalise=True), param, rows, weights)
    reference, drawings = ReferenceMetric(0.9, rampup=10, normalise=True), drawn(0, 3, 30)
    for t in range(30):
        g = {i: torch.as_tensor(rows[t, i]) for i in range(3)}
        d, w = sum(weights[t, i] * g[i] for i in g), list(weights[t])
        pairs = [(i, j) for i in range(3) for j in range(i, 3)]
        if estimator == "diagonal":
            pairs = [(i, i) for i in range(3)]
        elif estimator == "pair":
            g = {i: g[i] for i in set(drawings[t])}
            pairs = [(i, j) for i in g for j in g if i <= j]
        elif estimator == "marginal":
            g, w, pairs = {0: d}, [1.0], [(0, 0)]
        close(found[t], reference.step(g, pairs, w, d))


def test_normalised_averages_with_objectives_missing(feed, brute_force, close):
    rows, weights = draw(40, 3)
    rows[::3, 1] = np.nan
    rows[5:10, 2] = np.nan
    weights = np.where(np.isnan(rows).any(-1), 0.0, weights)
    param = start()
    found = feed(build(param, "full", beta=0.9, normalise=True), param, rows, weights)
    close(found, brute_force(rows, weights, beta=0.9, normalise=True))


def test_the_norm_is_over_all_parameters(feed, brute_force, close):
    """Two parameters, one of them reached by one objective only: as one long vector."""
    rows, weights = draw(30, 2)
    rows[:, 0, 3:] = 0.0
    trunk, head = (torch.zeros(k, dtype=torch.float64, requires_grad=True) for k in (3, 2))
    opt = build([trunk, head], "full", beta=0.9, normalise=True)
    seen = []
    for t, g in enumerate(torch.as_tensor(rows)):
        opt.zero_grad()
        opt.backward([g[0, :3] @ trunk, g[1, :3] @ trunk + g[1, 3:] @ head], preference=weights[t])
        seen.append(torch.cat([trunk.grad, head.grad]))
        opt.step()
    close(torch.stack(seen), brute_force(rows, weights, beta=0.9, normalise=True))


@pytest.mark.parametrize("estimator", ["full", "diagonal"])
def test_moving_scales_of_the_losses_do_not_matter_if_lambda_makes_up_for_them(estimator, feed, close):
    """Plain averages keep this promise for constant scales only."""
    rows, weights = draw(40, 3)
    scales = np.exp(2 * np.random.default_rng(1).normal(size=(40, 3)))
    found = {}
    for normalise in (True, False):
        for c in (np.ones_like(scales), scales):
            param = start()
            opt = build(param, estimator, beta=0.9, normalise=normalise)
            found.setdefault(normalise, []).append(feed(opt, param, rows * c[:, :, None], weights / c))
    close(*found[True])
    assert not torch.allclose(*found[False], rtol=0.1)


def test_old_gradients_do_not_linger_under_growing_weights(feed):
    """Weights that grow a thousandfold as gradients shrink: d keeps its size, and what the optimizer sees nearly so."""
    steps = 200
    shrink = np.geomspace(1.0, 1e-3, steps)[:, None]
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(steps, 2, 5)) * shrink[:, :, None]
    size = {}
    for normalise in (False, True):
        param = start()
        opt = build(param, "full", normalise=normalise, beta=0.997)
        size[normalise] = float(feed(opt, param, rows, np.ones((steps, 2)) / shrink)[-33:].abs().mean())
    assert size[False] < 0.02
    assert 0.2 < size[True] < 1.5


@pytest.mark.parametrize("estimator", ["full", "pair", "marginal"])
def test_gradients_of_zero_and_huge_ones_have_a_direction_too(estimator, feed):
    rows, weights = draw(30, 3)
    rows[:5] = 0.0
    rows[10:20, 1] = 0.0
    rows[25] *= 1e17
    param = start(torch.float32)
    found = feed(build(param, estimator, normalise=True), param, rows, weights)
    assert torch.isfinite(found).all() and found.abs().max() <= ReferenceMetric().bound * (1 + 1e-5)


def test_normalised_averages_add_up_over_micro_batches(feed, close):
    rows, weights = draw(20, 3)
    whole, parts = start(), start()
    wanted = feed(build(whole, "full", normalise=True), whole, rows, weights)
    opt, seen = build(parts, "full", normalise=True), []
    for t, g in enumerate(torch.as_tensor(rows)):
        opt.zero_grad()
        for share in (0.3, 0.7):
            opt.backward([share * g_i @ parts for g_i in g], preference=weights[t])
        seen.append(parts.grad.clone())
        opt.step()
    close(torch.stack(seen), wanted)


@pytest.mark.parametrize("estimator", ["full", "pair"])
def test_checkpoints_hold_the_norms(estimator, feed):
    rows, weights = draw(20, 3)
    param, other = start(), start()
    one = build(param, estimator, normalise=True)
    feed(one, param, rows[:10], weights[:10])
    state = one.state_dict()
    with torch.no_grad():
        other.copy_(param)
    two = build(other, estimator, normalise=True)
    two.load_state_dict(state)
    assert torch.equal(feed(one, param, rows[10:], weights[10:]), feed(two, other, rows[10:], weights[10:]))
    with pytest.raises(ValueError, match=r"metric normalise=True \(here False\)"):
        build(other, estimator).load_state_dict(state)
    plain = build(other, estimator)
    feed(plain, other, rows[:2], weights[:2])
    with pytest.raises(ValueError, match=r"metric normalise=False \(here True\)"):
        build(other, estimator, normalise=True).load_state_dict(plain.state_dict())
