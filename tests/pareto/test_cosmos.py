"""COSMOS against the layer with the preference appended by hand."""

import copy
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from madamoo.pareto._cosmos import COSMOS
from pareto.networks import RAY, A, Attention, C, Images, Tied, batch, mlp, normed, stir

# fmt: off
FOLDED = {
    "linear": (lambda: nn.Linear(4, 3), (6, 4), F.linear, {}),
    "linear-no-bias": (lambda: nn.Linear(4, 3, bias=False), (6, 4), F.linear, {}),
    "linear-vector": (lambda: nn.Linear(4, 3), (4,), F.linear, {}),
    "linear-sequence": (lambda: nn.Linear(4, 3), (2, 5, 4), F.linear, {}),
    "conv1d": (lambda: nn.Conv1d(4, 3, 3, dilation=2), (2, 4, 7), F.conv1d, {"dilation": 2}),
    "conv2d": (lambda: nn.Conv2d(2, 3, (3, 2), stride=2), (2, 2, 5, 5), F.conv2d, {"stride": 2}),
    "conv2d-no-bias": (lambda: nn.Conv2d(2, 3, 3, bias=False), (2, 2, 5, 5), F.conv2d, {}),
    "conv2d-valid": (lambda: nn.Conv2d(2, 3, 3, padding="valid"), (2, 2, 5, 5), F.conv2d, {}),
    "conv2d-unbatched": (lambda: nn.Conv2d(2, 3, 3), (2, 5, 5), F.conv2d, {}),
    "conv2d-1x1": (lambda: nn.Conv2d(2, 3, 1), (2, 2, 5, 5), F.conv2d, {}),
}
KEPT = {
    "conv1d-padded": (lambda: nn.Conv1d(4, 3, 3, padding=1), (2, 4, 7), F.conv1d, {"padding": 1}),
    "conv2d-padded": (lambda: nn.Conv2d(2, 3, 3, padding=(1, 0)), (2, 2, 5, 5), F.conv2d, {"padding": (1, 0)}),
    "conv2d-same": (lambda: nn.Conv2d(2, 3, 3, padding="same", bias=False), (2, 2, 5, 5), F.conv2d, {"padding": 1}),
    "conv3d-padded": (lambda: nn.Conv3d(1, 2, 2, padding=1), (2, 1, 3, 3, 3), F.conv3d, {"padding": 1}),
    "transposed1d": (lambda: nn.ConvTranspose1d(4, 2, 3), (2, 4, 5), F.conv_transpose1d, {}),
    "transposed2d": (lambda: nn.ConvTranspose2d(4, 2, 3, stride=2), (2, 4, 3, 3), F.conv_transpose2d, {"stride": 2}),
    "transposed3d": (lambda: nn.ConvTranspose3d(1, 2, 2, bias=False), (2, 1, 3, 3, 3), F.conv_transpose3d, {}),
}
# fmt: on
LAYERS = FOLDED | KEPT


def case(name):
    layer, shape, function, options = LAYERS[name]
    torch.manual_seed(0)
    user = nn.Sequential(nn.Identity(), layer()).double()
    x = torch.randn(shape, dtype=torch.float64)

    def by_hand(model):
        wide = model.module[1]
        dim = x.dim() - wide.weight.dim() + 1
        planes = [torch.full_like(x.narrow(dim, 0, 1), a) for a in RAY]
        return function(torch.cat([x, *planes], dim=dim), wide.weight, wide.bias, **options)

    return user, x, by_hand


def test_the_preference_is_appended():
    for name in LAYERS:
        user, x, by_hand = case(name)
        model = stir(COSMOS(user, C))
        torch.testing.assert_close(model(x, preference=RAY), by_hand(model), rtol=0, atol=1e-14)


def test_the_users_weights_are_kept():
    for name in LAYERS:
        user, x, _ = case(name)
        model = COSMOS(user, C)
        wide, old = model.module[1], user[1]
        dim = 0 if "transposed" in name else 1
        count = old.weight.shape[dim]
        assert wide.weight.shape[dim] == count + C
        assert type(wide) is type(old) and repr(wide) == repr(type(old)(count + C, *_rest(old)))
        assert torch.equal(wide.weight.narrow(dim, 0, count), old.weight)
        assert wide.bias is None if old.bias is None else torch.equal(wide.bias, old.bias)
        new = wide.weight.narrow(dim, count, C)
        limit = (wide.weight.shape[1] * wide.weight[0, 0].numel()) ** -0.5  # 1 / sqrt(fan in)
        assert 0.3 * limit < new.abs().max() <= limit and new.all()
        with torch.no_grad():
            new.zero_()
        torch.testing.assert_close(model(x, preference=RAY), user(x), rtol=0, atol=1e-14)


def _rest(layer):
    """The arguments of a layer but for the number of inputs."""
    if isinstance(layer, nn.Linear):
        return layer.out_features, layer.bias is not None
    middle = (layer.out_channels, layer.kernel_size, layer.stride, layer.padding)
    if isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Conv3d):
        return *middle, layer.dilation, 1, layer.bias is not None
    return *middle, layer.output_padding, 1, layer.bias is not None


def test_export_puts_the_preference_into_the_bias():
    for name in FOLDED:
        user, x, _ = case(name)
        model = stir(COSMOS(user, C))
        exported = model.export(RAY)
        torch.testing.assert_close(exported(x), model(x, preference=RAY), rtol=0, atol=1e-14)
        plain = user[1].weight.shape
        assert exported[1].weight.shape == plain and exported[1].bias is not None
        assert list(exported.state_dict()) == ["1.weight", "1.bias"]
        old = user[1]
        assert repr(exported[1]) == repr(type(old)(old.weight.shape[1], *_rest(old)[:-1]))  # with a bias in any case
        assert not exported[1]._forward_pre_hooks
        _check_export(exported, model, x)


