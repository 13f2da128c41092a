"""The geometric mean against autograd on TorchJD's scalarisation and on the product itself."""

import pytest
import torch

from madamoo.solvers._geometric_mean import GeometricMean


def cases():
    generator = torch.Generator().manual_seed(0)
    for count in (1, 2, 7, 40):
        for spread in (0.1, 2.0, 5.0):
            for _ in range(20):
                yield torch.exp(spread * torch.randn(count, generator=generator, dtype=torch.float64)).clamp_min(1e-7)


def gradient(function, losses):
    losses = losses.clone().requires_grad_()
    return torch.autograd.grad(function(losses), losses)[0]


def check(solver, function):
    for losses in cases():
        torch.testing.assert_close(solver.weights(losses), gradient(function, losses), rtol=1e-9, atol=0.0)


def test_matches_torchjd():
    check(GeometricMean(), pytest.importorskip("torchjd.scalarization").GeometricMean())


def test_matches_the_root_of_the_product():
    check(GeometricMean(), lambda losses: losses.prod() ** (1 / len(losses)))


def test_the_check_rejects_the_gradient_of_the_product():
    class Wrong(GeometricMean):
        def weights(self, losses, gram=None, preference=None):
            return losses.prod() / losses

    with pytest.raises(AssertionError):
        check(Wrong(), lambda x: x.prod() ** (1 / len(x)))


def test_every_weighted_loss_is_the_mean_over_the_count():
    for losses in cases():
        weighted = GeometricMean().weights(losses) * losses
        torch.testing.assert_close(weighted, torch.exp(losses.log().mean()).expand(len(losses)) / len(losses))


def test_direction_does_not_depend_on_the_scale_of_each_loss():
    for losses in cases():
        scale = torch.logspace(-3, 3, len(losses), dtype=torch.float64).clamp_min(1e-3)
        a, b = GeometricMean(eps=1e-30).weights(losses), GeometricMean(eps=1e-30).weights(scale * losses) * scale
        torch.testing.assert_close(a / a.sum(), b / b.sum())


def test_zero_and_negative_losses():
    assert GeometricMean.uses_losses is True
    weights = GeometricMean().weights(torch.tensor([0.0, 1.0], dtype=torch.float64))
    assert weights.tolist() == pytest.approx([0.5e4, 0.5e-4])
    assert GeometricMean().weights(torch.tensor([-4.0, 1.0])).tolist() == pytest.approx([0.25, 1.0])


def test_refuses():
    with pytest.raises(ValueError, match="eps"):
        GeometricMean(eps=0.0)
