"""Points of the unit cube: even where they should be, new with a generator, the same without."""

import pytest
import torch
from scipy.stats import qmc

from madamoo.pinn import SAMPLERS, unit_points


def test_points_are_spread_as_each_design_promises():
    for dim in (1, 2, 3, 5):
        drawn = torch.Generator().manual_seed(0)
        pseudo = qmc.discrepancy(unit_points(512, dim, "pseudo", drawn).numpy())
        for sampler in SAMPLERS:
            for generator in (None, torch.Generator().manual_seed(1)):
                x = unit_points(512, dim, sampler, generator)
                assert x.shape == (512, dim) and x.dtype == torch.float64
                assert bool(((x >= 0) & (x < 1)).all())
                if sampler in ("sobol", "halton", "hammersley"):
                    assert qmc.discrepancy(x.numpy()) < pseudo / 3, (sampler, dim)
                if sampler == "lhs":
                    for column in x.T:
                        assert sorted((column * 512).floor().int().tolist()) == list(range(512))


def test_the_plain_sequences_repeat_and_a_generator_moves_on():
    generator = torch.Generator().manual_seed(0)
    for sampler in ("uniform", "sobol", "halton", "hammersley"):
        assert torch.equal(unit_points(50, 2, sampler), unit_points(50, 2, sampler))
        assert not torch.equal(unit_points(50, 2, sampler, generator), unit_points(50, 2, sampler, generator))


def test_halton_is_scipys():
    wanted = qmc.Halton(4, scramble=False).random(101)[1:]
    torch.testing.assert_close(unit_points(100, 4, "halton"), torch.from_numpy(wanted))


def test_bad_requests_say_what_is_right():
    with pytest.raises(ValueError, match=r"sampler must be one of pseudo.*got 'grid'"):
        unit_points(10, 2, "grid")
    with pytest.raises(ValueError, match="count must be at least 1, got 0"):
        unit_points(0, 2, "pseudo")
    with pytest.raises(ValueError, match="take 'sobol'"):
        unit_points(10, 40, "halton")
