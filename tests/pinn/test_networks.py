"""Networks: initial weights, features, transforms and learned slopes."""

import math

import pytest
import torch

from madamoo.pinn import FNN, AdaptiveTanh, FourierFeatures, PeriodicFeatures


def test_weights_are_glorot_normal_and_biases_zero():
    network = FNN([2, 400, 300, 1], generator=torch.Generator().manual_seed(0))
    linear = [m for m in network.modules() if isinstance(m, torch.nn.Linear)]
    assert [tuple(m.weight.shape) for m in linear] == [(400, 2), (300, 400), (1, 300)]
    for m in linear:
        assert not m.bias.any()
    assert math.isclose(linear[1].weight.std().item(), math.sqrt(2 / 700), rel_tol=0.02)
    again = FNN([2, 400, 300, 1], generator=torch.Generator().manual_seed(0))
    assert all(torch.equal(a, b) for a, b in zip(network.parameters(), again.parameters(), strict=True))


def test_periodic_features_repeat():
    network = FNN([2, 8, 1], features=PeriodicFeatures(2, {0: 3.0}, harmonics=2), dtype=torch.float64)
    x = torch.rand(10, 2, dtype=torch.float64)
    torch.testing.assert_close(network(x), network(x + torch.tensor([3.0, 0.0], dtype=torch.float64)))
    assert not torch.allclose(network(x), network(x + torch.tensor([1.5, 0.0], dtype=torch.float64)))
    assert not torch.allclose(network(x), network(x + torch.tensor([0.0, 3.0], dtype=torch.float64)))


def test_fourier_features_are_fixed():
    network = FNN([2, 8, 1], features=FourierFeatures(2, 16, sigma=2.0))
    assert network.layers[0].in_features == 32
    assert not any("frequencies" in name for name, _ in network.named_parameters())
    assert "features.frequencies" in network.state_dict()


def test_a_transform_makes_a_condition_hold():
    network = FNN([2, 8, 1], output_transform=lambda x, u: x[:, :1] * (1 - x[:, :1]) * u + 2)
    ends = torch.tensor([[0.0, 0.3], [1.0, 0.7]])
    assert torch.equal(network(ends), torch.full((2, 1), 2.0))


def test_learned_slopes():
    for activation, slopes in (("laaf", 30), ("gaaf", 1)):
        network = FNN([2, 30, 30, 30, 1], activation, generator=torch.Generator().manual_seed(0))
        layers = [m for m in network.modules() if isinstance(m, AdaptiveTanh)]
        assert [m.a.shape for m in layers] == [(slopes,)] * 3
        bound = 1.4 * math.sqrt(6 / (3 + slopes))
        drawn = torch.cat([m.a for m in layers])
        assert drawn.abs().max() <= bound and len(set(drawn.tolist())) == len(drawn)
        z = torch.randn(4, 30)
        torch.testing.assert_close(layers[0](z), torch.tanh(10 * layers[0].a * z))
        network(torch.rand(5, 2)).sum().backward()
        assert all(m.a.grad is not None and m.a.grad.any() for m in layers)


def test_bad_networks():
    with pytest.raises(ValueError, match=r"activation must be one of tanh.*got 'relu'"):
        FNN([2, 8, 1], "relu")
    with pytest.raises(ValueError, match="at least two positive sizes"):
        FNN([2])
    with pytest.raises(ValueError, match="variables 0 to 1, got 2"):
        PeriodicFeatures(2, {2: 1.0})
