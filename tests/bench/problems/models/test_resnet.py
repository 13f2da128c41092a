"""The ResNet has the published sizes, and works for other images."""

import pytest
import torch
import torch.nn.functional as F

from madamoo.bench import build_model


def test_published_sizes():
    model = build_model("resnet", (3, 64, 64), (1, 1, 5))
    trunk = sum(p.numel() for p in model.trunk.parameters())
    assert trunk == 11_168_832  # ResNet-18 for CIFAR: 11,173,962 with its classifier of 512 x 10 + 10
    assert [head.in_features for head in model.heads] == [2048] * 3


def test_features_are_averages_over_four_by_four_pixels():
    model = build_model("resnet:width=4", (3, 64, 64), (1, 5)).eval()
    maps = []
    model.trunk.layer4.register_forward_hook(lambda module, inputs, output: maps.append(output))
    outputs = model(torch.randn(2, 3, 64, 64))
    assert maps[0].shape == (2, 32, 8, 8)
    features = F.avg_pool2d(maps[0], 4).flatten(1)
    for head, output in zip(model.heads, outputs, strict=True):
        torch.testing.assert_close(head(features), output)


@pytest.mark.parametrize("size", [16, 32, 48])
def test_other_sizes_and_fewer_blocks(size):
    model = build_model("resnet:width=4:blocks=1", (1, size, size), (1, 2))
    outputs = model(torch.randn(3, 1, size, size))
    assert [tuple(output.shape) for output in outputs] == [(3, 1), (3, 2)]
    sum(output.sum() for output in outputs).backward()
    assert all(p.grad is not None for p in model.parameters())
