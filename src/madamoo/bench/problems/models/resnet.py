"""MONAI's ResNet-18 for small images: a 3x3 stem without stride or pooling, and one linear head per objective."""

from __future__ import annotations

from torch import Tensor, nn

from . import check_image


class ResNet(nn.Module):
    def __init__(self, trunk: nn.Module, features: int, outputs: tuple[int, ...]) -> None:
        super().__init__()
        self.trunk = trunk
        self.heads = nn.ModuleList(nn.Linear(features, size) for size in outputs)

    def forward(self, x: Tensor) -> list[Tensor]:
        shared = self.trunk(x)
        return [head(shared) for head in self.heads]


def build(inputs: tuple[int, ...], outputs: tuple[int, ...], *, width: int = 64, blocks: int = 2) -> nn.Module:
    """``width`` filters in the first of four stages, doubled in each other; ``blocks`` residual blocks per stage."""
    check_image("resnet", inputs, 8)
    import monai.networks.nets  # it takes seconds to import: only who needs it should wait

    filters = [width, 2 * width, 4 * width, 8 * width]
    trunk = monai.networks.nets.ResNet(
        "basic",
        [blocks] * 4,
        filters,
        spatial_dims=2,
        n_input_channels=inputs[0],
        conv1_t_size=3,
        conv1_t_stride=1,
        no_max_pool=True,
        feed_forward=False,
        bias_downsample=False,
    )
    # The 8x8 maps of a 64x64 image are averaged over 4x4 pixels: 2x2 remain, 2,048 features at width 64. Asking for
    # 2x2 says the same, and holds for other sizes.
    trunk.avgpool = nn.AdaptiveAvgPool2d(2)
    return ResNet(trunk, 4 * filters[-1], outputs)
