"""MONAI's UNet and Swin UNETR as encoder-decoders for images and volumes of any size, with deep supervision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn


class EncoderDecoder(nn.Module):
    """A network whose input is padded to the size it needs, and its output cut to the input's size again.

    Args:
        network: from [n, channels, ...] to [n, outputs, ...], for sizes that ``multiple`` divides.
        multiple: what must divide each size.
        smallest: the least size; below it a feature map has a single place.
        deep: names of decoder stages, and the number of their channels. Each gets a head of its own, and the network
            then returns a list: the output at full resolution, and those of the stages, enlarged to it.
        outputs: channels of these heads.

    Example:
        >>> import torch
        >>> from madamoo.medical import unet
        >>> network = unet(channels=3, outputs=1)
        >>> isinstance(network, EncoderDecoder), network(torch.zeros(1, 3, 37, 50)).shape
        (True, torch.Size([1, 1, 37, 50]))
    """

    def __init__(
        self,
        network: nn.Module,
        multiple: int,
        smallest: int,
        deep: Sequence[tuple[str, int]] = (),
        outputs: int = 1,
        dimensions: int = 2,
    ) -> None:
        super().__init__()
        self.network, self.multiple, self.smallest = network, multiple, smallest
        self.stages = [name for name, _ in deep]
        convolution: Any = nn.Conv2d if dimensions == 2 else nn.Conv3d
        self.heads = nn.ModuleList(convolution(channels, outputs, 1) for _, channels in deep)

    def forward(self, x: Tensor) -> Tensor | list[Tensor]:
        size = x.shape[2:]
        wanted = [max(self.smallest, -(-n // self.multiple) * self.multiple) for n in size]
        padding = [p for n, m in zip(reversed(size), reversed(wanted), strict=True) for p in (0, m - n)]
        padded = F.pad(x, padding, mode="replicate")
        seen: dict[str, Tensor] = {}
        # Hooks for this call alone: a copy of the network must not report to the original.
        hooks = [self.network.get_submodule(name).register_forward_hook(_note(seen, name)) for name in self.stages]
        try:
            out = self.network(padded)
        finally:
            for hook in hooks:
                hook.remove()
        maps = [out]
        for name, head in zip(self.stages, self.heads, strict=True):
            mode = "bilinear" if len(size) == 2 else "trilinear"
            maps.append(F.interpolate(head(seen[name]), size=padded.shape[2:], mode=mode))
        inside = (..., *(slice(0, n) for n in size))
        cut = [each[inside] for each in maps]
        return cut if self.stages else cut[0]


def _note(seen: dict[str, Tensor], name: str) -> Any:
    def hook(module: nn.Module, inputs: Any, output: Tensor) -> None:
        seen[name] = output

    return hook


def unet(
    channels: int = 3, outputs: int = 1, *, dimensions: int = 2, width: int = 16, depth: int = 4, deep: int = 0
) -> EncoderDecoder:
    """MONAI's residual UNet with ``depth`` stages of ``width``, 2 ``width``, ... channels.

    ``deep`` stages of the decoder, from half resolution on, have outputs of their own.
    """
    from monai.networks.nets import UNet

    _check(dimensions=(dimensions, 2, 3), width=(width, 1, 4096), depth=(depth, 2, 8), deep=(deep, 0, 6))
    if deep > depth - 2:
        raise ValueError(f"deep={deep} needs depth={deep + 2} or more, got depth={depth}")
    filters = [width * 2**k for k in range(depth)]
    network = UNet(dimensions, channels, outputs, channels=filters, strides=[2] * (depth - 1), num_res_units=2)
    # Level k of MONAI's nested blocks is (down, what is below, up), and its up block has the channels of the one above.
    stages = [("model" + ".1.submodule" * k + ".2", filters[k - 1]) for k in range(1, deep + 1)]
    return EncoderDecoder(network, 2 ** (depth - 1), 2**depth, stages, outputs, dimensions)


def swin_unetr(
    channels: int = 1, outputs: int = 1, *, dimensions: int = 2, width: int = 24, blocks: int = 2, deep: int = 0
) -> EncoderDecoder:
    """MONAI's Swin UNETR: a shifted-window transformer as encoder, convolutions as decoder.

    Args:
        width: features of the first stage, a multiple of 12.
        blocks: transformer blocks in each of the four stages.
        deep: so many stages of the decoder, from half resolution on, have outputs of their own.
    """
    from monai.networks.nets import SwinUNETR

    _check(dimensions=(dimensions, 2, 3), width=(width, 12, 4096), blocks=(blocks, 1, 48), deep=(deep, 0, 4))
    if width % 12:
        raise ValueError(f"width must be a multiple of 12, got {width}")
    network = SwinUNETR(
        in_channels=channels,
        out_channels=outputs,
        feature_size=width,
        depths=(blocks,) * 4,
        spatial_dims=dimensions,
    )
    stages = [(f"decoder{k + 1}", width * 2 ** (k - 1)) for k in range(1, deep + 1)]
    return EncoderDecoder(network, 32, 64, stages, outputs, dimensions)


def _check(**limits: tuple[int, int, int]) -> None:
    for name, (value, low, high) in limits.items():
        if not isinstance(value, int) or not low <= value <= high:
            raise ValueError(f"{name} must be a whole number from {low} to {high}, got {value!r}")
