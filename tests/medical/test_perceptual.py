"""LPIPS and DISTS: published numbers, and what a distance must be. The weights come from the data folder."""

import os
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from madamoo.medical import DISTS, LPIPS, Features

FOLDER = Path(os.environ.get("MADAMOO_DATA", "")) / "perceptual"
here = pytest.mark.skipif(
    "MADAMOO_DATA" not in os.environ or not FOLDER.is_dir(), reason="no folder perceptual in MADAMOO_DATA"
)


def lpips(network="alex"):
    name = {"alex": "alexnet", "vgg": "vgg16"}[network]
    return LPIPS(FOLDER / f"{name}_features_fp16.npz", FOLDER / f"lpips_v0.1_lin_{network}.pth", network)


def dists():
    return DISTS(FOLDER / "vgg16_features_fp16.npz", FOLDER / "dists_weights.pt")


@here
def test_lpips_is_the_published_number():
    """torchmetrics documents 0.3493 for the original package (vgg, seed 123) on noise.

    The noise is drawn after the network: VGG16's own weights and the five heads come before it.
    """
    filters = (3, 64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512)
    drawn = sum(9 * a * b + b for a, b in pairwise(filters))
    drawn += sum(a * b + b for a, b in ((25088, 4096), (4096, 4096), (4096, 1000)))
    drawn += 64 + 128 + 256 + 512 + 512
    generator = torch.Generator().manual_seed(123)
    while drawn:
        part = min(drawn, 2**23)
        torch.empty(part).uniform_(generator=generator)
        drawn -= part
    a, b = (torch.rand(10, 3, 100, 100, generator=generator) for _ in range(2))
    assert lpips("vgg")(a, b).mean().item() == pytest.approx(0.3493, abs=6e-5)


@here
def test_dists_is_the_published_number():
    """torchmetrics documents 0.1882, with seed 42."""
    generator = torch.Generator().manual_seed(42)
    a, b = (torch.rand(10, 3, 100, 100, generator=generator) for _ in range(2))
    assert dists()(a, b).mean().item() == pytest.approx(0.1882, abs=6e-5)


@pytest.fixture(scope="module")
def picture():
    """Something with edges and texture, so that blur and contrast mean something."""
    generator = torch.Generator().manual_seed(0)
    coarse = F.interpolate(torch.rand(1, 1, 8, 8, generator=generator), size=(64, 64), mode="nearest")
    return (0.7 * coarse + 0.3 * torch.rand(1, 1, 64, 64, generator=generator)).clamp(0, 1)


def noisy(x, amount):
    return x + amount * torch.randn(x.shape, generator=torch.Generator().manual_seed(1))


def blurred(x, amount):
    width = int(amount)
    return F.avg_pool2d(F.pad(x, [width] * 4, mode="replicate"), 2 * width + 1, 1)


def flat(x, amount):
    return x.mean() + (1 - amount) * (x - x.mean())


@here
@pytest.mark.parametrize("make", [lpips, dists])
def test_they_are_distances_that_grow_with_what_was_done_to_the_image(make, picture):
    distance = make()
    assert distance(picture, picture).abs().item() < 1e-6
    other = noisy(picture, 0.1).clamp(0, 1)
    assert distance(picture, other).item() == pytest.approx(distance(other, picture).item(), rel=1e-5)
    for change, amounts in ((noisy, (0.05, 0.1, 0.2, 0.4)), (blurred, (1, 2, 4)), (flat, (0.2, 0.5, 0.8))):
        found = [distance(change(picture, amount), picture).item() for amount in amounts]
        assert found == sorted(found) and found[0] > 1e-4, change
    x = other.clone().requires_grad_()
    distance(x, picture).sum().backward()
    assert x.grad.abs().sum() > 0 and not list(distance.parameters())


