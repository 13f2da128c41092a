"""Not worse by more than a margin: against simulation and the definition of Holm's procedure."""

import itertools
import random

import numpy as np
import pytest

from madamoo.bench.analysis._margin import holm, p_value


@pytest.mark.parametrize("count", (2, 3, 5))
def test_the_p_value_is_uniform_where_the_truth_is_the_margin(count):
    """And smaller the further the truth lies above it."""
    draws = np.random.default_rng(count).normal(-1.0, 3.0, (4000, count))
    found = np.array([p_value(list(row)) for row in draws])
    for level in (0.05, 0.25, 0.5, 0.9):
        assert abs((found <= level).mean() - level) < 4 * np.sqrt(level * (1 - level) / 4000)
    better = np.array([p_value(list(row + 2.0)) for row in draws])
    assert (better < found).all()


def test_p_values_that_need_no_distribution():
    assert p_value([1.0]) is None and p_value([1.0, float("inf")]) is None
    assert p_value([0.0, 0.0]) == 0.0 and p_value([-2.0, -2.0]) == 1.0 and p_value([-1.0, -1.0]) == 0.5
    assert p_value([3.0, 5.0], margin=-4.0) == pytest.approx(0.5)


def test_holm_equals_the_closed_test_of_bonferroni():
    """A hypothesis is rejected if every intersection that holds it is, each tested by Bonferroni."""
    draw = random.Random(0)
    for _ in range(200):
        values = [draw.random() ** 3 for _ in range(4)]
        expected = []
        for i in range(4):
            others = [j for j in range(4) if j != i]
            subsets = (set(s) | {i} for k in range(4) for s in itertools.combinations(others, k))
            expected.append(all(min(values[j] for j in subset) <= 0.05 / len(subset) for subset in subsets))
        assert holm(values) == expected


def test_a_cell_without_a_p_value_counts_and_is_not_rejected():
    assert holm([0.02]) == [True] and holm([0.02, None]) == [True, False] and holm([0.04, None]) == [False, False]
    assert holm([]) == []
