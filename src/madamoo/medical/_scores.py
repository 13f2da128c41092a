"""How good a prediction is: one number per image or volume, never a mean over a batch."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ._losses import check_shapes, check_window


def dice_score(prediction: Tensor, truth: Tensor) -> Tensor:
    """The Dice coefficient of binary masks [n, ...], between 0 and 1: [n].

    Of two empty masks it is 1, for nothing was to be found and nothing was; of one empty mask it is 0.
    """
    prediction, truth = _masks(prediction, truth)
    both = (prediction & truth).flatten(1).sum(1).double()
    sizes = (prediction.flatten(1).sum(1) + truth.flatten(1).sum(1)).double()
    return torch.where(sizes > 0, 2 * both / sizes.clamp(min=1), 1.0)


def hd95(prediction: Tensor, truth: Tensor, spacing: Sequence[float] | None = None) -> Tensor:
    """The 95th percentile of the distances between the masks' boundaries, the larger of both directions: [n].

    Masks are [n, height, width] or [n, depth, height, width]; distances are in pixels, or in the unit of ``spacing``
    (the size of a pixel along each axis). Of two empty masks it is 0; of one empty mask, from which nothing has a
    distance, it is the longest there can be: the diagonal of the image.
    """
    from monai.metrics import compute_hausdorff_distance

    prediction, truth = _masks(prediction, truth)
    size = truth.shape[1:]
    unit = [1.0] * len(size) if spacing is None else [float(s) for s in spacing]
    if len(unit) != len(size):
        raise ValueError(f"spacing must have {len(size)} numbers, one for each axis, got {unit}")
    worst = math.sqrt(sum(((n - 1) * s) ** 2 for n, s in zip(size, unit, strict=True)))
    found = torch.zeros(len(truth), dtype=torch.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # MONAI's, of its own use of an argument
        for k, (one, other) in enumerate(zip(prediction, truth, strict=True)):
            empty = int(not one.any()) + int(not other.any())
            if empty:
                found[k] = worst if empty == 1 else 0.0
                continue
            a, b = (mask[None, None].float().cpu() for mask in (one, other))
            found[k] = compute_hausdorff_distance(a, b, include_background=True, percentile=95, spacing=unit).item()
    return found


def mae(prediction: Tensor, truth: Tensor) -> Tensor:
    """The mean absolute error of [n, ...]: [n]."""
    check_shapes(prediction, truth)
    return (prediction.double() - truth.double()).abs().flatten(1).mean(1)


def psnr(prediction: Tensor, truth: Tensor) -> Tensor:
    """The peak signal-to-noise ratio in dB of values between 0 and 1: [n]; at most 100, the value of a perfect copy."""
    check_shapes(prediction, truth)
    squares = (prediction.double() - truth.double()).square().flatten(1).mean(1)
    return -10 * squares.clamp(min=1e-10).log10()


def ssim(prediction: Tensor, truth: Tensor) -> Tensor:
    """The structural similarity of images or volumes [n, channels, ...] with values between 0 and 1: [n]."""
    from monai.metrics import SSIMMetric

    check_shapes(prediction, truth)
    check_window(prediction)
    found: Any = SSIMMetric(prediction.dim() - 2, data_range=1.0)(prediction.float(), truth.float())
    return found.squeeze(1).double()


def _masks(prediction: Tensor, truth: Tensor) -> tuple[Tensor, Tensor]:
    check_shapes(prediction, truth)
    return prediction.bool(), truth.bool()
