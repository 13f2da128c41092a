"""SegNet gives maps of the size of its input, with a decoder an objective or one for all."""

import pytest
import torch

from madamoo.bench import build_model


@pytest.mark.parametrize("shared", ["encoder", "encoder-decoder"])
@pytest.mark.parametrize("size, stages", [((72, 96), 5), ((64, 128), 5), ((37, 45), 5), ((9, 13), 3)])
def test_output_sizes(shared, size, stages):
    model = build_model(f"segnet:width=2:stages={stages}:shared={shared}", (3, *size), (13, 1, 3))
    outputs = model(torch.randn(2, 3, *size))
    assert [tuple(output.shape) for output in outputs] == [(2, channels, *size) for channels in (13, 1, 3)]


def test_published_filters():
    model = build_model("segnet", (3, 288, 384), (13, 1, 3))
    convolutions = [m for m in model.encoder.modules() if isinstance(m, torch.nn.Conv2d)]
    assert [c.out_channels for c in convolutions] == [64] * 2 + [128] * 2 + [256] * 3 + [512] * 6  # those of VGG-16
    mirror = [m for m in model.decoders[0].modules() if isinstance(m, torch.nn.Conv2d)]
    # The decoder undoes it from the last stage (512 to 512) to the first (64 to 64).
    stages = [[c.out_channels for c in stage if isinstance(c, torch.nn.Conv2d)] for stage in model.decoders[0].stages]
    assert stages == [[64, 64], [128, 64], [256, 256, 128], [512, 512, 256], [512, 512, 512]]
    assert len(mirror) == len(convolutions)


def test_what_is_shared():
    """The loss of one objective reaches its own head and, by ``shared``, only its own decoder or the one of all."""
    for shared, reached in (("encoder", [False, True, False]), ("encoder-decoder", [True])):
        model = build_model(f"segnet:width=2:shared={shared}", (3, 32, 32), (13, 1, 3))
        model(torch.randn(2, 3, 32, 32))[1].sum().backward()
        assert [next(d.parameters()).grad is not None for d in model.decoders] == reached
        assert [next(h.parameters()).grad is not None for h in model.heads] == [False, True, False]
        assert all(p.grad is not None for p in model.encoder.parameters())


def test_decoder_puts_values_where_the_maxima_were():
    model = build_model("segnet:width=1", (1, 37, 45), (1,))
    model.encoder.stages = torch.nn.ModuleList([torch.nn.Identity()])
    model.decoders[0].stages = torch.nn.ModuleList([torch.nn.Identity()])
    x = torch.randperm(37 * 45).float().view(1, 1, 37, 45)
    found = model.decoders[0](*model.encoder(x))
    expected = torch.zeros_like(x)
    for i in range(0, 36, 2):
        for j in range(0, 44, 2):
            block = x[0, 0, i : i + 2, j : j + 2]
            expected[0, 0, i : i + 2, j : j + 2] = torch.where(block == block.max(), block, 0.0)
    assert torch.equal(found, expected)


def test_refuses():
    with pytest.raises(ValueError, match="shared must be"):
        build_model("segnet:shared=nothing", (3, 64, 64), (1,))
    with pytest.raises(ValueError, match="images of 32x32 or more; these are 16x64"):
        build_model("segnet", (3, 16, 64), (1,))
    with pytest.raises(ValueError, match="stages must be"):
        build_model("segnet:stages=6", (3, 64, 64), (1,))
