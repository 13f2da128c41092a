"""FAMO against TorchJD's, with the losses after the step and with the next batch's, and what it promises."""

import pytest
import torch

from madamoo.solvers._famo import FAMO


def stream(count, seed, steps=30, spread=2.0):
    """Pairs of losses before and after a step."""
    generator = torch.Generator().manual_seed(seed)
    before = torch.exp(spread * torch.randn(count, generator=generator, dtype=torch.float64))
    for _ in range(steps):
        after = before * torch.exp(0.05 * torch.randn(count, generator=generator, dtype=torch.float64))
        yield before, after
        before = after * torch.exp(0.2 * torch.randn(count, generator=generator, dtype=torch.float64))


def reference(count, solver, bounds=0.0):
    """TorchJD's FAMO; it adds 1e-8 to each distance from the bound, so the bound is moved by as much."""
    scalarization = pytest.importorskip("torchjd.scalarization")
    bounds = torch.full((count,), 1e-8, dtype=torch.float64) + bounds
    return scalarization.FAMO(count, bounds, lr=solver.lr, weight_decay=solver.gamma).double()


def weights_of(scalarizer, losses):
    losses = losses.clone().requires_grad_()
    return torch.autograd.grad(scalarizer(losses), losses)[0]


def check(solver, count, seed, observe=True, bounds=0.0):
    expected = reference(count, solver, bounds)
    for step, (before, after) in enumerate(stream(count, seed)):
        before, after = before + bounds, after + bounds
        if not observe and step > 0:
            expected.update(before)
        torch.testing.assert_close(solver.weights(before), weights_of(expected, before), rtol=1e-9, atol=0.0)
        if observe:
            solver.observe(after)
            expected.update(after)


@pytest.mark.parametrize("observe", [True, False])
@pytest.mark.parametrize("options", [{}, {"lr": 0.1, "gamma": 0.0}, {"gamma": 0.1}])
def test_matches_torchjd(options, observe):
    for count in (1, 2, 7, 40):
        check(FAMO(**options), count, seed=count, observe=observe)


def test_matches_torchjd_with_lower_bounds():
    bounds = torch.tensor([-5.0, 0.0, 3.0], dtype=torch.float64)
    check(FAMO(min_losses=bounds.tolist()), 3, seed=0, bounds=bounds)


def test_the_check_rejects_a_wrong_sign():
    class Wrong(FAMO):
        def descend(self, gradient):
            super().descend(-gradient)

    with pytest.raises(AssertionError):
        check(Wrong(), 7, seed=0)


def test_observed_losses_are_used_once():
    """After ``observe`` the next batch's losses teach nothing."""
    solver = FAMO()
    solver.weights(torch.tensor([1.0, 2.0]))
    solver.observe(torch.tensor([0.9, 1.0]))
    learned = solver.variable
    solver.weights(torch.tensor([7.0, 0.1]))
    assert torch.equal(solver.variable, learned)
    solver.weights(torch.tensor([7.0, 0.1]))
    assert not torch.equal(solver.variable, learned)


def test_observe_before_the_first_step_does_nothing():
    solver = FAMO()
    solver.observe(torch.tensor([0.9, 1.0]))
    assert solver.variable.tolist() == [0.0, 0.0]


def test_an_objective_that_was_not_observed_rests():
    solver, two = FAMO(), FAMO()
    generator = torch.Generator().manual_seed(0)
    for _ in range(5):
        losses, after = torch.rand(2, 3, generator=generator, dtype=torch.float64) + 0.1
        after[1] = torch.nan
        solver.solve(losses, present=(0, 2))
        two.weights(losses[[0, 2]])
        solver.observe(after)
        two.observe(after[[0, 2]])
    assert torch.equal(solver.variable[[0, 2]], two.variable)
    assert float(solver.variable[1]) == 0.0 and float(solver.updates[1]) == 0.0


def test_slow_objective_gains_weight():
    solver = FAMO()
    for _ in range(100):
        solver.weights(torch.tensor([1.0, 1.0]))
        solver.observe(torch.tensor([0.99, 0.90]))
    weights = solver.weights(torch.tensor([1.0, 1.0]))
    assert weights[0] > 2 * weights[1] and float(weights.sum()) == pytest.approx(1.0)


def test_direction_does_not_depend_on_the_scale_of_each_loss():
    scale = torch.tensor([1e-4, 1.0, 1e4], dtype=torch.float64)
    plain, scaled = FAMO(), FAMO()
    for before, after in stream(3, seed=1):
        a, b = plain.weights(before), scaled.weights(scale * before) * scale
        torch.testing.assert_close(a / a.sum(), b / b.sum(), rtol=1e-9, atol=0.0)
        plain.observe(after)
        scaled.observe(scale * after)


def test_loss_below_its_bound_draws_the_weight_and_stays_finite():
    weights = FAMO().weights(torch.tensor([1.0, -1.0], dtype=torch.float64))
    torch.testing.assert_close(weights, torch.tensor([1e-8, 1.0], dtype=torch.float64), rtol=1e-6, atol=0.0)


@pytest.mark.parametrize(
    "options", [{"lr": 0.0}, {"gamma": -1.0}, {"eps": 0.0}, {"min_losses": [[0.0]]}, {"min_losses": [float("nan")]}]
)
def test_refuses(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        FAMO(**options)


def test_refuses_bounds_of_another_length():
    with pytest.raises(ValueError, match="min_losses must have 3 entries"):
        FAMO(min_losses=[0.0, 0.0]).weights(torch.ones(3))
