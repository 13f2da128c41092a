import torch

from madamoo.bench import build_model


def count(module):
    return sum(p.numel() for p in module.parameters())


def test_the_trunk_of_sarcos_has_the_recipes_parameters():
    model = build_model("mlp:depth=3:width=256", (21,), (1,) * 7)
    assert count(model.trunk) == (21 * 256 + 256) + 2 * (256 * 256 + 256) == 137_216
    assert [count(head) for head in model.heads] == [257] * 7


def test_inputs_of_any_shape_are_flattened_and_each_objective_has_its_output():
    model = build_model("mlp:depth=2:width=5", (3, 4), (2, 1, 6))
    x = torch.randn(7, 3, 4)
    assert [tuple(z.shape) for z in model(x)] == [(7, 2), (7, 1), (7, 6)]
    hidden = x.reshape(7, 12)
    for layer in (model.trunk[1], model.trunk[3]):
        hidden = (hidden @ layer.weight.T + layer.bias).clamp(min=0)
    for head, z in zip(model.heads, model(x), strict=True):
        torch.testing.assert_close(z, hidden @ head.weight.T + head.bias)
