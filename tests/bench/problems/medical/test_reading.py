"""Batches that are read as an epoch's plan says."""

from pathlib import Path

import pytest
import torch

from madamoo.bench.problems.medical._reading import Planned
from madamoo.medical import Samples


def number(path):
    return (torch.tensor(int(path.name)),)


def planned(count):
    samples = Samples([(Path(str(k)),) for k in range(count)], number)
    return Planned(
        samples,
        2,
        lambda generator: torch.randperm(count, generator=generator)[:4].view(2, 2),
        lambda read, generator: [int(sample[0]) for sample in read],
    )


def test_an_epoch_goes_on_as_planned_and_not_with_other_samples():
    """A plan names samples by their place, so it is of no use once a file was removed."""
    whole, generator = planned(6), torch.Generator().manual_seed(0)
    first, second = (whole.draw(position, generator) for position in range(2))
    assert len({*first, *second}) == 4
    resumed = planned(6)
    resumed.load_state_dict(whole.state_dict())
    assert resumed.draw(1, generator) == second
    with pytest.raises(ValueError, match="its plan is of 6 training samples, now there are 5"):
        planned(5).load_state_dict(whole.state_dict())


@pytest.mark.parametrize("given", ["two", "-1", "1.5"])
def test_a_number_of_workers_that_is_none_is_named(monkeypatch, given):
    monkeypatch.setenv("MADAMOO_DATA_WORKERS", given)
    with pytest.raises(ValueError, match=f"MADAMOO_DATA_WORKERS must be a whole number, 0 or more, got '{given}'"):
        planned(6).draw(0, torch.Generator())
