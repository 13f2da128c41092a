"""Several rays in one step have the direction of their sum, and the regulariser is really applied."""

import math

import pytest
import torch

from madamoo import MAdam, MultiObjective, PreferenceMetric, solvers
from madamoo.pareto._merging import disorder, merge

RAYS = torch.tensor([[0.2, 0.8], [0.7, 0.3], [1.0, 0.0]])


def network() -> torch.nn.ModuleDict:
    torch.manual_seed(0)
    layers = {"trunk": torch.nn.Linear(3, 4), "a": torch.nn.Linear(4, 1), "b": torch.nn.Linear(4, 1)}
    return torch.nn.ModuleDict(layers).double()


def losses_of(net: torch.nn.ModuleDict, ray: torch.Tensor) -> list[torch.Tensor]:
    """As if the preference went into the network: its input is scaled by it."""
    x = torch.linspace(-1, 1, 15).double().view(5, 3) * (1 + ray[0].double())
    z = torch.tanh(net["trunk"](x))
    return [(net["a"](z) - 1).square().mean(), (net["b"](z) + 2).square().mean()]


def test_direction_is_that_of_all_rays_together():
    net = network()
    total = sum(a * loss for ray in RAYS for a, loss in zip(ray.double(), losses_of(net, ray), strict=True))
    expected = torch.autograd.grad(total, list(net.parameters()))
    opt = MultiObjective(torch.optim.SGD(net.parameters(), lr=0.1), solvers.Preference())
    opt.backward(*merge([losses_of(net, ray) for ray in RAYS], RAYS))
    for param, g in zip(net.parameters(), expected, strict=True):
        torch.testing.assert_close(param.grad, g, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(opt.weights, RAYS.sum(0).double())


def test_heads_stay_apart():
    net = network()
    opt = MAdam(net.parameters(), solver=solvers.Preference(), metric=PreferenceMetric("full"))
    opt.backward(*merge([losses_of(net, ray) for ray in RAYS], RAYS))
    opt.step()
    assert opt.metric.averages[net["a"].weight].pairs == [(0, 0)]
    assert opt.metric.averages[net["b"].weight].pairs == [(1, 1)]


def test_one_ray_is_itself():
    losses, weights = merge([[torch.tensor(2.0), torch.tensor(3.0)]], [[0.25, 0.75]])
    assert [float(x) for x in losses] == [2.0, 3.0]
    assert weights.tolist() == [0.25, 0.75]


def test_an_objective_that_no_ray_wants_has_weight_zero_and_a_finite_loss():
    losses, weights = merge([[torch.tensor(2.0), torch.tensor(3.0)], [torch.tensor(4.0), torch.tensor(5.0)]],
                            [[1.0, 0.0], [1.0, 0.0]])  # fmt: skip
    assert weights.tolist() == [2.0, 0.0]
    assert [float(x) for x in losses] == [3.0, 4.0]


def test_names_are_kept_and_matched():
    first = {"a": torch.tensor(1.0), "b": torch.tensor(2.0)}
    second = {"b": torch.tensor(4.0), "a": torch.tensor(3.0)}
    losses, _ = merge([first, second], [[0.5, 0.5], [0.5, 0.5]])
    assert {name: float(x) for name, x in losses.items()} == {"a": 2.0, "b": 3.0}


@pytest.mark.parametrize(
    ("losses", "wants", "expected"),
    [
        ([1.0, 2.0, 3.0], [0.9, 0.5, 0.1], 0.0),  # falls as the preference rises: in order
        ([3.0, 1.0], [0.9, 0.1], 2.0),  # log(exp(2) / 1)
        ([1.0, 3.0], [0.1, 0.9], 2.0),  # the same, the other way round
        ([3.0, 2.0, 5.0], [0.9, 0.5, 0.1], math.log((math.e + 1) / 2)),
        ([3.0, 1.0], [0.5, 0.5], 0.0),
        ([3.0], [0.5], 0.0),
    ],
)
def test_disorder(losses, wants, expected):
    assert float(disorder(torch.tensor(losses), torch.tensor(wants))) == pytest.approx(expected, abs=1e-6)


def test_penalty_is_added_to_the_total_while_it_is_smaller():
    a, b = torch.tensor(3.0, requires_grad=True), torch.tensor(2.5, requires_grad=True)
    rays = [[0.9, 0.1], [0.1, 0.9]]  # objective 0 is out of order by 0.5
    rest = [torch.tensor(1.0), torch.tensor(0.5)]
    losses, weights = merge([[a, rest[0]], [b, rest[1]]], rays, penalty=2.0)
    total = (weights[0] * losses[0]).item()
    assert total == pytest.approx(0.9 * 3.0 + 0.1 * 2.5 + 2.0 * 0.5)
    (slope,) = torch.autograd.grad(weights[0] * losses[0], [a])
    assert float(slope) == pytest.approx(0.9 + 2.0)
    losses, weights = merge([[a, rest[0]], [b, rest[1]]], rays, penalty=100.0)  # larger than the loss itself
    assert (weights[0] * losses[0]).item() == pytest.approx(0.9 * 3.0 + 0.1 * 2.5)


@pytest.mark.parametrize(
    ("losses", "rays", "options", "message"),
    [
        ([], [[1.0]], {}, "one entry per ray"),
        ([[torch.tensor(1.0)]], [[0.5, 0.5]], {}, r"preferences must be \[1, 1\]"),
        ([[torch.tensor(1.0)], [torch.tensor(1.0)] * 2], [[1.0], [1.0]], {}, "ray 1 does not"),
        ([{"a": torch.tensor(1.0)}, {"b": torch.tensor(1.0)}], [[1.0], [1.0]], {}, "must be named"),
        ([[torch.tensor(1.0)]], [[-1.0]], {}, "not negative"),
        ([[torch.tensor(1.0)]], [[1.0]], {"penalty": -1.0}, "penalty"),
    ],
)
def test_bad_input(losses, rays, options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        merge(losses, rays, **options)
