import torch

from madamoo.bench import build_model


def count(module):
    return sum(p.numel() for p in module.parameters())


def test_shared_parameters_and_heads_are_the_recipes():
    model = build_model("lenet", (1, 28, 28), (10, 10))
    convolutions = (10 * 25 + 10) + (20 * 10 * 25 + 20)
    assert count(model.features) + count(model.trunk) == convolutions + (320 * 50 + 50) == 21_330
    assert [count(head) for head in model.heads] == [3_060, 3_060] == [(50 * 50 + 50) + (50 * 10 + 10)] * 2
    assert count(model) == 21_330 + 2 * 3_060


def test_every_image_gets_logits_of_each_objective():
    model = build_model("lenet:width=8", (3, 32, 20), (4, 7, 2))
    assert [tuple(z.shape) for z in model(torch.rand(5, 3, 32, 20))] == [(5, 4), (5, 7), (5, 2)]
    assert model.training
