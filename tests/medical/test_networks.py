import copy

import pytest
import torch

from madamoo import medical


@pytest.mark.parametrize("build", [medical.unet, medical.swin_unetr])
def test_images_of_any_size_come_back_in_that_size(build):
    torch.manual_seed(0)
    network = build(3, 1, width=12).eval()
    for size in ((64, 64), (50, 70), (33, 20)):
        assert network(torch.randn(1, 3, *size)).shape == (1, 1, *size)


def test_volumes_too():
    torch.manual_seed(0)
    network = medical.unet(1, 1, dimensions=3, width=2, depth=3).eval()
    assert network(torch.randn(1, 1, 9, 12, 17)).shape == (1, 1, 9, 12, 17)


@pytest.mark.parametrize(("build", "deep"), [(medical.unet, 2), (medical.swin_unetr, 1)])
def test_deep_supervision_gives_an_output_per_stage_and_trains_each_head(build, deep):
    torch.manual_seed(0)
    network = build(1, 1, width=12, deep=deep)
    other = copy.deepcopy(network)
    x = torch.randn(1, 1, 64, 40)
    outputs = network(x)
    assert len(outputs) == deep + 1 and all(out.shape == (1, 1, 64, 40) for out in outputs)
    for out, head in zip(outputs[1:], network.heads, strict=True):
        gradient = torch.autograd.grad(out.sum(), head.weight, retain_graph=True)[0]
        assert gradient.abs().sum() > 0
    with torch.no_grad():
        other.heads[0].bias += 1
        assert torch.allclose(other(x)[1], outputs[1] + 1, atol=1e-5), "a copy reports to itself"
        assert torch.equal(network(x)[1], outputs[1])


def test_what_cannot_be_built_is_refused():
    with pytest.raises(ValueError, match="width must be a multiple of 12, got 16"):
        medical.swin_unetr(width=16)
    with pytest.raises(ValueError, match="deep=3 needs depth=5 or more, got depth=4"):
        medical.unet(deep=3)
    with pytest.raises(ValueError, match="dimensions must be a whole number from 2 to 3, got 4"):
        medical.unet(dimensions=4)
