"""SegNet: five stages of convolutions and pooling, and their mirror image, which unpools to where the maxima were."""

from __future__ import annotations

from itertools import pairwise

import torch.nn.functional as F
from torch import Tensor, nn

from . import check_image

FILTERS = (1, 2, 4, 8, 8)  # times the width
CONVOLUTIONS = (2, 2, 3, 3, 3)

Places = list[tuple[Tensor, tuple[int, ...]]]
"""Where the maxima were, and the size before pooling, of each stage."""


class Encoder(nn.Module):
    def __init__(self, channels: int, filters: list[int]) -> None:
        super().__init__()
        sizes = zip([channels, *filters], filters, CONVOLUTIONS, strict=False)
        self.stages = nn.ModuleList(_stage([before] + [after] * count) for before, after, count in sizes)

    def forward(self, x: Tensor) -> tuple[Tensor, Places]:
        places: Places = []
        for stage in self.stages:
            x = stage(x)
            size = tuple(x.shape[2:])
            x, where = F.max_pool2d(x, 2, return_indices=True)
            places.append((where, size))
        return x, places


class Decoder(nn.Module):
    def __init__(self, filters: list[int]) -> None:
        super().__init__()
        sizes = zip([filters[0], *filters], filters, CONVOLUTIONS, strict=False)
        self.stages = nn.ModuleList(_stage([before] * count + [after]) for after, before, count in sizes)

    def forward(self, x: Tensor, places: Places) -> Tensor:
        for stage, (where, size) in zip(reversed(self.stages), reversed(places), strict=True):
            x = stage(
                F.max_unpool2d(x, where, (2, 2), output_size=size)
            )  # the size tells 9 rows from 8: both pool to 4
        return x


class SegNet(nn.Module):
    def __init__(self, channels: int, outputs: tuple[int, ...], width: int, stages: int, decoders: int) -> None:
        super().__init__()
        filters = [factor * width for factor in FILTERS[:stages]]
        self.encoder = Encoder(channels, filters)
        self.decoders = nn.ModuleList(Decoder(filters) for _ in range(decoders))
        self.heads = nn.ModuleList(
            nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, size, 1)) for size in outputs
        )

    def forward(self, x: Tensor) -> list[Tensor]:
        shared, places = self.encoder(x)
        maps = [decoder(shared, places) for decoder in self.decoders]
        if len(maps) == 1:
            maps *= len(self.heads)
        return [head(each) for head, each in zip(self.heads, maps, strict=True)]


def build(
    inputs: tuple[int, ...], outputs: tuple[int, ...], *, width: int = 64, stages: int = 5, shared: str = "encoder"
) -> nn.Module:
    """Filters 64-128-256-512-512 at ``width`` 64; fewer ``stages`` keep the first of them, and finer maps.

    ``shared="encoder"`` gives each objective a decoder of its own, as in the paper; ``"encoder-decoder"`` only a head,
    as in the public code of the works that it follows.
    """
    if shared not in ("encoder", "encoder-decoder"):
        raise ValueError(f"shared must be 'encoder' or 'encoder-decoder', got {shared!r}")
    if not 1 <= stages <= len(FILTERS):
        raise ValueError(f"stages must be 1 to {len(FILTERS)}, got {stages}")
    check_image("segnet", inputs, 2**stages)  # it halves its input so many times
    return SegNet(inputs[0], outputs, width, stages, len(outputs) if shared == "encoder" else 1)


def _stage(sizes: list[int]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before, after in pairwise(sizes):
        convolution = nn.Conv2d(before, after, 3, padding=1, bias=False)  # the normalisation has a bias
        layers += [convolution, nn.BatchNorm2d(after), nn.ReLU()]
    return nn.Sequential(*layers)
