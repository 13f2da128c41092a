"""Derivatives by name: Taylor mode and nested reverse mode agree, with each other and with closed forms."""

import itertools
import math

import pytest
import torch
from torch import nn

from madamoo.pinn import FNN, FourierFeatures, PeriodicFeatures, Unsupported
from madamoo.pinn._fields import Derivatives, Names
from madamoo.pinn._indices import Laplacian, closure, faa_di_bruno, leibniz

NAMES = Names(("x", "y", "t"), ("u", "v"), time=True)
ORDERS = [index for k in range(5) for index in itertools.combinations_with_replacement(range(3), k)]


def derivatives(network, x, mode, requests):
    computed = Derivatives(network, x, NAMES, requests, mode)
    return {(c, index): computed.get(c, index) for c in range(2) for index in requests}


class Everything(nn.Module):
    """Every operation for which there is a rule."""

    def __init__(self):
        super().__init__()
        self.inner = FNN([3, 7, 5], "silu", dtype=torch.float64)

    def forward(self, x):
        z = self.inner(x)
        a, b = z[:, 0:1], z[..., 1:2]
        p = torch.exp(0.3 * a) / (2 + torch.cos(b)) - torch.sqrt(1 + b.square()) + x[:, 2:] ** 3
        q = torch.log(2 + torch.sin(a)) * torch.sigmoid(b) + (1.5 - a) / 3 - (-b).tanh() + 1 / (3 + a * a)
        s = torch.sum(z.reshape(-1, 5, 1).squeeze(2)[:, 2:], dim=1, keepdim=True)
        return torch.cat([p * s + torch.ones_like(x.value if hasattr(x, "value") else x)[:, :1], q - 2 * s], dim=1)


NETWORKS = {
    "tanh": lambda: FNN([3, 8, 8, 2]),
    "sin": lambda: FNN([3, 8, 8, 2], "sin"),
    "laaf": lambda: FNN([3, 8, 8, 2], "laaf"),
    "gaaf": lambda: FNN([3, 8, 8, 2], "gaaf"),
    "periodic": lambda: FNN([3, 8, 2], features=PeriodicFeatures(3, {0: 2.0, 1: 1.0}, harmonics=2)),
    "fourier": lambda: FNN([3, 8, 2], features=FourierFeatures(3, 4, 0.3)),
    "hard": lambda: FNN([3, 8, 2], output_transform=lambda x, u: torch.sin(x[:, 0:1]) + (1 - x[:, 1:2] ** 2) * u),
    "everything": Everything,
}


@pytest.mark.parametrize("name", NETWORKS)
def test_taylor_and_reverse_mode_agree(name: str):
    torch.manual_seed(0)
    network = NETWORKS[name]().double()
    x = torch.rand(6, 3, dtype=torch.float64)
    requests: list = [*ORDERS, Laplacian((0, 1))] if name in ("tanh", "hard") else [*ORDERS[:10], Laplacian((0, 1))]
    sets = [requests, [(), (0,), (0, 0), (2,)], [(), (0, 1)], [(), Laplacian((0, 1, 2))], [(), (1,)]]
    for chosen in sets:
        taylor = derivatives(network, x, "taylor", chosen)
        reverse = derivatives(network, x, "reverse", chosen)
        for key in taylor:
            torch.testing.assert_close(taylor[key], reverse[key], rtol=1e-9, atol=1e-9, msg=f"{name} {key}")
        # and so do the gradients of what is made of them, by every parameter
        mixing = torch.randn(len(taylor), dtype=torch.float64)
        params = list(network.parameters())
        found = []
        for values in (taylor, reverse):
            loss = sum((w * v.square().mean() for w, v in zip(mixing, values.values(), strict=True)), torch.zeros(()))
            found.append(torch.autograd.grad(loss, params, allow_unused=True, materialize_grads=True))
        for a, b in zip(*found, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-9)


def test_closed_forms():
    x = torch.rand(5, 3, dtype=torch.float64)
    a, b, t = x.T[:, :, None]

    def network(x):
        return torch.cat([torch.sin(2 * x[:, 0:1]) * torch.exp(x[:, 1:2]) * x[:, 2:] ** 2, x[:, 1:2] ** 4], 1)

    for mode in ("taylor", "reverse"):
        computed = Derivatives(network, x, NAMES, [(0, 0, 1, 2)], mode)
        torch.testing.assert_close(computed.get(0, (0, 0, 1, 2)), -8 * torch.sin(2 * a) * b.exp() * t)
        torch.testing.assert_close(computed.get(1, (1, 1, 1, 1)), torch.full_like(a, 24.0))  # asked for later
        torch.testing.assert_close(computed.get(1, (0,)), torch.zeros_like(a))
        torch.testing.assert_close(computed.get(0, Laplacian((0, 1))), -3 * torch.sin(2 * a) * b.exp() * t**2)


def test_the_rules_count_all_terms():
    """On exp(z) with all derivatives of z equal to 1 the terms are the Bell numbers; of a product, powers of two."""
    for n, bell in enumerate((1, 1, 2, 5, 15, 52)):
        if n:
            assert sum(count for _, terms in faa_di_bruno((0,) * n) for count, _ in terms) == bell
            assert sum(count for _, terms in faa_di_bruno(tuple(range(n))) for count, _ in terms) == bell
        assert sum(count for count, _, _ in leibniz((0,) * n)) == 2**n
    assert closure([(0, 1)]) == ((), (0,), (1,), (0, 1))
    assert closure([Laplacian((0, 1))]) == ((), (0,), (1,), Laplacian((0, 1)))
    assert Laplacian((0, 0)) != (0, 0) and Laplacian((0, 0)) != (0, 0)


def test_what_taylor_mode_cannot_do_is_done_by_reverse_mode():
    x = torch.rand(5, 3, dtype=torch.float64)
    network = nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.Linear(4, 2)).double()
    with pytest.raises(Unsupported, match="no rule for the derivatives of gelu"):
        Derivatives(network, x, NAMES, [(0,)], "taylor")
    found = Derivatives(network, x, NAMES, [(0,)], "auto").get(0, (0,))
    moved = x.clone()
    moved[:, 0] += 1e-6
    torch.testing.assert_close(found, (network(moved) - network(x))[:, :1] / 1e-6, rtol=1e-4, atol=1e-6)


def test_names_and_their_derivatives():
    assert NAMES.parse("u") == (0, ())
    assert NAMES.parse("v_xtx") == (1, (0, 0, 2))
    assert Names(("x1", "x10"), ("u",)).parse("u_x10x1") == (0, (0, 1))
    assert NAMES.parse("u_z") is None and NAMES.parse("w_x") is None
    for variables, outputs in ((("x", "u"), ("u",)), (("x_1",), ("u",)), (("x",), ("2",))):
        with pytest.raises(ValueError, match="name"):
            Names(variables, outputs)
    assert math.isclose(len(NAMES.space), 2)
