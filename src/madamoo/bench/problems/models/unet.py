"""MONAI's residual UNet for images and volumes, ``unet:width=16:depth=4``: one output per resolution asked for."""

from __future__ import annotations

from torch import nn

from madamoo.medical import unet

from . import Listed


def build(inputs: tuple[int, ...], outputs: tuple[int, ...], *, width: int = 32, depth: int = 5) -> nn.Module:
    """Outputs after the first are of deep supervision: of decoder stages at 1/2, 1/4, ... of the resolution."""
    deep = len(outputs) - 1
    return Listed(unet(inputs[0], outputs[0], dimensions=len(inputs) - 1, width=width, depth=depth, deep=deep))
