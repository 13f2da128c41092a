"""DB-MTL against the paper's direction, made from the gradients themselves, and a plain loop for the average."""

import numpy as np
import pytest
import torch

from madamoo.solvers._dbmtl import DBMTL


def batches(count, seed, steps=10, spread=3.0):
    """Losses and gradient rows, some of them dependent, of very unlike sizes."""
    generator = np.random.default_rng(seed)
    mixing = generator.normal(size=(count, max(1, count // 2)))
    size = np.exp(spread * generator.normal(size=count))
    for _ in range(steps):
        rows = size[:, None] * (mixing @ generator.normal(size=(mixing.shape[1], 9)))
        yield np.exp(spread * generator.normal(size=count)), rows


def papers_terms(losses, rows, buffer, beta):
    """The terms of the paper's direction: an average of the gradients of log l_i, all scaled to the largest norm."""
    grads = rows / losses[:, None]
    buffer = grads if buffer is None else beta * buffer + (1 - beta) * grads
    norms = np.linalg.norm(buffer, axis=1)
    return (norms.max() / norms)[:, None] * buffer, buffer


def solve(solver, losses, rows):
    weights = solver.weights(torch.from_numpy(losses), torch.from_numpy(rows @ rows.T)).numpy()
    assert np.isfinite(weights).all()
    return weights


def check_direction(solver, count, seed):
    for losses, rows in batches(count, seed):
        expected, _ = papers_terms(losses, rows, None, 0.0)
        np.testing.assert_allclose(solve(solver, losses, rows)[:, None] * rows, expected, rtol=1e-9)


@pytest.mark.parametrize("count", [1, 2, 7, 40])
def test_without_average_it_is_the_papers_direction(count):
    for seed in range(10):
        check_direction(DBMTL(beta=0.0), count, seed)


def test_the_check_rejects_the_smallest_norm_as_the_target():
    class Wrong(DBMTL):
        def weights(self, losses, gram=None, preference=None):
            weights = super().weights(losses, gram, preference)
            norms = gram.diagonal().sqrt() / losses
            return weights * norms.min() / norms.max()

    with pytest.raises(AssertionError):
        check_direction(Wrong(beta=0.0), 7, 0)


@pytest.mark.parametrize("beta", [0.3, 0.9, 0.99])
def test_steady_gradients_give_the_papers_direction_for_any_average(beta):
    solver, buffer = DBMTL(beta), None
    losses, rows = next(batches(5, 0))
    for _ in range(20):
        expected, buffer = papers_terms(losses, rows, buffer, beta)
        np.testing.assert_allclose(solve(solver, losses, rows)[:, None] * rows, expected, rtol=1e-9)


@pytest.mark.parametrize("beta", [0.0, 0.5, 0.9])
def test_average_of_the_norms(beta):
    solver, history = DBMTL(beta), []
    for losses, rows in batches(6, 3, steps=15):
        history.append(np.linalg.norm(rows, axis=1) / losses)
        share = beta ** np.arange(len(history))[::-1]
        n = share @ np.array(history) / share.sum()
        np.testing.assert_allclose(solve(solver, losses, rows), n.max() / n / losses, rtol=1e-9)


def test_direction_does_not_depend_on_the_scale_of_each_loss():
    plain, scaled = DBMTL(), DBMTL()
    scale = np.array([1e-3, 1.0, 1e3, 1e5])
    for losses, rows in batches(4, 1, spread=0.5):
        a = solve(plain, losses, rows) @ rows
        b = solve(scaled, scale * losses, scale[:, None] * rows) @ (scale[:, None] * rows)
        np.testing.assert_allclose(a, b, rtol=1e-9)


def test_all_scaled_gradients_have_the_same_norm():
    for losses, rows in batches(7, 5):
        norms = solve(DBMTL(), losses, rows) * np.linalg.norm(rows, axis=1)
        np.testing.assert_allclose(norms, norms[0], rtol=1e-9)


def test_objective_without_gradient():
    """It keeps its average, and is not scaled as long as it has none: a head of its own still trains by log l."""
    losses = torch.tensor([2.0, 4.0], dtype=torch.float64)
    solver = DBMTL()
    no, yes = torch.diag(torch.tensor([4.0, 0.0])), torch.diag(torch.tensor([4.0, 4.0]))
    assert solver.weights(losses, no).tolist() == pytest.approx([0.5, 0.25])
    first = solver.weights(losses, yes).tolist()
    assert first == pytest.approx([0.5, 0.5])
    for _ in range(500):
        assert solver.weights(losses, no).tolist() == pytest.approx(first)


def test_loss_counts_by_its_magnitude():
    gram = torch.tensor([[2.0, 0.5], [0.5, 1.0]])
    negative = DBMTL().weights(torch.tensor([-2.0, 3.0]), gram)
    assert torch.equal(negative, DBMTL().weights(torch.tensor([2.0, 3.0]), gram))
    assert DBMTL.uses_losses is True


@pytest.mark.parametrize("options", [{"beta": 1.0}, {"beta": -0.1}, {"beta": float("nan")}, {"eps": 0.0}])
def test_refuses(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        DBMTL(**options)
