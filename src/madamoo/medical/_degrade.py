"""From a volume to what a scanner of lower resolution would have given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

SAMPLE = 2**24  # voxels from which percentiles are read: torch takes no more at once


class Range(NamedTuple):
    """The intensities that are mapped to 0 and to 1.

    Example:
        >>> Range(10.0, 30.0).scale(torch.tensor([10.0, 20.0, 30.0]))
        tensor([0.0000, 0.5000, 1.0000])
    """

    low: float
    high: float

    def scale(self, volume: Tensor) -> Tensor:
        return ((volume.float() - self.low) / (self.high - self.low)).clamp(0.0, 1.0)

    def restore(self, scaled: Tensor) -> Tensor:
        return scaled * (self.high - self.low) + self.low


def intensity_range(volume: Tensor, low: float = 1.0, high: float = 99.0) -> Range:
    """The percentiles ``low`` and ``high`` of all voxels; where these are equal, the least and the greatest value.

    Raises ValueError for a volume with one value only, or one that is not finite: there is nothing to scale.
    """
    values = volume.detach().flatten().float()
    if not bool(torch.isfinite(values).all()):
        raise ValueError("it has values that are not finite")
    sample = values[:: -(-len(values) // SAMPLE)]
    found = Range(*(float(x) for x in sample.quantile(torch.tensor([low / 100, high / 100]))))
    if found.low >= found.high:
        found = Range(float(values.min()), float(values.max()))
    if found.low >= found.high:
        raise ValueError(f"all its voxels have one value, {found.low:g}")
    return found


def reduce_volume(volume: Tensor, factor: int = 4) -> Tensor:
    """A volume [depth, height, width] with ``factor`` times fewer voxels along each axis, trilinear."""
    if volume.dim() != 3:
        raise ValueError(f"volume must be [depth, height, width], got {list(volume.shape)}")
    if factor < 1:
        raise ValueError(f"factor must be at least 1, got {factor}")
    small = [max(1, round(n / factor)) for n in volume.shape]
    return F.interpolate(volume[None, None].float(), size=small, mode="trilinear")[0, 0]


def enlarge(reduced: Tensor, size: Sequence[int], slices: Tensor | None = None) -> Tensor:
    """A volume of ``size`` by trilinear interpolation, or some of its slices along the first axis: [n, height, width].

    To make a few slices costs no more than these.
    """
    depth, *plane = size
    wanted = torch.arange(depth) if slices is None else slices
    # Where the slices lie among the reduced ones; before the first and after the last there is nothing to interpolate.
    place = ((wanted.double() + 0.5) * len(reduced) / depth - 0.5).clamp(0, len(reduced) - 1)
    before = place.floor().long()
    after = (before + 1).clamp(max=len(reduced) - 1)
    share = (place - before).float().view(-1, 1, 1)
    planes = (1 - share) * reduced[before].float() + share * reduced[after].float()
    return F.interpolate(planes[:, None], size=plane, mode="bilinear")[:, 0]


def degrade(volume: Tensor, factor: int = 4) -> Tensor:
    """A volume reduced ``factor`` times along each axis and enlarged back: what super-resolution starts from.

    Example:
        >>> degrade(torch.full((8, 8, 8), 0.5)).unique()
        tensor([0.5000])
    """
    return enlarge(reduce_volume(volume, factor), volume.shape)
