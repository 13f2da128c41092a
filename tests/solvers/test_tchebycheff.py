"""Tchebycheff scalarisations against autograd on their formulae, and TorchJD's smooth one."""

import pytest
import torch

from madamoo.solvers._smooth_tchebycheff import SmoothTchebycheff
from madamoo.solvers._tchebycheff import Tchebycheff

BOTH = pytest.mark.parametrize("solver", [Tchebycheff, SmoothTchebycheff])


def cases():
    """Losses, preferences on the simplex and ideal points."""
    generator = torch.Generator().manual_seed(0)
    for count in (1, 2, 7, 40):
        for _ in range(40):
            losses, p, ideal = torch.rand(3, count, generator=generator, dtype=torch.float64)
            p = p + 0.01
            yield 3 * losses, p / p.sum(), ideal - 0.5


def gradient(function, losses):
    losses = losses.clone().requires_grad_()
    return torch.autograd.grad(function(losses), losses)[0] * len(losses)


def test_maximum_matches_autograd():
    for losses, p, z in cases():
        found = Tchebycheff(ideal=z).weights(losses, None, 5 * p)
        torch.testing.assert_close(found, gradient(lambda x, p=p, z=z: (p * (x - z)).max(), losses))


def check_smooth(solver, mu):
    stch = pytest.importorskip("torchjd.scalarization").STCH
    for losses, p, z in cases():
        expected = gradient(stch(mu, p, z), losses)
        torch.testing.assert_close(solver(mu, ideal=z).weights(losses, None, 5 * p), expected, rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("mu", [0.01, 0.1, 1.0, 30.0])
def test_smooth_matches_torchjd(mu):
    check_smooth(SmoothTchebycheff, mu)


def test_the_check_rejects_a_softmax_without_preference():
    class Wrong(SmoothTchebycheff):
        def slopes(self, p, gap):
            return torch.softmax(gap / len(gap) / self.mu, 0)

    with pytest.raises(AssertionError):
        check_smooth(Wrong, 0.1)


def test_smooth_tends_to_the_maximum_and_to_linear_scalarisation():
    for losses, p, z in cases():
        hard = Tchebycheff(ideal=z).weights(losses, None, p)
        torch.testing.assert_close(SmoothTchebycheff(1e-9, ideal=z).weights(losses, None, p), hard)
        torch.testing.assert_close(SmoothTchebycheff(1e9, ideal=z).weights(losses, None, p), p, rtol=1e-6, atol=0.0)


@pytest.mark.parametrize("log", [False, True])
def test_warm_up(log):
    """Linear scalarisation of the losses in units of their average so far, then the smooth maximum in those units."""
    generator = torch.Generator().manual_seed(1)
    solver = SmoothTchebycheff(0.3, 5, log=log, ideal=[-1.0, 0.5, 0.0])
    z = torch.tensor([-1.0, 0.5, 0.0], dtype=torch.float64)
    scale = torch.tensor([1.0, 1e3, 1e-3], dtype=torch.float64)
    seen = []
    for step in range(12):
        losses = z + scale * (torch.rand(3, generator=generator, dtype=torch.float64) + 0.5)
        p = torch.rand(3, generator=generator, dtype=torch.float64) + 0.1
        p = p / p.sum()
        seen = [*seen, losses - z] if step < 5 else seen
        unit = torch.stack(seen).mean(0)

        def f(x, unit=unit):
            return torch.log((x - z) / unit) if log else (x - z) / unit

        if step < 5:
            expected = gradient(lambda x, p=p: p @ f(x), losses) / 3
        else:
            expected = gradient(lambda x, p=p: 0.3 * torch.logsumexp(p * f(x) / 0.3, 0), losses)
        torch.testing.assert_close(solver.weights(losses, None, p), expected, rtol=1e-9, atol=0.0)


def test_warm_up_removes_the_scales_of_the_losses():
    plain, scaled = SmoothTchebycheff(0.1, 3), SmoothTchebycheff(0.1, 3)
    scale = torch.tensor([1e-4, 1.0, 1e4], dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    for _ in range(10):
        losses = torch.rand(3, generator=generator, dtype=torch.float64) + 0.1
        torch.testing.assert_close(plain.weights(losses), scaled.weights(scale * losses) * scale)


def test_each_objective_warms_up_in_the_steps_that_have_it():
    solver = SmoothTchebycheff(0.1, 2)
    losses = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    for present in ((0, 1), (0, 1, 2), (0, 1)):
        solver.solve(losses, present=present)
    assert solver.counts.tolist() == [2, 2, 1] and solver.unit.tolist() == [1, 2, 3]


def test_ties_share_the_weight():
    assert Tchebycheff().weights(torch.tensor([2.0, 1.0, 2.0])).tolist() == [0.5, 0.0, 0.5]


@BOTH
def test_preference_given_by_default_or_by_step(solver):
    losses = torch.tensor([1.0, 1.1, 0.9], dtype=torch.float64)
    p = torch.tensor([3.0, 2.0, 1.0], dtype=torch.float64)
    by_step = solver().weights(losses, None, p)
    assert torch.equal(solver(default=[3, 2, 1]).weights(losses), by_step)
    assert torch.equal(solver(default=[1, 2, 3]).weights(losses, None, p), by_step)
    uniform = solver().weights(losses)
    assert torch.equal(uniform, solver().weights(losses, None, torch.full((3,), 7.0)))
    assert float(uniform.sum()) == pytest.approx(1.0)


@BOTH
def test_objective_without_preference_takes_no_part(solver):
    """Also where the others are far below their ideal point."""
    weights = solver().weights(torch.tensor([-50.0, 1.0, -60.0]), None, torch.tensor([1.0, 0.0, 1.0]))
    assert weights[0] > 0.9 and float(weights[1]) == 0.0


@BOTH
def test_batch_that_lacks_what_is_wanted_has_no_weights(solver):
    weights = solver().solve(torch.ones(3), None, torch.tensor([0.0, 0.0, 1.0]), (0, 1))
    assert weights.tolist() == [0.0, 0.0, 0.0]


@BOTH
def test_default_and_ideal_follow_the_objectives_that_are_present(solver):
    whole = solver(default=[1, 5, 2], ideal=[0.1, 0.2, -0.3])
    part = solver(default=[1, 2], ideal=[0.1, -0.3])
    losses = torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64)
    assert torch.equal(whole.solve(losses, present=(0, 2))[[0, 2]], part.weights(losses[[0, 2]]))


@BOTH
@pytest.mark.parametrize("options", [{"default": [-1.0, 1.0]}, {"ideal": [float("inf"), 0.0]}, {"ideal": [[0.0]]}])
def test_refuses(solver, options):
    with pytest.raises(ValueError, match=next(iter(options))):
        solver(**options)


@BOTH
@pytest.mark.parametrize("name", ["default", "ideal"])
def test_refuses_another_number_of_objectives(solver, name):
    with pytest.raises(ValueError, match=f"{name} must have 3 entries"):
        solver(**{name: [1.0, 2.0]}).weights(torch.ones(3))


@pytest.mark.parametrize("options", [{"mu": 0.0}, {"warmup": -1}, {"eps": 0.0}])
def test_smooth_refuses(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        SmoothTchebycheff(**options)
