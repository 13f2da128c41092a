import numpy as np
import pytest
import torch

from madamoo.demo.contenders import ADAM, CONTENDERS, CONTROL, MADAM
from madamoo.demo.quadratics import FIXED, PHASES, STARTS, objectives, optimum, run_fixed, run_switching, scalarised

PREFERENCES = [(1.0, 0.0), (0.9, 0.1), (0.5, 0.5), (0.25, 0.5), (0.1, 0.9)]


def test_objectives_are_those_of_the_paper() -> None:
    x1, x2 = 0.3, -0.7
    expected = [
        0.55 * (x1 - 1.5) ** 2 + 0.9 * (x1 - 1.5) * x2 + 0.55 * x2**2,
        0.55 * (x1 + 1.5) ** 2 - 0.9 * (x1 + 1.5) * x2 + 0.55 * x2**2,
    ]
    assert objectives(torch.tensor([x1, x2], dtype=torch.float64)).tolist() == pytest.approx(expected)


@pytest.mark.parametrize("preference", PREFERENCES)
def test_optimum_is_a_minimum(preference: tuple[float, float]) -> None:
    x = optimum(preference).requires_grad_()
    (torch.tensor(preference, dtype=torch.float64) @ objectives(x)).backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, torch.zeros_like(x), atol=1e-12, rtol=0)
    for shift in ([0.1, 0.0], [0.0, 0.1], [-0.1, 0.1]):
        there = optimum(preference) + torch.tensor(shift, dtype=torch.float64)
        assert scalarised(there, preference) > scalarised(optimum(preference), preference)


@pytest.mark.parametrize("contender", CONTENDERS)
def test_switching_measures_the_gap_along_the_path(contender: str) -> None:
    run = run_switching(contender, steps=7)
    assert run.path.shape == (len(PHASES), 8, 2)
    assert run.gaps.shape == (len(PHASES), 7)
    np.testing.assert_array_equal(run.path[1:, 0], run.path[:-1, -1])
    assert (run.gaps > 0).all()
    last = torch.from_numpy(run.path[-1, -1])
    assert run.phase_ends[-1] == pytest.approx(
        scalarised(last, PHASES[-1]) - scalarised(optimum(PHASES[-1]), PHASES[-1])
    )
    assert run.mean_after_switches == pytest.approx(np.mean(run.phase_means[1:]))


@pytest.mark.parametrize("preference", FIXED)
def test_fixed_runs_begin_together_and_come_closer(preference: tuple[float, float]) -> None:
    runs = [run_fixed(contender, preference, steps=40) for contender in (ADAM, MADAM)]
    for run in runs:
        np.testing.assert_array_equal(run.paths[:, 0], STARTS)
        assert run.distances[-1] < run.distances[0]


def test_control_is_madam_when_the_preference_is_fixed() -> None:
    control, madam = (run_fixed(contender, FIXED[0], steps=20) for contender in (CONTROL, MADAM))
    np.testing.assert_allclose(control.paths, madam.paths, rtol=1e-9)
