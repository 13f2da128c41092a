"""The objectives of medical image training: what is minimised, one scalar per objective.

Images are [n, channels, height, width] and volumes [n, channels, depth, height, width]; every loss takes both. Those
that sum over a whole image or subtract squares compute in 32 bits or more, whatever they are given: in 16 bits the sums
overflow and the differences are noise.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

SEGMENTATION = ("cross_entropy", "dice")
SUPER_RESOLUTION = ("l1", "edges", "spectrum", "laplacian", "ssim")
WINDOW = 11  # pixels along each axis, of the structural similarity


def cross_entropy(logits: Tensor, mask: Tensor) -> Tensor:
    """The mean over pixels of the binary cross-entropy; ``mask`` has zeros and ones."""
    return F.binary_cross_entropy_with_logits(logits, mask.to(logits))


def soft_dice(logits: Tensor, mask: Tensor) -> Tensor:
    """One minus the Dice coefficient of probabilities, per image; for an empty mask it falls as the prediction does."""
    from monai.losses import DiceLoss

    logits = _wide(logits)
    return DiceLoss(sigmoid=True)(logits, mask.to(logits))


def segmentation_losses(outputs: Tensor | Sequence[Tensor], mask: Tensor) -> dict[str, Tensor]:
    """Cross-entropy and soft Dice; of several outputs (deep supervision) each has both, ``dice_1`` for the second.

    Example:
        >>> mask = torch.zeros(2, 1, 8, 8)
        >>> list(segmentation_losses(torch.randn(2, 1, 8, 8), mask))
        ['cross_entropy', 'dice']
    """
    each = [outputs] if isinstance(outputs, Tensor) else list(outputs)
    found: dict[str, Tensor] = {}
    for k, logits in enumerate(each):
        values = (cross_entropy(logits, mask), soft_dice(logits, mask))
        found |= dict(zip(segmentation_names(k), values, strict=True))
    return found


def segmentation_names(output: int) -> tuple[str, ...]:
    """The names of an output's losses: 0 is the full resolution, 1 and above the coarser ones."""
    return tuple(f"{name}_{output}" if output else name for name in SEGMENTATION)


def l1_loss(prediction: Tensor, truth: Tensor) -> Tensor:
    """The mean absolute difference."""
    return _difference(prediction, truth).abs().mean()


def edge_loss(prediction: Tensor, truth: Tensor) -> Tensor:
    """The mean absolute difference of the Sobel derivatives along all axes."""
    difference = _difference(prediction, truth)
    axes = range(2, difference.dim())
    parts = []
    for axis in axes:
        part = difference
        for other in axes:
            part = _filter(part, other, (-0.5, 0.0, 0.5) if other == axis else (0.25, 0.5, 0.25))
        parts.append(part.abs().mean())
    return torch.stack(parts).mean()


def spectrum_loss(prediction: Tensor, truth: Tensor) -> Tensor:
    """The mean absolute value of the difference's Fourier coefficients, of an orthonormal transform."""
    axes = tuple(range(2, prediction.dim()))
    return torch.fft.fftn(_wide(_difference(prediction, truth)), dim=axes, norm="ortho").abs().mean()


def laplacian_loss(prediction: Tensor, truth: Tensor) -> Tensor:
    """The mean absolute Laplacian of the difference: what a high-pass filter leaves of it."""
    difference = _difference(prediction, truth)
    parts = [_filter(difference, axis, (1.0, -2.0, 1.0)) for axis in range(2, difference.dim())]
    return torch.stack(parts).sum(0).abs().mean()


def ssim_loss(prediction: Tensor, truth: Tensor) -> Tensor:
    """One minus the structural similarity, for values between 0 and 1."""
    from monai.losses import SSIMLoss

    check_shapes(prediction, truth)
    check_window(prediction)
    with torch.autocast(prediction.device.type, enabled=False):
        return SSIMLoss(prediction.dim() - 2, data_range=1.0)(_wide(prediction), _wide(truth))


def super_resolution_losses(prediction: Tensor, truth: Tensor) -> dict[str, Tensor]:
    """The five objectives of one reconstruction, by name.

    Example:
        >>> truth = torch.rand(1, 1, 16, 16)
        >>> sum(float(loss) for loss in super_resolution_losses(truth, truth).values())
        0.0
    """
    losses = (l1_loss, edge_loss, spectrum_loss, laplacian_loss, ssim_loss)
    return {name: loss(prediction, truth) for name, loss in zip(SUPER_RESOLUTION, losses, strict=True)}


def check_window(images: Tensor) -> None:
    """Raise ValueError unless the window of the structural similarity fits into images [n, channels, ...]."""
    if min(images.shape[2:]) < WINDOW:
        raise ValueError(f"SSIM needs {WINDOW} pixels or more along each axis, got {list(images.shape[2:])}")


def check_shapes(prediction: Tensor, truth: Tensor) -> None:
    if prediction.shape != truth.shape:
        raise ValueError(f"prediction must have the truth's shape {list(truth.shape)}, got {list(prediction.shape)}")


def _difference(prediction: Tensor, truth: Tensor) -> Tensor:
    check_shapes(prediction, truth)
    return prediction - truth


def _wide(values: Tensor) -> Tensor:
    return values if values.dtype == torch.float64 else values.float()


def _filter(values: Tensor, axis: int, taps: tuple[float, float, float]) -> Tensor:
    """Three taps along an axis, with its ends repeated."""
    length = values.shape[axis]
    first, last = values.narrow(axis, 0, 1), values.narrow(axis, length - 1, 1)
    before = torch.cat([first, values.narrow(axis, 0, length - 1)], axis)
    after = torch.cat([values.narrow(axis, 1, length - 1), last], axis)
    return taps[0] * before + taps[1] * values + taps[2] * after
