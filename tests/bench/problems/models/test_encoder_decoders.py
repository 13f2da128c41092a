"""UNet and Swin UNETR as models of the lab: a list of maps of the input's size, in two dimensions and three."""

import pytest
import torch

from madamoo.bench import build_model


@pytest.mark.parametrize("spec", ["unet:width=4:depth=3", "swin:width=12:blocks=1"])
def test_one_map_per_output_in_the_size_of_the_input(spec):
    torch.manual_seed(0)
    model = build_model(spec, (3, 40, 50), (1, 1)).eval()
    with torch.no_grad():
        assert [out.shape for out in model(torch.randn(1, 3, 40, 50))] == [(1, 1, 40, 50)] * 2
    assert len(build_model(spec, (3, 40, 50), (1,))(torch.randn(1, 3, 64, 64))) == 1


def test_three_dimensions_and_what_has_too_few():
    torch.manual_seed(0)
    model = build_model("unet:width=2:depth=3", (1, 16, 16, 16), (1,)).eval()
    assert model(torch.randn(1, 1, 10, 12, 14))[0].shape == (1, 1, 10, 12, 14)
    with pytest.raises(ValueError, match="dimensions must be a whole number from 2 to 3, got 0"):
        build_model("unet", (5,), (1,))
    with pytest.raises(ValueError, match="unet has no option 'size'"):
        build_model("unet:size=3", (3, 16, 16), (1,))
