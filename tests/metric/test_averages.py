"""The pieces from which every curvature is made: coefficients, decay and bias, and the shrinking of large weights."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from madamoo.direction import combine
from madamoo.gradients import Block, HeadRows, SharedRows
from madamoo.metric._averages import (
    Averaging,
    all_pairs,
    check_pairs,
    coefficient,
    coefficients,
    effective_weights,
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
    assert coefficients(x, [(0, 0), (0, 1)], (), bias, Averaging(0.9)) == [0.5, -2.0]
    assert coefficients(x, [(0, 0), (0, 1)], (), bias, Averaging(0.9, shrink=0.5)) == [0.125, -0.5]
    assert coefficients(x, [(0, 1)], (), bias, Averaging(0.9, norms={0: 3.0})) == [
        0.0
    ]  # the norm of the other was never measured
    assert coefficients(direction([0.5, -2.0], (1, 0)), [None], (1, 0), bias, Averaging(0.9)) == [16.0, 1.0]
    assert coefficients(direction([0.5, -2.0], (1, 0)), [], (1, 0), bias, Averaging(0.9)) == []
    assert effective_weights(x, {1: 3.0}) == [0.0, -6.0] and effective_weights(x, None) == (0.5, -2.0)


def test_decay_and_bias_follow_the_steps_between_measurements():
    how = Averaging(0.9, every=3)
    assert how.decay == pytest.approx(0.729) and how.bias(2) == pytest.approx(1 - 0.9**6)
    assert Averaging(0.9, bias_correction=False).bias(1) == 1.0


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
