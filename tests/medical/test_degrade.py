import numpy as np
import pytest
import torch

from madamoo import medical


def test_a_volume_is_reduced_to_means_of_the_two_middle_voxels_and_enlarged():
    """At a factor of 4, trilinear reduction takes the mean of voxels 1 and 2 of each four, along every axis."""
    volume = torch.rand(16, 16, 16, generator=torch.Generator().manual_seed(0))
    blocks = volume.view(4, 4, 4, 4, 4, 4)[:, 1:3, :, 1:3, :, 1:3].mean((1, 3, 5))
    # Voxel k of the reduced volume lies at 4k + 1.5; in between values are linear, beyond the ends constant.
    places = 4 * np.arange(4) + 1.5
    enlarge = torch.tensor(np.stack([np.interp(np.arange(16), places, row) for row in np.eye(4)], 1)).float()
    expected = torch.einsum("ai,bj,ck,ijk->abc", enlarge, enlarge, enlarge, blocks)
    assert torch.allclose(medical.degrade(volume), expected, atol=1e-6)
    assert torch.equal(medical.degrade(volume, 1), volume)
    ramp = torch.arange(32.0).view(32, 1, 1).expand(32, 8, 8)
    assert torch.allclose(medical.degrade(ramp)[4:-4], ramp[4:-4], atol=1e-4)  # what is linear stays, but for the ends


def test_slices_of_an_enlarged_volume_are_those_of_the_whole():
    volume = torch.rand(21, 18, 25, generator=torch.Generator().manual_seed(0))
    reduced = medical.reduce_volume(volume)
    whole = torch.nn.functional.interpolate(reduced[None, None], size=volume.shape, mode="trilinear")[0, 0]
    assert reduced.shape == (5, 4, 6)
    assert torch.allclose(medical.degrade(volume), whole, atol=1e-6)
    some = torch.tensor([0, 20, 7, 7])
    assert torch.allclose(medical.enlarge(reduced, volume.shape, some), whole[some], atol=1e-6)


def test_odd_and_thin_volumes_keep_their_size():
    for shape in ((13, 30, 17), (2, 9, 40)):
        assert medical.degrade(torch.rand(shape)).shape == shape
    with pytest.raises(ValueError, match="volume must be"):
        medical.degrade(torch.rand(1, 2, 3, 4))
    with pytest.raises(ValueError, match="factor must be at least 1, got 0"):
        medical.degrade(torch.rand(2, 3, 4), 0)


def test_intensities_are_clipped_scaled_and_restored():
    values = torch.arange(1001.0).view(7, 11, 13)
    found = medical.intensity_range(values)
    assert found == pytest.approx((10.0, 990.0), abs=1e-3)
    scaled = found.scale(values)
    assert scaled.min() == 0 and scaled.max() == 1
    inside = (values > 10) & (values < 990)
    assert torch.allclose(found.restore(scaled)[inside], values[inside], atol=1e-3)
    mostly = torch.zeros(10, 10, 10)
    mostly[0, 0, 0] = 5
    assert medical.intensity_range(mostly) == (0.0, 5.0)  # both percentiles are 0
    with pytest.raises(ValueError, match="all its voxels have one value, 3"):
        medical.intensity_range(torch.full((2, 2, 2), 3.0))
    with pytest.raises(ValueError, match="values that are not finite"):
        medical.intensity_range(torch.tensor([0.0, float("nan")]))
