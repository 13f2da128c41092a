"""PaMaL against plain layers whose weights are interpolated by hand."""

import copy

import pytest
import torch
from torch import nn

from madamoo.pareto._pamal import PaMaL
from pareto.networks import LAYERS, RAY, A, Attention, C, Images, Root, Tied, batch, call, mlp, normed, one_layer, stir


def case(name, **options):
    return one_layer(name, PaMaL, **options)


def members(model, path="0"):
    """The parameters of each member, by name, taken from the state."""
    start = f"module.{path}.parametrizations."
    found = [{} for _ in range(model.n_objectives)]
    for key, value in model.named_parameters():
        if key.startswith(start):
            name, original = key.removeprefix(start).split(".")
            found[int(original.removeprefix("original"))][name] = value
    return found


def plain(name, parameters):
    """The layer by itself, with these parameters."""
    layer = LAYERS[name][0]().double()
    assert {key for key, _ in layer.named_parameters()} == set(parameters)
    with torch.no_grad():
        for key, value in parameters.items():
            getattr(layer, key).copy_(value)
    return layer


def interpolated(name, model):
    parts = members(model)
    return plain(name, {key: sum(a * part[key] for a, part in zip(RAY, parts, strict=True)) for key in parts[0]})


def test_weights_are_interpolated():
    for name in LAYERS:
        for training in [True, False]:
            model, x = case(name)
            model.train(training)
            layer = interpolated(name, model).train(training)
            torch.testing.assert_close(call(model, x, RAY), layer(x), rtol=0, atol=1e-14)
            buffers = dict(layer.named_buffers())
            assert set(dict(model.named_buffers())) == {f"module.0.{key}" for key in buffers}  # single
            for key, value in buffers.items():
                torch.testing.assert_close(model.get_buffer(f"module.0.{key}"), value)


def test_a_one_hot_preference_is_a_member():
    for name in LAYERS:
        model, x = case(name)
        for i, part in enumerate(members(model)):
            layer = plain(name, part)
            for key, buffer in layer.named_buffers():
                buffer.copy_(model.get_buffer(f"module.0.{key}"))
            assert torch.equal(call(model.eval(), x, torch.eye(C)[i]), layer.eval()(x))


def test_export_of_each_layer():
    for name in LAYERS:
        model, x = case(name)
        for training in (True, False):
            model.train(training)
            layer = model.export(RAY)[0]
            assert type(layer) is type(LAYERS[name][0]()) and repr(layer) == repr(LAYERS[name][0]())
            assert list(layer.state_dict()) == list(LAYERS[name][0]().state_dict())
            torch.testing.assert_close(layer(x), call(model, x, RAY), rtol=0, atol=1e-14)


def test_gradients():
    """a_i times the plain layer's."""
    for name in LAYERS:
        model, x = case(name)
        layer = interpolated(name, model)
        seed = torch.randn_like(layer(x))
        layer(x).backward(seed)
        expected = {key: value.grad for key, value in layer.named_parameters()}
        call(model, x, RAY).backward(seed)
        for a, part in zip(RAY, members(model), strict=True):
            for key, value in part.items():
                torch.testing.assert_close(value.grad, a * expected[key], rtol=1e-10, atol=1e-12)
        assert len({p.grad.data_ptr() for part in members(model) for p in part.values()}) == C * len(expected)


def test_unused_members_rest():
    model = PaMaL(mlp())
    model(batch("mlp"), preference=[0.0, 1.0]).square().sum().backward()
    assert [bool(part["weight"].grad.any()) for part in members(model)] == [False, True]


def test_the_first_member_is_the_users_and_the_others_are_drawn():
    for name in LAYERS:
        torch.manual_seed(0)
        user = nn.ModuleList([LAYERS[name][0]()])
        with torch.no_grad():
            for p in user.parameters():
                p.add_(1.0)  # trained
        torch.manual_seed(3)
        fresh = [copy.deepcopy(user[0]) for _ in range(C - 1)]
        for layer in fresh:
            layer.reset_parameters()
        torch.manual_seed(3)
        found = members(PaMaL(user, C))
        for layer, part in zip([user[0], *fresh], found, strict=True):
            for key, value in layer.named_parameters():
                assert torch.equal(part[key], value) and part[key].requires_grad
        if "norm" not in name:
            assert not torch.equal(found[1]["weight"], found[2]["weight"])


def test_names_and_number_of_parameters():
    model = PaMaL(Images(), C)
    assert sum(p.numel() for p in model.parameters()) == C * sum(p.numel() for p in Images().parameters())


BIASES = [f"{layer}.bias" for layer in ("trunk.0", "trunk.1", "trunk.3", "heads.0", "heads.1")]


