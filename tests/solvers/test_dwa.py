"""Dynamic weight average, against its paper with windows for epochs."""

import numpy as np
import pytest
import torch

from madamoo import solvers


def from_the_paper(losses, T, window):
    """lambda_k(t) = K softmax_k(w_k(t - 1) / T), w_k(t - 1) = L_k(t - 1) / L_k(t - 2), 1 for t = 1, 2; here over K."""
    steps, count = losses.shape
    epochs = [losses[e * window : (e + 1) * window].mean(0) for e in range(steps // window)]
    for step in range(steps):
        t = step // window
        w = np.ones(count) if t < 2 else epochs[t - 1] / epochs[t - 2]
        yield np.exp(w / T) / np.exp(w / T).sum()


@pytest.mark.parametrize("temperature, window", [(0.5, 1), (2.0, 4), (0.5, 25)])
def test_it_is_the_papers(temperature, window, dtype):
    losses = np.random.default_rng(0).uniform(0.1, 2.0, (90, 3)) * np.linspace(1, 0.1, 90)[:, None] ** [0.5, 1, 2]
    solver = solvers.DWA(temperature, window)
    for batch, wanted in zip(losses, from_the_paper(losses, temperature, window), strict=True):
        found = solver.weights(torch.as_tensor(batch, dtype=dtype))
        assert found.numpy() == pytest.approx(wanted, rel=1e-9 if dtype == torch.float64 else 1e-5)


def test_each_objective_has_windows_of_its_own():
    losses = np.random.default_rng(0).uniform(0.1, 2.0, (12, 2))
    there = np.array([0, 3, 4, 7, 9, 11])  # when the second objective has labels
    solver = solvers.DWA(window=2)
    for t in range(12):
        found = solver.solve(torch.as_tensor(losses[t]), present=[0, 1] if t in there else [0])
    before, last = losses[there[:2], 1].mean(), losses[there[2:4], 1].mean()
    ratio = np.array([losses[8:10, 0].mean() / losses[6:8, 0].mean(), last / before])
    assert found.numpy() == pytest.approx(np.exp(ratio / 2) / np.exp(ratio / 2).sum())


def test_a_loss_that_was_zero_stands_at_par():
    solver = solvers.DWA(window=1)
    for batch in ([0.0, 1.0], [0.0, 2.0], [1.0, 2.0], [1.0, 2.0]):
        found = solver.weights(torch.tensor(batch, dtype=torch.float64))
        assert found.isfinite().all() and found.sum().item() == pytest.approx(1.0)


def test_options_are_checked():
    with pytest.raises(ValueError, match="temperature must be positive"):
        solvers.DWA(temperature=0.0)
    with pytest.raises(ValueError, match="window must be an integer, at least 1, got 0"):
        solvers.DWA(window=0)