@pytest.mark.parametrize("name", KEPT)
def test_export_keeps_the_channels_where_the_border_counts(name):
    user, x, _ = case(name)
    model = stir(COSMOS(user, C))
    exported = model.export(RAY)
    assert torch.equal(exported(x), model(x, preference=RAY))
    assert exported[1].preference.tolist() == RAY and "1.preference" in exported.state_dict()
    assert len(exported[1]._forward_pre_hooks) == 1
    assert exported.float()(x.float()).dtype == torch.float32
    _check_export(exported.double(), model, x)


def _check_export(exported, model, x):
    """It stands alone, survives copies, and can be trained on."""
    expected = exported(x)
    stir(model)
    assert torch.equal(exported(x), expected)
    for other in (copy.deepcopy(exported), pickle.loads(pickle.dumps(exported))):
        assert torch.equal(other(x), expected)
        other(x).sum().backward()
        assert all(p.is_leaf and p.grad is not None for p in other.parameters())


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_other_paddings_of_a_constant_are_constant(mode):
    torch.manual_seed(0)
    user = nn.Conv2d(2, 3, 3, padding=1, padding_mode=mode).double()
    model, x = stir(COSMOS(user)), torch.randn(2, 2, 5, 5, dtype=torch.float64)
    exported = model.export(A)
    assert exported.in_channels == 2
    torch.testing.assert_close(exported(x), model(x, preference=A), rtol=0, atol=1e-14)


def test_a_bias_would_not_do_where_zeros_are_padded():
    """Why the channels are kept: a constant's effect is not constant."""
    model = COSMOS(nn.Conv2d(2, 3, 3, padding=1).double())
    x = torch.zeros(1, 2, 5, 5, dtype=torch.float64)
    effect = model(x, preference=A)[0, 0]
    assert not torch.isclose(effect[0, 0], effect[2, 2])


def test_the_first_layer_or_the_one_named():
    for options, name in (({}, "trunk.0"), ({"layer": "trunk.3"}, "trunk.3"), ({"layer": "heads.1"}, "heads.1")):
        user = Images()
        model = COSMOS(user, **options)
        wider = [n for n, p in user.named_parameters() if p.shape != model.module.get_parameter(n).shape]
        assert model.layer == name and wider == [f"{name}.weight"]
    x = batch("images").float()
    first, second = (model.eval()(x, preference=a) for a in ([0.0, 1.0], [1.0, 0.0]))
    assert torch.equal(first[:, 0], second[:, 0]) and not torch.equal(first[:, 1], second[:, 1])  # head 1 alone knows


def test_the_layers_of_attention_that_are_not_called_are_passed_over():
    model, x = stir(COSMOS(Attention())), torch.randn(2, 5, 4)
    assert model.layer == "out"
    torch.testing.assert_close(model.export(A)(x), model(x, preference=A))


def test_a_layer_used_twice():
    layer = nn.Linear(3, 3).double()
    model, x = stir(COSMOS(nn.Sequential(layer, nn.Tanh(), layer))), batch("mlp")
    torch.testing.assert_close(model.export(A)(x), model(x, preference=A), rtol=0, atol=1e-14)


def test_hooks_of_the_user_see_the_users_input():
    seen = []
    user = mlp()
    user[0].register_forward_pre_hook(lambda layer, args: seen.append(args[0].shape))
    COSMOS(user)(batch("mlp"), preference=A)
    assert seen == [(6, 3)]


def test_more_arguments_reach_the_layer():
    class Up(nn.Module):
        def __init__(self):
            super().__init__()
            self.up = nn.ConvTranspose2d(2, 3, 3, stride=2)

        def forward(self, x, size):
            return self.up(x, output_size=size) + self.up(x, size)

    model, x = COSMOS(Up()), torch.randn(1, 2, 3, 3)
    assert model(x, (8, 8), preference=A).shape == (1, 3, 8, 8)
    torch.testing.assert_close(model.export(A)(x, (8, 8)), model(x, (8, 8), preference=A))


def frozen():
    user = mlp()
    user[0].weight.requires_grad_(False)
    return user


@pytest.mark.parametrize(
    ("user", "options", "message"),
    [
        (mlp, {"layer": "1"}, r"layer must name a linear or convolution layer .*, one of \['0', '2'\], got '1'"),
        (mlp, {"layer": "missing"}, "layer must name"),
        (lambda: nn.Sequential(nn.Tanh()), {}, "model has no linear or convolution layer"),
        (lambda: nn.Sequential(nn.Conv2d(4, 4, 1, groups=2), nn.Linear(3, 3)), {}, r"layer '0' has 2 groups.*'0', '1'"),
        (frozen, {}, "layer '0' is frozen"),
        (Tied, {}, "layer 'out' shares its weight: embedding.weight and out.weight are one parameter"),
        (normed, {"layer": "1"}, r"layer must name.*one of \['0'\], got '1'"),
        (Attention, {"layer": "attend.out_proj"}, r"one of \['out'\], got 'attend.out_proj'"),
    ],
)  # fmt: skip
def test_refuses(user, options, message):
    with pytest.raises(ValueError, match=message):
        COSMOS(user(), **options)
