"""IMTL-L against TorchJD's and torch's own Adam, and what it promises: every scaled loss tends to 1."""

import pytest
import torch

from madamoo.solvers._imtll import IMTLL


def reference(sequence, lr=0.025):
    """Autograd on TorchJD's scalarisation, torch's Adam on its scales with the gradient cut at 1: lambda each step."""
    scalarization = pytest.importorskip("torchjd.scalarization")
    scalarizer = scalarization.IMTLL(sequence.shape[1]).double()
    adam = torch.optim.Adam(scalarizer.parameters(), lr=lr)
    for losses in sequence:
        losses = losses.clone().requires_grad_()
        adam.zero_grad()
        scalarizer(losses).backward()
        yield losses.grad
        for scale in scalarizer.parameters():
            scale.grad.clamp_(max=1.0)
        adam.step()


def check(solver, sequence):
    for losses, expected in zip(sequence, reference(sequence, solver.lr), strict=True):
        torch.testing.assert_close(solver.weights(losses), expected, rtol=1e-9, atol=0.0)


def sequences(scale, steps=40):
    generator = torch.Generator().manual_seed(0)
    for count in (1, 2, 7, 40):
        level = torch.exp(scale * torch.randn(count, generator=generator, dtype=torch.float64))
        yield level * torch.exp(0.3 * torch.randn(steps, count, generator=generator, dtype=torch.float64))


@pytest.mark.parametrize("scale", [0.1, 2.0, 8.0])
@pytest.mark.parametrize("lr", [0.025, 0.2])
def test_matches_torchjd(scale, lr):
    for sequence in sequences(scale):
        check(IMTLL(lr, eps=1e-30), sequence)


def test_the_check_rejects_a_wrong_slope():
    class Wrong(IMTLL):
        def descend(self, gradient):
            super().descend(gradient + 0.01)

    with pytest.raises(AssertionError):
        check(Wrong(), next(sequences(0.1)))


@pytest.mark.parametrize("level", [1e-6, 1e-2, 1.0, 1e2, 1e6, -3.0])
def test_scaled_loss_reaches_one_in_the_time_its_scale_takes(level):
    """log |l| is 13.8 for the extreme ones: at the rate 0.025 a step that is 550 steps, from either side."""
    solver, losses = IMTLL(), torch.tensor([level, 1.0], dtype=torch.float64)
    for _ in range(800):
        weights = solver.weights(losses)
    torch.testing.assert_close(weights * losses.abs(), torch.ones_like(losses), rtol=0.02, atol=0.0)


def test_weight_of_a_zero_loss_stops_at_one_over_eps():
    solver, losses = IMTLL(0.1, eps=1e-4), torch.tensor([0.0, 1.0], dtype=torch.float64)
    largest = max(float(solver.weights(losses)[0]) for _ in range(3000))
    assert largest < 2e4
    assert float(solver.weights(losses)[0]) == pytest.approx(1e4, rel=1e-3)


def test_first_weights_are_one_and_do_not_depend_on_the_losses():
    assert IMTLL.uses_losses is False
    for losses in ([1.0, 2.0], [1e9, 0.0]):
        assert IMTLL().weights(torch.tensor(losses)).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("options", [{"lr": 0.0}, {"lr": float("nan")}, {"eps": 0.0}])
def test_refuses(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        IMTLL(**options)