def test_gradients_are_finite_where_all_features_are_zero(tmp_path):
    arrays, before = {}, 3
    for k, (channels, kernel) in enumerate(((64, 11), (192, 5), (384, 3), (256, 3), (256, 3))):
        arrays[f"conv{k}.weight"] = np.full((channels, before, kernel, kernel), 1e-3, dtype=np.float32)
        arrays[f"conv{k}.bias"] = np.zeros(channels, dtype=np.float32)
        before = channels
    np.savez(tmp_path / "alex.npz", **arrays)
    torch.save(
        {f"lin{k}.model.1.weight": torch.ones(1, n, 1, 1) for k, n in enumerate((64, 192, 384, 256, 256))},
        tmp_path / "h.pth",
    )
    distance = LPIPS(tmp_path / "alex.npz", tmp_path / "h.pth")
    x = torch.rand(1, 1, 64, 64, generator=torch.Generator().manual_seed(0))
    x[..., 32:] = 0  # the input of the network is negative here, and all its features are zero
    x.requires_grad_()
    distance(x, torch.full_like(x, 0.9)).sum().backward()
    assert x.grad.isfinite().all() and x.grad.abs().sum() > 0


@here
def test_a_checkpoint_in_torchvisions_layout_is_the_same(tmp_path, picture):
    with np.load(FOLDER / "alexnet_features_fp16.npz") as stored:
        arrays = {name: torch.from_numpy(stored[name]).float() for name in stored}
    places = (0, 3, 6, 8, 10)  # of AlexNet's convolutions among its layers
    state = {
        f"features.{place}.{part}": arrays[f"conv{k}.{part}"]
        for k, place in enumerate(places)
        for part in ("weight", "bias")
    }
    torch.save({**state, "classifier.1.weight": torch.zeros(2, 2)}, tmp_path / "alexnet.pth")
    same = LPIPS(tmp_path / "alexnet.pth", FOLDER / "lpips_v0.1_lin_alex.pth")
    other = noisy(picture, 0.2)
    assert torch.equal(same(picture, other), lpips()(picture, other))
    with pytest.raises(ValueError, match="has 5 convolutions, vgg has 13"):
        LPIPS(tmp_path / "alexnet.pth", FOLDER / "lpips_v0.1_lin_vgg.pth", "vgg")
    with pytest.raises(ValueError, match=r"lacks lin1.model.1.weight with 192 numbers: it is no head of alex"):
        LPIPS(tmp_path / "alexnet.pth", FOLDER / "lpips_v0.1_lin_vgg.pth")
    with pytest.raises(ValueError, match="images must have 32 pixels a side or more"):
        same(torch.zeros(1, 1, 31, 40), torch.zeros(1, 1, 31, 40))
    with pytest.raises(ValueError, match=r"images must be \[n, 1 or 3, height, width\]"):
        same(torch.zeros(1, 2, 40, 40), torch.zeros(1, 2, 40, 40))
    with pytest.raises(ValueError, match="both batches must have one shape"):
        same(torch.zeros(1, 1, 40, 40), torch.zeros(2, 1, 40, 40))


def test_files_that_hold_no_weights_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no file .*none\.npz"):
        Features("alex", tmp_path / "none.npz")
    (tmp_path / "bad.pth").write_bytes(b"not a checkpoint")
    with pytest.raises(ValueError, match=r"bad\.pth cannot be read as weights"):
        Features("alex", tmp_path / "bad.pth")
    torch.save([1, 2], tmp_path / "list.pth")
    with pytest.raises(ValueError, match=r"list\.pth holds no tensors by name"):
        Features("alex", tmp_path / "list.pth")
    np.savez(tmp_path / "w.npz", **{"conv0.weight": np.zeros((64, 3, 11, 11)), "conv1.bias": np.zeros(2)})
    with pytest.raises(ValueError, match=r"w\.npz has no 'conv0.bias'"):
        Features("alex", tmp_path / "w.npz")
    with pytest.raises(ValueError, match="network must be one of alex, vgg, got 'resnet'"):
        Features("resnet", tmp_path / "w.npz")
