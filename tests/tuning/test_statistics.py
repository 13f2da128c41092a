"""The comparison at the end, against scipy and against its definition."""

import math
import random
from itertools import product

import pytest
from scipy import stats

from madamoo.tuning._statistics import compare, gains, p_value


def test_the_p_value_is_that_of_the_paired_t_test():
    draw = random.Random(0).gauss
    for count in (2, 3, 10):
        a, b = ([draw(0, 1) for _ in range(count)] for _ in range(2))
        assert p_value(gains(a, b, higher_is_better=True)) == pytest.approx(stats.ttest_rel(a, b).pvalue)


def test_with_a_run_that_diverged_it_is_that_of_the_sign_test():
    found = gains([1.0, 1.0, 1.0, 1.0, math.nan], [2.0, 2.0, 2.0, math.nan, 3.0], higher_is_better=True)
    assert found == [1.0, 1.0, 1.0, -math.inf, math.inf]
    assert p_value(found) == pytest.approx(stats.binomtest(4, 5).pvalue)
    (one,) = compare([found])
    assert one.gain is None and one.wins == 4 and not one.distinct


def test_two_that_diverged_are_level():
    assert gains([math.nan], [math.nan], higher_is_better=False) == [0.0]


def test_a_lower_loss_is_a_gain_and_so_is_a_higher_accuracy():
    assert gains([2.0], [1.5], higher_is_better=False) == [0.5]
    assert gains([0.5], [0.75], higher_is_better=True) == [0.25]


def test_numbers_without_spread():
    assert p_value([0.0, 0.0]) == 1.0
    assert p_value([0.5, 0.5]) == 0.0


def test_one_finalist_has_the_usual_95_per_cent_interval():
    values = [0.2, 0.5, -0.1, 0.4]
    (found,) = compare([values])
    low, high = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))


def test_holms_correction_and_the_intervals_agree():
    """By its definition: the k-th smallest p-value is held against level / (count - k), up to the first that fails."""
    draw = random.Random(1).gauss
    seen = set()
    for shift, count in product((0.0, 0.5, 1.0), (1, 2, 3, 4)):
        for _ in range(30):
            finalists = [[draw(shift, 1) for _ in range(6)] for _ in range(count)]
            found = compare(finalists)
            ordered = sorted(map(p_value, finalists))
            rejected = next((k for k, p in enumerate(ordered) if p > 0.05 / (count - k)), count)
            assert sum(one.distinct for one in found) == rejected
            for one in found:
                assert one.distinct == (one.p <= 0.05) == (not one.low <= 0 <= one.high)
                assert (one.better, one.worse) == ((one.gain > 0), (one.gain < 0)) if one.distinct else True
            seen.add(rejected)
    assert seen == {0, 1, 2, 3, 4}
