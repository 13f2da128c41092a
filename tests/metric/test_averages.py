"""The pieces from which every curvature is made: coefficients, the shrinking of large weights, and the metric."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from madamoo.direction import combine
from madamoo.gradients import Block, HeadRows, SharedRows
from madamoo.metric._averages import (
    all_pairs,
    check_pairs,
    coefficient,
    coefficients,
    effective_weights,
    metric_of,
    shrink_for,
)

PARAMS = tuple(torch.empty(shape) for shape in [(2,), (3,)])


def direction(weights, owners=()):
    block = Block(PARAMS, owners)
    rows = HeadRows(block, torch.ones(1, 5)) if owners else SharedRows(block, (0, 1), torch.ones(2, 5))
    return combine(rows, weights, torch.float32)


def test_pairs():
    assert all_pairs([2, 0, 1]) == [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2)] and all_pairs([]) == []
    check_pairs([[0, 0], [0, 3], (2, 2)])
    for pair in ([-1, 0], [1, 0], [-2, -2], [0], [0, 1, 2]):
        with pytest.raises(ValueError, match="have the pair"):
            check_pairs([[0, 0], pair])


def test_what_multiplies_an_average():
    weights = [0.5, -2.0, 4.0]
    assert coefficient((1, 1), weights, 0.5, 1e30) == 8.0
    assert (
        coefficient((0, 1), weights, 1.0, 1e30) == coefficient((1, 0), weights, 1.0, 1e30) == -2.0
    )  # twice: F_ij, F_ji
    assert coefficient((2, 2), weights, 1.0, 10.0) == 10.0 and coefficient((1, 2), weights, 1.0, 10.0) == -10.0


def test_what_multiplies_the_averages_of_a_block():
    """One number per pair, or one per parameter in a block of heads; with norms, those stand before the weights."""
    x, bias = direction([0.5, -2.0]), {(0, 0): 0.5, (0, 1): 1.0, None: 0.25}
    assert coefficients(x, [(0, 0), (0, 1)], (), None, bias, 1.0) == [0.5, -2.0]
    assert coefficients(x, [(0, 0), (0, 1)], (), None, bias, 0.5) == [0.125, -0.5]
    assert coefficients(x, [(0, 1)], (), {0: 3.0}, bias, 1.0) == [0.0]  # the norm of the other was never measured
    assert coefficients(direction([0.5, -2.0], (1, 0)), [None], (1, 0), None, bias, 1.0) == [16.0, 1.0]
    assert coefficients(direction([0.5, -2.0], (1, 0)), [], (1, 0), None, bias, 1.0) == []
    assert effective_weights(x, {1: 3.0}) == [0.0, -6.0] and effective_weights(x, None) == (0.5, -2.0)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(weights=st.lists(st.floats(-1e30, 1e30), min_size=2, max_size=2), norm=st.none() | st.floats(0, 1e19))
def test_large_weights_are_shrunk_by_a_power_of_two(weights, norm):
    norms = None if norm is None else {0: norm, 1: norm}
    found = shrink_for(direction(weights), norms)
    total = sum(abs(w) for w in weights) * (1.0 if norm is None else norm)
    assert math.frexp(found)[0] == 0.5 and found <= 1.0
    assert total * found <= 4.0 * (1 + 1e-12)
    assert found == 1.0 or total * found > 2.0 * (1 - 1e-12)  # no more than needed


def test_weights_up_to_four_are_left_alone():
    assert shrink_for(direction([4.0, 0.0]), None) == shrink_for(direction([-2.0, 2.0]), None) == 1.0
    assert shrink_for(direction([4.0, 1e-3]), None) == 0.5 and shrink_for(direction([1.0, 0.0]), {0: 8.0}) == 0.5


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
