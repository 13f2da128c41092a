"""PHN against its formula: an MLP of the preference, a linear map for each parameter, the network with the result."""

import copy

import pytest
import torch
from torch import nn

from madamoo.pareto._hypernetwork import PHN
from pareto.networks import A, Images, Root, Tied, batch, mlp, normed, stir


def by_hand(model, preference, layers=2):
    """The parameters from the state alone."""
    state = model.state_dict()
    z = torch.tensor(preference, dtype=torch.float64)
    for k in range(layers):
        z = torch.relu(state[f"features.{2 * k}.weight"] @ z + state[f"features.{2 * k}.bias"])
    heads = sum(key.startswith("heads.") for key in state) // 2
    return [state[f"heads.{k}.weight"] @ z + state[f"heads.{k}.bias"] for k in range(heads)]


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("network", ["mlp", "images"])
def test_the_formula(network, layers):
    user = mlp() if network == "mlp" else Images().double()
    model, x = stir(PHN(user, hidden=7, layers=layers)), batch(network)
    expected = copy.deepcopy(user)
    with torch.no_grad():
        for p, value in zip(expected.parameters(), by_hand(model, A, layers), strict=True):
            p.copy_(value.reshape(p.shape))
    torch.testing.assert_close(model(x, preference=A), expected(x), rtol=0, atol=1e-12)
    exported = model.export(A)
    for p, q in zip(exported.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=0, atol=1e-14)


def test_at_first_it_is_near_the_users_network():
    torch.manual_seed(0)
    user = Images().double()
    model = PHN(user)
    for a in (A, [1.0, 0.0], [0.0, 1.0]):
        for (name, p), q in zip(user.named_parameters(), model.export(a).parameters(), strict=True):
            size = p.square().mean().sqrt()
            assert (p - q).square().mean().sqrt() <= 0.1 * size, name
            assert not torch.equal(p, q) or not p.any(), name  # but not equal: the features can learn from the start
    for k, p in enumerate(user.parameters()):
        head = model.heads[k]
        assert torch.equal(head.bias, p.flatten())
        if p.numel() > 20:
            spread = 0.1 * p.square().mean().sqrt() / 10
            assert head.weight.std().item() == pytest.approx(spread.item(), rel=0.1)


def test_only_the_hypernetwork_is_trained():
    model, x = PHN(mlp(), hidden=8), batch("mlp")
    template = copy.deepcopy(model.module.state_dict())
    names = {name for name, p in model.named_parameters() if p.requires_grad}
    assert {name.partition(".")[0] for name in names} == {"features", "heads"}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(x, preference=A).square().sum().backward()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer.step()
    assert all(torch.equal(value, template[key]) for key, value in model.module.state_dict().items())
    assert all(not torch.equal(model.get_parameter(name), before[name]) for name in names if "features.0" not in name)


def test_sizes():
    user = mlp()
    model = PHN(user, 4, hidden=6, layers=2)
    n = sum(p.numel() for p in user.parameters())
    own = sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert own == (4 + 1) * 6 + (6 + 1) * 6 + (6 + 1) * n


def test_running_statistics_live_in_the_network():
    model, x = PHN(Images().double(), hidden=4), batch("images")
    norm = model.module.trunk[1]
    for count in (1, 2):
        model(x, preference=A)
        assert norm.num_batches_tracked == count
    assert norm.running_mean.any() and model.state_dict()["module.trunk.1.running_mean"].any()
    model.eval()(x, preference=A)
    assert norm.num_batches_tracked == 2


def test_frozen_parameters_are_used_as_they_are():
    user = mlp()
    user[0].requires_grad_(False)
    model = stir(PHN(user, hidden=4))
    assert len(model.heads) == 2 and model.generated == ["2.weight", "2.bias"]
    exported = model.export(A)
    assert torch.equal(exported[0].weight, model.module[0].weight) and not exported[0].weight.requires_grad
    assert exported[2].weight.requires_grad and not torch.equal(exported[2].weight, model.module[2].weight)


def test_ties_hold():
    model, x = stir(PHN(Tied(), hidden=4)), torch.arange(5)
    assert len(model.heads) == 2
    exported = model.export(A)
    assert exported.embedding.weight is exported.out.weight
    torch.testing.assert_close(exported(x), model(x, preference=A))


@pytest.mark.parametrize(
    "build", [Root, normed, lambda: nn.LSTM(3, 4), lambda: nn.Sequential(nn.Linear(3, 2), nn.PReLU())]
)
def test_any_network_will_do(build):
    model, x = stir(PHN(build(), hidden=4)), torch.randn(5, 3)
    exported, output = model.export(A)(x), model(x, preference=A)
    torch.testing.assert_close(exported, output)


class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 2), nn.Linear(2, 1).bfloat16()

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)).bfloat16())


def test_mixed_dtypes():
    model, x = PHN(Mixed(), hidden=4), torch.randn(5, 3)
    exported = model.export(A)
    assert [p.dtype for p in exported.parameters()] == [p.dtype for p in Mixed().parameters()]
    assert torch.equal(exported(x), model(x, preference=A))


@pytest.mark.parametrize("options", [{"hidden": 0}, {"hidden": 1.5}, {"layers": 0}, {"layers": True}])
def test_refuses(options):
    with pytest.raises(ValueError, match=f"{next(iter(options))} must be an integer of at least 1"):
        PHN(mlp(), **options)


def test_refuses_a_model_with_nothing_to_generate():
    with pytest.raises(ValueError, match="model has no trainable parameter to generate"):
        PHN(mlp().requires_grad_(False))
