"""GradNorm against autograd on the paper's own loss, through a network, and the balance that it promises."""

import pytest
import torch

from madamoo.solvers._gradnorm import GradNorm


def problem(count, seed, steps=15):
    """Losses of a small shared map on a new batch each step, with autograd graphs."""
    generator = torch.Generator().manual_seed(seed)
    theta = torch.randn(6, generator=generator, dtype=torch.float64).requires_grad_()
    size = torch.exp(2 * torch.randn(count, generator=generator, dtype=torch.float64))
    for _ in range(steps):
        x = torch.randn(count, 6, generator=generator, dtype=torch.float64)
        yield theta, list(size * (torch.tanh(x @ theta) + 1.5).square())
        with torch.no_grad():
            theta += 0.1 * torch.randn(6, generator=generator, dtype=torch.float64)


def reference(stream, count, alpha, lr):
    """The weights w / C each step: L_grad is differentiated, torch's Adam steps log w, w is scaled to sum to C."""
    log_w = torch.zeros(count, dtype=torch.float64, requires_grad=True)
    adam = torch.optim.Adam([log_w], lr=lr)
    first = None
    for theta, losses in stream:
        w = log_w.exp()
        yield losses, theta, (w / count).detach()
        first = [x.item() for x in losses] if first is None else first
        norms = torch.stack(
            [torch.autograd.grad(w[i] * x, theta, create_graph=True)[0].norm() for i, x in enumerate(losses)]
        )
        ratio = torch.tensor([x.item() / f for x, f in zip(losses, first, strict=True)], dtype=torch.float64)
        mean = norms.mean().detach()
        loss = (norms - mean * (ratio / ratio.mean()) ** alpha).abs().sum() / mean
        log_w.grad = torch.autograd.grad(loss, log_w)[0]
        adam.step()
        with torch.no_grad():
            log_w -= torch.log(log_w.exp().sum() / count)


def gram_of(losses, theta):
    rows = torch.stack([torch.autograd.grad(x, theta, retain_graph=True)[0] for x in losses])
    return rows @ rows.T


def check(solver, count, seed):
    for losses, theta, expected in reference(problem(count, seed), count, solver.alpha, solver.lr):
        found = solver.weights(torch.stack(losses).detach(), gram_of(losses, theta))
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=0.0)


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.5, 3.0])
@pytest.mark.parametrize("count", [1, 2, 8])
def test_matches_autograd_on_the_papers_loss(alpha, count):
    for seed in range(3):
        check(GradNorm(alpha, lr=0.05), count, seed)


def test_the_check_rejects_the_gradient_by_w():
    """w is learned through its logarithm: the slope holds a factor w_i."""

    class Wrong(GradNorm):
        def descend(self, gradient):
            super().descend(gradient / torch.exp(self.variable))

    with pytest.raises(AssertionError):
        check(Wrong(), 5, 0)


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_norms_reach_their_targets_whatever_the_scale(scale):
    """Fixed gradients and losses: G_i / G tends to r_i^alpha, up to the factor that sum w_i = C leaves open."""
    norms = torch.tensor([1e-3, 1.0, 30.0], dtype=torch.float64)
    gram = torch.outer(norms, norms) * scale
    solver = GradNorm(alpha=0.0)
    for _ in range(700):
        weights = solver.weights(torch.ones(3, dtype=torch.float64), gram)
    balanced = weights * norms
    torch.testing.assert_close(balanced / balanced.mean(), torch.ones_like(norms), rtol=0.06, atol=0.0)


def test_slow_objective_gets_the_larger_gradient():
    solver, gram = GradNorm(), torch.eye(2, dtype=torch.float64)
    solver.weights(torch.tensor([1.0, 1.0]), gram)
    for _ in range(200):
        weights = solver.weights(torch.tensor([0.9, 0.6]), gram)
    rate = torch.tensor([0.9, 0.6], dtype=torch.float64) / 0.75
    target = rate**1.5 / (rate**1.5).mean()
    torch.testing.assert_close(weights * 2, target.to(weights), rtol=0.06, atol=0.0)


def test_objective_without_gradient_does_not_move_the_others():
    solver, alone = GradNorm(), GradNorm()
    generator = torch.Generator().manual_seed(0)
    for _ in range(50):
        losses = torch.rand(3, generator=generator, dtype=torch.float64) + 0.1
        norms = torch.rand(3, generator=generator, dtype=torch.float64) + 0.1
        norms[2] = 0.0
        three = solver.weights(losses, torch.diag(norms.square()))
        two = alone.weights(losses[:2], torch.diag(norms[:2].square()))
    torch.testing.assert_close(three[:2] / three[:2].sum(), two, rtol=1e-9, atol=0.0)
    assert float(three[2]) == pytest.approx(1 / 3, rel=0.2)


def test_initial_loss_is_the_first_positive_one():
    solver, gram = GradNorm(), torch.eye(2, dtype=torch.float64)
    for losses in ([0.0, 4.0], [-1.0, 3.0], [5.0, 3.0], [6.0, 3.0]):
        solver.weights(torch.tensor(losses, dtype=torch.float64), gram)
    assert solver.initial.tolist() == [5.0, 4.0]


def test_weights_sum_to_one_and_lag_behind_the_losses():
    assert GradNorm.uses_losses is False
    assert GradNorm.family == "loss" and GradNorm.needs_gram
    solver, gram = GradNorm(), torch.diag(torch.tensor([1.0, 100.0]))
    assert solver.weights(torch.tensor([1.0, 5.0]), gram).tolist() == [0.5, 0.5]
    for _ in range(20):
        weights = solver.weights(torch.tensor([1.0, 5.0]), gram)
    assert float(weights.sum()) == pytest.approx(1.0) and weights[0] > weights[1]


@pytest.mark.parametrize("options", [{"alpha": -1.0}, {"lr": 0.0}])
def test_refuses(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        GradNorm(**options)
