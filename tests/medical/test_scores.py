"""Scores against brute force, and what they are where a mask is empty."""

import math

import numpy as np
import pytest
import torch
from scipy import ndimage
from scipy.spatial.distance import cdist

from madamoo import medical


def boundary(mask):
    return mask & ~ndimage.binary_erosion(mask)


def brute_hd95(a, b, spacing):
    points = [np.argwhere(boundary(mask)) * np.array(spacing) for mask in (a, b)]
    distances = cdist(*points)
    return max(np.percentile(distances.min(0), 95), np.percentile(distances.min(1), 95))


def blobs(shape, seed):
    noise = np.random.default_rng(seed).normal(size=shape)
    return ndimage.gaussian_filter(noise, 2) > 0


@pytest.mark.parametrize("spacing", [(1.0, 1.0), (0.5, 2.0)])
def test_hd95_is_that_of_all_pairs_of_boundary_points(spacing):
    masks = [(blobs((24, 20), seed), blobs((24, 20), seed + 100)) for seed in range(3)]
    found = medical.hd95(*(torch.from_numpy(np.stack(side)) for side in zip(*masks, strict=True)), spacing=spacing)
    for value, (a, b) in zip(found.tolist(), masks, strict=True):
        assert value == pytest.approx(brute_hd95(a, b, spacing), rel=1e-5)
    assert medical.hd95(torch.from_numpy(masks[0][0])[None], torch.from_numpy(masks[0][0])[None]).item() == 0


def test_dice_is_that_of_the_definition():
    a, b = (torch.from_numpy(blobs((3, 16, 16), seed)) for seed in (1, 2))
    for value, x, y in zip(medical.dice_score(a, b).tolist(), a, b, strict=True):
        assert value == pytest.approx(2 * int((x & y).sum()) / int(x.sum() + y.sum()))


def test_empty_masks_have_the_scores_that_are_documented():
    some, none = torch.zeros(1, 4, 5, dtype=torch.bool), torch.zeros(1, 4, 5, dtype=torch.bool)
    some[0, 1, 1] = True
    assert medical.dice_score(none, none).item() == 1 and medical.hd95(none, none).item() == 0
    for pair in ((some, none), (none, some)):
        assert medical.dice_score(*pair).item() == 0
        assert medical.hd95(*pair).item() == pytest.approx(5.0)  # the diagonal of 4x5 pixels: 3 and 4 steps
        assert medical.hd95(*pair, spacing=(2.0, 1.0)).item() == pytest.approx(math.hypot(6, 4))


def test_psnr_mae_and_ssim():
    truth = torch.rand(2, 1, 24, 24, generator=torch.Generator().manual_seed(0)) * 0.8
    shifted = truth + torch.tensor([0.1, 0.01]).view(2, 1, 1, 1)
    assert medical.psnr(shifted, truth).tolist() == pytest.approx([20.0, 40.0], rel=1e-4)
    assert medical.mae(shifted, truth).tolist() == pytest.approx([0.1, 0.01], rel=1e-4)
    assert medical.psnr(truth, truth).tolist() == [100.0, 100.0]
    assert medical.ssim(truth, truth).tolist() == pytest.approx([1.0, 1.0])
    one, other = medical.ssim(shifted, truth).tolist()
    assert one < other < 1


def test_what_does_not_fit_is_refused():
    flat, deep = torch.zeros(2, 24, 24), torch.zeros(2, 1, 24, 24)  # torch would broadcast these
    for score in (medical.dice_score, medical.hd95, medical.mae, medical.psnr, medical.ssim):
        with pytest.raises(
            ValueError, match=r"prediction must have the truth's shape \[2, 1, 24, 24\], got \[2, 24, 24\]"
        ):
            score(flat, deep)
    with pytest.raises(ValueError, match=r"SSIM needs 11 pixels or more along each axis, got \[10, 24\]"):
        medical.ssim(deep[:, :, :10], deep[:, :, :10])
    with pytest.raises(ValueError, match="spacing must have 2 numbers"):
        medical.hd95(torch.zeros(1, 4, 4), torch.zeros(1, 4, 4), spacing=(1, 1, 1))
