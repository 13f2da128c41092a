"""Losses against their definitions, written out in another way."""

import numpy as np
import pytest
import torch
from scipy import ndimage

from madamoo import medical


def images(shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return (torch.rand(shape, generator=generator, dtype=torch.float64) for _ in range(2))


@pytest.mark.parametrize("shape", [(2, 1, 9, 11), (1, 1, 6, 7, 8)])
def test_edges_and_laplacian_are_those_of_scipy(shape):
    a, b = images(shape)
    difference = (a - b).numpy()
    axes = range(2, len(shape))
    edges, rough = [], []
    for one in difference[:, 0]:
        edges += [
            np.abs(ndimage.sobel(one, axis, mode="nearest")).mean() / (2 * 4 ** (len(axes) - 1))
            for axis in range(len(axes))
        ]
        rough.append(np.abs(ndimage.laplace(one, mode="nearest")).mean())
    assert medical.edge_loss(a, b).item() == pytest.approx(np.mean(edges), rel=1e-9)
    assert medical.laplacian_loss(a, b).item() == pytest.approx(np.mean(rough), rel=1e-9)


def test_the_spectrum_is_that_of_the_definition():
    """A wave of amplitude A along one axis has two coefficients of A sqrt(N) / 2 each."""
    x = torch.arange(16.0)
    wave = 0.3 * torch.cos(2 * torch.pi * 3 * x / 16).expand(1, 1, 8, 16)
    expected = 2 * 0.3 * (8 * 16) ** 0.5 / 2 / (8 * 16)
    assert medical.spectrum_loss(wave, torch.zeros_like(wave)).item() == pytest.approx(expected, rel=1e-5)


def test_soft_dice_is_that_of_the_definition_also_for_an_empty_mask():
    logits = torch.randn(3, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    mask = (logits + 0.5 * torch.randn(3, 1, 8, 8, generator=torch.Generator().manual_seed(2)) > 0).float()
    mask[2] = 0
    p = logits.sigmoid()
    each = 1 - 2 * (p * mask).sum((1, 2, 3)) / (p.sum((1, 2, 3)) + mask.sum((1, 2, 3)))
    assert medical.soft_dice(logits, mask).item() == pytest.approx(each.mean().item(), abs=1e-5)
    nothing = torch.full((1, 1, 8, 8), -50.0)
    assert medical.soft_dice(nothing, torch.zeros(1, 1, 8, 8)).item() < 1e-3
    assert medical.cross_entropy(nothing, torch.zeros(1, 1, 8, 8)).item() < 1e-3


@pytest.mark.parametrize("shape", [(1, 1, 24, 24), (1, 1, 16, 16, 16)])
def test_the_five_objectives_vanish_on_the_truth_alone_and_have_gradients(shape):
    truth = torch.rand(shape, generator=torch.Generator().manual_seed(0))
    other = (truth + 0.1 * torch.randn(shape, generator=torch.Generator().manual_seed(1))).requires_grad_()
    assert all(abs(float(loss)) < 1e-6 for loss in medical.super_resolution_losses(truth, truth).values())
    losses = medical.super_resolution_losses(other, truth)
    assert tuple(losses) == medical.SUPER_RESOLUTION
    for loss in losses.values():
        assert loss > 1e-3 and torch.autograd.grad(loss, other, retain_graph=True)[0].abs().sum() > 0
    with pytest.raises(ValueError, match=r"prediction must have the truth's shape \[1, 1, 24"):
        medical.super_resolution_losses(torch.zeros(1, 1, 8, 8), torch.zeros(1, 1, 24, 24))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sixteen_bits_lose_no_more_than_their_own_rounding(dtype):
    """A mask of 65,536 pixels overflows float16; variances of an even image vanish in its rounding."""
    logits = torch.full((1, 1, 256, 256), 4.0)
    mask = torch.ones_like(logits)
    assert medical.soft_dice(logits.to(dtype), mask).item() == pytest.approx(medical.soft_dice(logits, mask).item())
    noise = torch.randn(1, 1, 24, 24, generator=torch.Generator().manual_seed(0))
    truth = (0.8 + 0.02 * noise).to(dtype)
    other = (0.8 + 0.02 * noise.flip(2)).to(dtype)
    wide = medical.super_resolution_losses(other.double(), truth.double())
    with torch.autocast("cpu", dtype=dtype):
        found = medical.super_resolution_losses(other, truth)
    for name, loss in found.items():
        assert loss.item() == pytest.approx(wide[name].item(), rel=2e-2), name


@pytest.mark.parametrize("shape", [(2, 1, 24, 24), (1, 1, 16, 16, 16)])
@pytest.mark.parametrize("value", [0.0, 0.5, 1.0])
def test_gradients_are_finite_where_there_is_no_difference(shape, value):
    same = torch.full(shape, value, requires_grad=True)
    for name, loss in medical.super_resolution_losses(same, torch.full(shape, value)).items():
        assert torch.autograd.grad(loss, same)[0].isfinite().all(), name


def test_a_loss_refuses_what_torch_would_broadcast():
    flat, deep = torch.zeros(2, 24, 24), torch.zeros(2, 1, 24, 24)
    losses = (medical.l1_loss, medical.edge_loss, medical.spectrum_loss, medical.laplacian_loss, medical.ssim_loss)
    for loss in losses:
        with pytest.raises(ValueError, match=r"prediction must have the truth's shape \[2, 1, 24, 24\]"):
            loss(flat, deep)
    with pytest.raises(ValueError, match=r"SSIM needs 11 pixels or more along each axis, got \[24, 10\]"):
        medical.ssim_loss(deep[..., :10], deep[..., :10])


def test_deep_supervision_names_each_output():
    mask = torch.zeros(1, 1, 8, 8)
    losses = medical.segmentation_losses([torch.zeros(1, 1, 8, 8)] * 3, mask)
    assert list(losses) == ["cross_entropy", "dice", "cross_entropy_1", "dice_1", "cross_entropy_2", "dice_2"]
