"""PaLoRA against the formula, written out for each layer."""

import pytest
import torch
from torch import nn

from madamoo import MAdam, solvers
from madamoo.pareto._palora import PaLoRA
from pareto.networks import LAYERS, RAY, A, Attention, C, Images, Tied, batch, call, mlp, normed, one_layer, stir

ADAPTED = [name for name in LAYERS if "norm" not in name]


def case(name, rank=2, **options):
    return one_layer(name, PaLoRA, rank, **options)


def parts(model):
    entry = model.module[0].parametrizations.weight
    return entry.original, entry[0].A, entry[0].B


def by_hand(name, model):
    """The layer by itself, with the weight that the formula gives, as a leaf."""
    W, A, B = parts(model)
    delta = sum(a * B[i] @ A[i] for i, a in enumerate(RAY)) / A.shape[1]
    layer = LAYERS[name][0]().double()
    with torch.no_grad():
        layer.weight.copy_(W + delta.reshape(W.shape))
        if getattr(layer, "bias", None) is not None:
            layer.bias.copy_(model.module[0].bias)
    return layer


def test_the_formula():
    for name in ADAPTED:
        model, x = case(name)
        torch.testing.assert_close(call(model, x, RAY), by_hand(name, model)(x), rtol=0, atol=1e-14)
        layer = model.export(RAY)[0]
        assert list(layer.state_dict()) == list(LAYERS[name][0]().state_dict())
        torch.testing.assert_close(layer(x), call(model, x, RAY), rtol=0, atol=1e-14)


def test_gradients():
    """With G the plain layer's: G for W, a_i B_i' G / r for A_i, a_i G A_i' / r for B_i."""
    for name in ADAPTED:
        model, x = case(name)
        layer = by_hand(name, model)
        seed = torch.randn_like(layer(x))
        layer(x).backward(seed)
        call(model, x, RAY).backward(seed)
        W, A, B = parts(model)
        torch.testing.assert_close(W.grad, layer.weight.grad)
        if getattr(layer, "bias", None) is not None:
            torch.testing.assert_close(model.module[0].bias.grad, layer.bias.grad)
        G, r = layer.weight.grad.reshape(len(W), -1), A.shape[1]
        for i, a in enumerate(RAY):
            torch.testing.assert_close(A.grad[i], a * B[i].T @ G / r)
            torch.testing.assert_close(B.grad[i], a * G @ A[i].T / r)


def test_shapes_and_start():
    for name in ADAPTED:
        layer, _ = LAYERS[name]
        torch.manual_seed(0)
        user = layer()
        W, A, B = parts(PaLoRA(nn.ModuleList([user]), C, rank=2))
        rows, columns = user.weight.flatten(1).shape
        r = min(2, rows, columns)
        assert isinstance(A, nn.Parameter) and A.shape == (C, r, columns) and B.shape == (C, rows, r)
        assert not B.any() and A.all() and torch.equal(W, user.weight)
        assert A.abs().max() <= columns**-0.5  # Kaiming's uniform draw with the slope of torch's layers
        assert len(A.unique()) > A.numel() // 2


def test_draws_of_a_are_uniform_with_the_scale_of_a_linear_layer():
    torch.manual_seed(0)
    A = PaLoRA(nn.Sequential(nn.Linear(400, 200)), 2, rank=100).module[0].parametrizations.weight[0].A
    assert A.abs().max().item() == pytest.approx(0.05, rel=1e-3)
    assert [a.std().item() for a in A] == pytest.approx([0.05 / 3**0.5] * 2, rel=0.02)


def test_at_first_it_is_the_users_network():
    user, x = Images().double().eval(), batch("images")
    model = PaLoRA(user, 2)
    for a in ([1.0, 0.0], [0.3, 0.7], [0.0, 1.0]):
        assert torch.equal(model(x, preference=a), user(x))


@pytest.mark.parametrize(("rank", "ranks"), [(1, [1, 1]), (3, [3, 2]), (50, [3, 2])])
def test_a_layers_rank_is_at_most_its_smaller_side(rank, ranks):
    model, x = stir(PaLoRA(mlp(), rank=rank)), batch("mlp")  # 3-5-2
    found = [model.module[i].parametrizations.weight[0].A.shape[1] for i in (0, 2)]
    assert found == ranks
    torch.testing.assert_close(model.export(A)(x), model(x, preference=A))


def test_only_weights_get_adapters():
    user = Images()
    names = [name for name, _ in PaLoRA(user).named_parameters() if name.endswith((".A", ".B"))]
    layers = ["trunk.0", "trunk.3", "heads.0", "heads.1"]
    assert names == [f"module.{layer}.parametrizations.weight.0.{x}" for layer in layers for x in "AB"]


