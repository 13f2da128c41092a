"""MGDA is the shortest vector of the hull: its own condition, TorchJD's answer, and what the check would catch."""

import numpy as np
import pytest
import torch

from madamoo import solvers


def check_shortest(K, w, rtol=1e-6):
    """On the simplex, and g_j . d >= |d|^2 for every j: no point of the hull is shorter."""
    assert (w >= 0).all() and w.sum() == pytest.approx(1.0, abs=1e-9)
    square = w @ K @ w
    assert (K @ w).min() >= square * (1 - rtol) - 1e-12 * K.diagonal().max()


def draw(seed):
    """Conflict, agreement, few dimensions, unlike sizes."""
    rng = np.random.default_rng(seed)
    count, size = int(rng.integers(2, 11)), int(rng.integers(1, 30))
    J = rng.normal(size=(count, size)) + rng.choice([0.0, 0.5, 2.0]) * rng.normal(size=size)
    return J * 10 ** rng.uniform(-1, 1, (count, 1)) ** rng.integers(0, 2)


def weights(J, solve, normalization="none", losses=None):
    losses = np.ones(len(J)) if losses is None else losses
    return solve(solvers.MGDA(normalization), losses, J @ J.T).numpy()


def test_shortest_on_many(solve):
    for seed in range(300):
        J = draw(seed)
        check_shortest(J @ J.T, weights(J, solve))


def test_shortest_on_the_odd_ones(gradients, solve):
    for J in gradients.values():
        check_shortest(J @ J.T, weights(J, solve))


def test_torchjd_agrees(solve):
    """|d - d*|^2 <= |d|^2 - |d*|^2 for any d of the hull and the shortest one, d*: so close as theirs is short."""
    theirs = pytest.importorskip("torchjd.aggregation").MGDAWeighting(max_iters=150)
    excess = []
    for seed in range(200):
        J = draw(seed)
        a, b = J.T @ weights(J, solve), J.T @ theirs(torch.from_numpy(J @ J.T)).numpy()
        size = (J**2).sum(1).max()
        assert a @ a <= b @ b + 1e-12 * size
        assert (a - b) @ (a - b) <= b @ b - a @ a + 1e-9 * size
        excess.append((b @ b - a @ a) / size)
    assert np.median(excess) < 1e-3  # theirs is near enough for the comparison to mean something


@pytest.mark.parametrize("normalization", ["none", "l2", "loss", "loss+"])
def test_normalization_is_applied_while_the_weights_are_sought(normalization, solve):
    for seed in range(40):
        J, losses = draw(seed), np.random.default_rng(seed).uniform(0.1, 3.0, 40)
        losses = losses[: len(J)]
        size = {"none": 1.0, "l2": np.linalg.norm(J, axis=1), "loss": losses}.get(normalization)
        size = np.linalg.norm(J, axis=1) * losses if size is None else size
        scaled = J / np.broadcast_to(size, len(J))[:, None]
        check_shortest(scaled @ scaled.T, weights(J, solve, normalization, losses))


def test_options_are_checked():
    with pytest.raises(ValueError, match=r"normalization must be one of 'none', 'l2', 'loss', 'loss\+', got 'L1'"):
        solvers.MGDA("L1")


def uniform(K):
    return np.full(len(K), 1 / len(K))


def shortest_vertex(K):
    return np.eye(len(K))[np.argmin(K.diagonal())]


def sign_error(K):
    w = np.linalg.lstsq(-K, np.ones(len(K)), rcond=None)[0].clip(0)
    return w / w.sum() if w.any() else uniform(K)


@pytest.mark.parametrize("broken", [uniform, shortest_vertex, sign_error])
def test_the_check_catches_a_broken_one(broken):
    caught = 0
    for seed in range(20):
        J = draw(seed)
        try:
            check_shortest(J @ J.T, broken(J @ J.T))
        except AssertionError:
            caught += 1
    assert caught >= 15