@pytest.mark.parametrize(
    ("shared", "left"),
    [
        ("heads", {"heads.0.weight", "heads.0.bias", "heads.1.weight", "heads.1.bias"}),
        (("heads.1",), {"heads.1.weight", "heads.1.bias"}),
        (["head*.0"], {"heads.0.weight", "heads.0.bias"}),
        (["*.?.bias", "trunk.1"], {"trunk.1.weight", *BIASES}),
        (["trunk.0.weight", "trunk.2"], {"trunk.0.weight"}),  # trunk.2 has none: it is there, and that will do
    ],
)  # fmt: skip
def test_shared(shared, left):
    user = Images()
    model = PaMaL(user, shared=shared)
    for name, p in user.named_parameters():
        if name in left:
            assert torch.equal(model.module.get_parameter(name), p)
        else:
            path, _, tensor = name.rpartition(".")
            assert f"{path}.parametrizations.{tensor}.original1" in dict(model.module.named_parameters())
    stir(model)
    x = batch("images").float()
    torch.testing.assert_close(model.export(A)(x), model(x, preference=A))
    assert list(model.export(A).state_dict()) == list(user.state_dict())
    exported = dict(model.export(A).named_parameters())
    for name in left:
        assert torch.equal(exported[name], model.module.get_parameter(name))


REFUSED = {
    "lstm": (lambda: nn.Sequential(nn.LSTM(3, 3)), "0, of type LSTM, holds the parameter 'weight_ih_l0'", ["0"]),
    "prelu": (lambda: nn.Sequential(nn.Linear(3, 3), nn.PReLU()), "1, of type PReLU", ["1"]),
    "attention": (Attention, "attend, of type MultiheadAttention, holds the parameter 'in_proj_weight'", ["attend"]),
    "bare": (Root, "the model, of type Root, holds the parameter 'scale'", ["scale"]),
    "tied": (Tied, "embedding.weight and out.weight are one parameter", ["embedding.weight", "out.weight"]),
    "parametrized": (normed, "1 is parametrized already", ["1"]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refuses_what_it_cannot_handle_and_says_how_to_go_on(name):
    build, message, advice = REFUSED[name]
    model = build()
    with pytest.raises(ValueError, match=message) as caught:
        PaMaL(model)
    assert str(caught.value).endswith(f"leave it as it is, shared={advice}")
    if name == "lstm":  # nothing else is there
        return
    conditioned = stir(PaMaL(model, shared=advice))
    x = {"tied": torch.arange(5), "attention": torch.randn(2, 5, 4)}.get(name, torch.randn(5, 3))
    torch.testing.assert_close(conditioned.export(A)(x), conditioned(x, preference=A))
    assert not torch.equal(conditioned(x, preference=A), conditioned(x, preference=[1.0, 0.0]))
    assert torch.equal(copy.deepcopy(conditioned)(x, preference=A), conditioned(x, preference=A))


def test_sharing_one_end_of_a_tie_is_not_enough():
    with pytest.raises(ValueError, match=r"embedding.weight and out.weight are one parameter"):
        PaMaL(Tied(), shared="out")


def test_a_tie_that_is_shared_holds():
    model = PaMaL(Tied(), shared=["*.weight"])
    assert model.module.embedding.weight is model.module.out.weight
    exported = model.export(A)
    assert exported.embedding.weight is exported.out.weight


def test_a_layer_with_two_names_is_one_layer():
    layer = nn.Linear(3, 3).double()
    user, x = nn.Sequential(layer, nn.Tanh(), layer), batch("mlp")
    model = stir(PaMaL(user))
    assert len(list(model.parameters())) == 4
    exported = model.export(A)
    assert exported[0] is exported[2]
    torch.testing.assert_close(exported(x), model(x, preference=A))
    assert copy.deepcopy(model).module[0] is not model.module[0]
    with pytest.raises(ValueError, match="finds no layer"):
        PaMaL(user, shared="2")


def test_what_is_frozen_later_is_exported_frozen():
    model = PaMaL(mlp())
    model.module[0].requires_grad_(False)
    exported = model.export(A)
    assert [p.requires_grad for p in exported.parameters()] == [False, False, True, True]


def test_frozen_layers_of_any_kind_are_left_alone():
    user = Attention()
    user.attend.requires_grad_(False)
    model = PaMaL(user)
    assert not any(p.requires_grad for p in model.module.attend.parameters())
    assert len(list(model.module.attend.parameters())) == 4


def test_refuses_a_pattern_that_matches_nothing():
    for shared in ["nothing", ["heads", "head"], "heads.2*"]:
        pattern = shared if isinstance(shared, str) else shared[-1]
        with pytest.raises(ValueError, match=rf"shared: '{pattern[:6]}.*matches none of .*'heads.0.bias'"):
            PaMaL(Images(), shared=shared)


def test_refuses_to_share_everything():
    for options in [{"shared": "*"}, {"shared": ["heads", "trunk"]}]:
        with pytest.raises(ValueError, match="PaMaL finds no layer"):
            PaMaL(Images(), **options)


def test_refuses_a_frozen_model():
    with pytest.raises(ValueError, match="finds no layer that it could make depend on the preference"):
        PaMaL(mlp().requires_grad_(False))
