"""MONAI's Swin UNETR for images and volumes, ``swin:width=24:blocks=2``: one output per resolution asked for."""

from __future__ import annotations

from torch import nn

from madamoo.medical import swin_unetr

from . import Listed


def build(inputs: tuple[int, ...], outputs: tuple[int, ...], *, width: int = 48, blocks: int = 2) -> nn.Module:
    """Outputs after the first are of deep supervision: of decoder stages at 1/2, 1/4, ... of the resolution."""
    deep = len(outputs) - 1
    return Listed(swin_unetr(inputs[0], outputs[0], dimensions=len(inputs) - 1, width=width, blocks=blocks, deep=deep))
