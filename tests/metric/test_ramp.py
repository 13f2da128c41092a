"""The metric that a curvature gives, and the ramp-up to it."""

import math

import pytest
import torch

from madamoo.gradients import Block
from madamoo.metric._ramp import metric_of, rampup_steps


def test_steps_of_a_ramp_up():
    assert rampup_steps(300, None) == 300 and rampup_steps(0, None) == 0
    assert rampup_steps(0.25, 200) == 50 and rampup_steps(1e-6, 10) == 1
    with pytest.raises(ValueError, match="give total_steps"):
        rampup_steps(0.25, None)
    with pytest.warns(UserWarning, match="longer than the run"):
        rampup_steps(300, 100)


@pytest.mark.parametrize("ramp", ["largest", "paper"])
def test_the_metric_from_its_curvature(ramp):
    """Per tensor, with loops: M = alpha sqrt(max(C, floor d^2) + eps) + (1 - alpha) s."""
    generator = torch.Generator().manual_seed(0)
    sizes, eps = [3, 0, 1, 4], 1e-3
    block = Block(tuple(map(torch.empty, sizes)))
    for alpha in (0.0, 0.25, 1.0):
        for floor in (None, 0.0, 0.1):
            d, C = torch.randn(2, 8, generator=generator, dtype=torch.float64)
            C = C.abs() if floor is None else C  # None says that it is above the floor
            wanted, start = [], 0
            for size in sizes:
                roots = []
                for k in range(start, start + size):
                    least = -math.inf if floor is None else floor * float(d[k]) ** 2
                    roots.append(math.sqrt(max(float(C[k]), least) + eps))
                start += size
                s = {"largest": max, "paper": lambda r: 0.5}[ramp](roots or [0.0])
                wanted += [alpha * root + (1 - alpha) * s for root in roots]
            found = metric_of(d, C.clone(), block, floor=floor, eps=eps, alpha=alpha, ramp=ramp, unit=0.5)
            torch.testing.assert_close(found, torch.tensor(wanted, dtype=torch.float64))


def test_without_an_average_there_is_no_curvature():
    d = torch.tensor([3.0, 0.0])
    found = metric_of(d, None, Block((torch.empty(2),)), floor=0.25, eps=1e-2, alpha=1.0, ramp="largest")
    torch.testing.assert_close(found, torch.tensor([2.26, 0.01]).sqrt())
    assert d.tolist() == [3.0, 0.0]
