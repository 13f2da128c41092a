"""Uncertainty weighting, against autograd and torch's Adam on log sigma^2."""

import pytest
import torch

from madamoo import solvers


def losses(steps, count, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    return (torch.rand(steps, count, generator=generator, dtype=torch.float64) * torch.arange(1, count + 1)).to(dtype)


@pytest.mark.parametrize("lr", [0.025, 0.3])
@pytest.mark.parametrize(
    "kinds", ["regression", "classification", ["regression", "classification", "regression"]], ids=str
)
def test_it_is_adam_on_the_likelihood(kinds, lr, dtype):
    """Noisy losses, some large: the slope is cut at -1/2, its largest on the other side."""
    each = [kinds] * 3 if isinstance(kinds, str) else kinds
    s = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    adam = torch.optim.Adam([s], lr=lr)
    solver = solvers.UW(kinds, lr=lr)
    for batch in losses(100, 3, dtype):
        variance = s.exp()
        factor = torch.stack([1 / (2 * v) if k == "regression" else 1 / v for v, k in zip(variance, each, strict=True)])
        torch.testing.assert_close(solver.weights(batch), factor.detach().to(dtype))
        adam.zero_grad()
        (factor * batch.double() + variance.sqrt().log()).sum().backward()
        s.grad.clamp_(min=-0.5)
        adam.step()


def test_small_losses_are_never_cut():
    s = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    adam = torch.optim.Adam([s], lr=0.025)
    solver, batch = solvers.UW("classification"), torch.tensor([1e-3, 0.1, 0.4], dtype=torch.float64)
    for _ in range(200):
        torch.testing.assert_close(solver.weights(batch), (-s).exp().detach())
        adam.zero_grad()
        ((-s).exp() * batch + s / 2).sum().backward()
        assert (s.grad > -0.5).all()
        adam.step()


def test_it_settles_where_the_weighted_losses_are_one_half(dtype):
    """The likelihood's stationary point: lambda_i l_i = 1/2, whatever the loss."""
    solver, batch = solvers.UW(lr=0.05), torch.tensor([1e-3, 1.0, 50.0], dtype=dtype)
    for _ in range(1500):
        weights = solver.weights(batch)
    assert (weights * batch).tolist() == pytest.approx([0.5] * 3, rel=1e-2)


def test_each_objective_has_a_clock_of_its_own():
    """Adam's bias correction counts the steps that the objective was there."""
    batch = losses(6, 2)
    solver, alone = solvers.UW(), solvers.UW()
    for t in range(6):
        present = [0, 1] if t in (0, 3) else [0]
        found = solver.solve(batch[t], present=present)
        if 1 in present:
            assert found[1] == alone.solve(batch[t, 1:])[0]


def test_options_are_checked():
    with pytest.raises(ValueError, match="kinds must be one of 'regression', 'classification', got 'ranking'"):
        solvers.UW(["regression", "ranking"])
    with pytest.raises(ValueError, match="kinds must have 3 entries"):
        solvers.UW(["regression", "regression"]).weights(torch.ones(3))
    with pytest.raises(ValueError, match="lr must be positive"):
        solvers.UW(lr=0.0)
