import math

import pytest

from madamoo.bench.training._schedules import build_schedule


def test_factors():
    assert [build_schedule("constant", 4, 40)(step) for step in (0, 39)] == [1.0, 1.0]
    halve = build_schedule("halve:every=3", 4, 40)
    assert [halve(step) for step in (0, 11, 12, 23, 24)] == [1.0, 1.0, 0.5, 0.5, 0.25]
    cosine = build_schedule("cosine", 4, 40)
    assert cosine(0) == 1.0
    assert cosine(20) == pytest.approx(0.5)
    assert 0 < cosine(39) < 0.01
    assert cosine(10) == pytest.approx((1 + math.sqrt(0.5)) / 2)


def test_wrong_ones_are_refused():
    for wrong in ("linear", "halve", "halve:every=0", "halve:every=a", "cosine:every=2", "halve:x=1"):
        with pytest.raises(ValueError, match=r"schedule|every"):
            build_schedule(wrong, 4, 40)
