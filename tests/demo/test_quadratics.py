import numpy as np
import pytest

from madamoo.demo.quadratics import FIXED, LR, run_fixed, run_switching
from madamoo.demo.training import CONTENDERS
from madamoo.figures.experiments import PHASES, STARTS, descend, gap
from madamoo.presentation.style import ADAM, CONTROL, MADAM


def test_switching_measures_the_gap_along_the_path() -> None:
    for contender in CONTENDERS:
        run = run_switching(contender, steps=7)
        assert run.path.shape == (7 * len(PHASES) + 1, 2)
        assert run.gaps.shape == (len(PHASES), 7)
        assert (run.gaps > 0).all()
        assert run.phase_ends[-1] == pytest.approx(float(gap(run.path[-1], PHASES[-1])))
        assert run.gaps[1, 0] == pytest.approx(float(gap(run.path[8], PHASES[1])))
        assert run.mean_after_switches == pytest.approx(np.mean(run.phase_means[1:]))


def test_fixed_runs_begin_together_and_come_closer() -> None:
    for preference in FIXED:
        for contender in (ADAM, MADAM):
            run = run_fixed(contender, preference, steps=40)
            np.testing.assert_array_equal(run.paths[:, 0], STARTS)
            assert run.distances[-1] < run.distances[0]
    control, madam = (run_fixed(contender, FIXED[0], steps=20) for contender in (CONTROL, MADAM))
    np.testing.assert_allclose(control.paths, madam.paths, rtol=1e-9)  # under a fixed preference they are one
    alone = descend(MADAM, STARTS[1:2], [FIXED[0]] * 20, rates=(LR,))[0, :, 0]
    np.testing.assert_array_equal(madam.paths[1], alone)
