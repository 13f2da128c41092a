import math

import numpy as np
import pytest

from madamoo.demo.quadratics import SwitchingRun
from madamoo.demo.summary import checkpoints, differences, digits_table, estimate, finals, switching_table
from madamoo.demo.training import SOLVERS, DigitsRun, plan
from madamoo.figures.experiments import PHASES
from madamoo.presentation.style import ADAM, CONTROL, MADAM


def runs(seeds: int) -> list[DigitsRun]:
    """MAdam is better by 1 point on the first seed, by 2 on the second, and so on; the control by half a point."""
    gain = {ADAM: 0.0, CONTROL: 0.5, MADAM: 1.0}
    return [
        DigitsRun(solver, contender, seed, [[50.0, 60.0], [90.0 + gain[contender] * (seed + 1), 92.0]], 1.0)
        for solver, contender, seed in plan(seeds)
    ]


def test_estimate_of_one_seed_claims_no_precision() -> None:
    assert estimate([3.0]).mean == 3.0 and math.isnan(estimate([3.0]).error)
    e = estimate([1.0, 2.0, 3.0])
    assert (e.mean, e.deviation, e.error) == pytest.approx((2.0, 1.0, 1 / math.sqrt(3)))


def test_differences_are_paired_by_seed_whatever_the_order() -> None:
    mixed = runs(3)[::-1]
    assert differences(mixed, "UW", MADAM, ADAM) == pytest.approx([0.5, 1.0, 1.5])
    assert finals(mixed, "LS", CONTROL) == finals(mixed, "LS", MADAM)


def test_digits_table_says_what_its_numbers_are() -> None:
    for seeds in (1, 3):
        check_digits_table(seeds)


def check_digits_table(seeds: int) -> None:
    table = digits_table(runs(seeds))
    assert [row[0] for row in table.rows] == list(SOLVERS)
    assert all(len(row) == len(table.header) for row in table.rows)
    assert "same learning rate" in table.caption
    assert ("±" in table.rows[0][1]) == (seeds > 1)
    assert table.rows[1][4].startswith("+0.50" if seeds == 1 else "+1.00")


def test_switching_table_leaves_the_first_phase_out_of_the_mean() -> None:
    gaps = np.full((len(PHASES), 4), 0.25)
    gaps[0] = 100.0
    table = switching_table([SwitchingRun(ADAM, np.zeros((4 * len(PHASES) + 1, 2)), gaps)])
    assert len(table.rows) == len(PHASES) + 1
    assert table.rows[-1][1:] == ["0.25", "0.25"]


def test_checkpoints() -> None:
    assert [checkpoints(steps) for steps in (200, 1, 5)] == [[25, 50, 100, 200], [1], [1, 2, 5]]
