"""Student's t against simulation and scipy, Holm's procedure against its definition."""

import itertools
import random

import numpy as np
import pytest
from scipy import stats

from madamoo.significance import holm, t_half_width, t_p_value


def rejected(p_values):
    return [verdict.rejected for verdict in holm(p_values)]


@pytest.mark.parametrize("count", (2, 3, 5))
def test_the_p_value_is_uniform_where_the_truth_is_the_mean_that_it_is_of(count):
    """And smaller the further the truth lies above it."""
    draws = np.random.default_rng(count).normal(-1.0, 3.0, (4000, count))
    found = np.array([t_p_value(list(row), -1.0) for row in draws])
    for level in (0.05, 0.25, 0.5, 0.9):
        assert abs((found <= level).mean() - level) < 4 * np.sqrt(level * (1 - level) / 4000)
    better = np.array([t_p_value(list(row + 2.0), -1.0) for row in draws])
    assert (better < found).all()


def test_values_without_spread():
    assert t_p_value([0.0, 0.0], -1.0) == 0.0 and t_p_value([-2.0, -2.0], -1.0) == 1.0
    assert t_p_value([-1.0, -1.0], -1.0) == 0.5 and t_half_width([3.0, 3.0]) == 0.0


def test_p_value_and_interval_are_scipys():
    values = [0.2, 0.5, -0.1, 0.4]
    test = stats.ttest_1samp(values, 0.1, alternative="greater")
    assert t_p_value(values, 0.1) == pytest.approx(test.pvalue)
    low, high = stats.ttest_1samp(values, 0.0).confidence_interval(0.9)
    assert t_half_width(values, 0.1) == pytest.approx((high - low) / 2)


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
        assert rejected(values) == expected


def test_a_cell_without_a_p_value_counts_and_is_not_rejected():
    assert rejected([0.02]) == [True]
    assert rejected([0.02, None]) == [True, False] and rejected([0.04, None]) == [False, False]
    assert rejected([]) == [] and holm([None])[0].p is None
