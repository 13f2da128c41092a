"""Random weights: their distribution, and that a seed fixes them."""

import numpy as np
import pytest
import torch
from scipy import stats

from madamoo import solvers

DRAWS = 4000


def draw(distribution, count, seed=0, draws=DRAWS):
    solver = solvers.RLW(distribution, seed=seed)
    return torch.stack([solver.weights(torch.ones(count, dtype=torch.float64)) for _ in range(draws)]).numpy()


@pytest.mark.parametrize("count", [2, 5])
def test_dirichlet(count):
    """Uniform on the simplex: Beta(1, C - 1) in each entry, with the covariance of Dirichlet(1, ..., 1)."""
    w = draw("dirichlet", count)
    for i in range(count):
        assert stats.kstest(w[:, i], stats.beta(1, count - 1).cdf).pvalue > 1e-3
    wanted = (np.eye(count) * count - 1) / (count**2 * (count + 1))
    assert np.cov(w.T) == pytest.approx(wanted, abs=5 * wanted.max() / DRAWS**0.5)


@pytest.mark.parametrize("count", [2, 5])
def test_normal(count):
    """The softmax of standard normal draws: log w_i - log w_j is N(0, 2), and every pair of them correlates 1/2."""
    logs = np.log(draw("normal", count))
    logs = logs[:, 1:] - logs[:, :1]
    for i in range(count - 1):
        assert stats.kstest(logs[:, i], stats.norm(scale=2**0.5).cdf).pvalue > 1e-3
    assert np.atleast_2d(np.cov(logs.T)) == pytest.approx(np.eye(count - 1) + 1, abs=5 * 2 / DRAWS**0.5)


@pytest.mark.parametrize("distribution", ["normal", "dirichlet"])
def test_seeds(distribution):
    with torch.random.fork_rng():
        torch.manual_seed(1)
        before = torch.get_rng_state()
        a = draw(distribution, 3, seed=4, draws=5)
        assert torch.equal(torch.get_rng_state(), before)  # the draws are the solver's own
    assert np.array_equal(a, draw(distribution, 3, seed=4, draws=5))
    assert not np.allclose(a, draw(distribution, 3, seed=5, draws=5))
    assert not np.allclose(a[0], a[1])


def test_options_are_checked():
    with pytest.raises(ValueError, match="distribution must be one of 'normal', 'dirichlet', got 'uniform'"):
        solvers.RLW("uniform")