def test_shared_layers_get_none():
    model = PaLoRA(Images(), shared=("heads",))
    names = [name for name, _ in model.named_parameters()]
    assert "module.heads.0.weight" in names and not any("heads" in n and "parametrizations" in n for n in names)
    with pytest.raises(ValueError, match=r"shared: 'head' matches none"):
        PaLoRA(Images(), shared=("head",))


def test_other_parameters_are_shared():
    """Recurrent and attention weights, and parameters that belong to no layer, are trained as they are."""
    model, x = stir(PaLoRA(Attention())), torch.randn(2, 5, 4)
    names = [name for name, _ in model.named_parameters()]
    assert "module.attend.in_proj_weight" in names and "module.out.parametrizations.weight.0.A" in names
    assert "module.attend.out_proj.parametrizations.weight.0.A" in names
    for training in (True, False):
        model.train(training)
        torch.testing.assert_close(model.export(A)(x), model(x, preference=A))
    model(x, preference=A).sum().backward()
    assert all(p.grad is not None for p in model.parameters())


@pytest.mark.parametrize("train_base", [True, False])
def test_train_base(train_base):
    user, x = Images(), batch("images").float()
    model = PaLoRA(user, train_base=train_base)
    still = {"module.trunk.0", "module.trunk.3", "module.heads.0", "module.heads.1"}
    frozen = {name for name, p in model.named_parameters() if not p.requires_grad}
    assert frozen == (set() if train_base else {f"{name}.parametrizations.weight.original" for name in still})
    model(x, preference=A).square().sum().backward()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    changed = {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}
    assert changed.isdisjoint(frozen) and "module.trunk.3.parametrizations.weight.0.B" in changed
    assert all(p.requires_grad for p in model.export(A).parameters())


@pytest.mark.parametrize("train_base", [True, False])
def test_parameter_groups(train_base):
    model = PaLoRA(Images(3), 3, train_base=train_base)
    base, adapters = model.parameter_groups(lr=0.1)
    assert base["lr"] == 0.1 and adapters["lr"] == pytest.approx(0.3)
    names = {id(p): name for name, p in model.named_parameters()}
    assert {names[id(p)] for p in adapters["params"]} == {n for n in names.values() if n.endswith((".A", ".B"))}
    trained = {id(p) for p in model.parameters() if p.requires_grad}
    assert trained == {id(p) for group in (base, adapters) for p in group["params"]}
    assert len(trained) == len(base["params"]) + len(adapters["params"])


def test_parameter_groups_in_an_optimizer():
    model, x = PaLoRA(mlp()), batch("mlp")
    opt = MAdam(model.parameter_groups(1e-2), solver=solvers.Preference())
    assert [group["lr"] for group in opt.param_groups] == [1e-2, 2e-2]
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    for _ in range(2):  # A moves once B is not zero
        output = model(x, preference=A)
        opt.zero_grad()
        opt.backward([output[:, 0].square().mean(), output[:, 1].square().mean()], preference=A)
        opt.step()
    assert all(not torch.equal(p, before[name]) for name, p in model.named_parameters())


def test_parameter_groups_with_nothing_but_adapters():
    user = nn.Sequential(nn.Linear(3, 2, bias=False))
    groups = PaLoRA(user, train_base=False).parameter_groups(0.1)
    assert groups[0]["params"] == [] and len(groups[1]["params"]) == 2
    torch.optim.Adam(groups)


def test_frozen_weights_get_no_adapters():
    user = mlp()
    user[0].weight.requires_grad_(False)
    names = [name for name, _ in PaLoRA(user).named_parameters()]
    assert "module.0.weight" in names and "module.2.parametrizations.weight.0.A" in names


def test_refuses_ranks():
    for rank in [0, -1, 1.5, True, None]:
        with pytest.raises(ValueError, match="rank must be an integer of at least 1"):
            PaLoRA(mlp(), rank=rank)


def test_refuses_models():
    with pytest.raises(ValueError, match=r"embedding.weight and out.weight are one parameter.*shared=\['embed"):
        PaLoRA(Tied())
    with pytest.raises(ValueError, match=r"1 is parametrized already.*shared=\['1'\]"):
        PaLoRA(normed())
    with pytest.raises(ValueError, match="PaLoRA finds no layer"):
        PaLoRA(nn.Sequential(nn.LayerNorm(3)))
    with pytest.raises(ValueError, match=r"0 has sparse gradients, build it with sparse=False.*shared=\['0'\]"):
        PaLoRA(nn.Sequential(nn.Embedding(7, 3, sparse=True)))
