import pytest
import torch

from madamoo import solvers


def test_the_preference_is_taken_as_it_is(dtype):
    losses = torch.ones(2, dtype=dtype)
    solver = solvers.Preference([0.9, 0.1])
    for given in ([0.2, 0.8], [3.0, 0.0]):
        found = solver.weights(losses, preference=torch.tensor(given))
        assert found.dtype == dtype and found.tolist() == pytest.approx(given)
    assert solver.weights(losses).tolist() == pytest.approx([0.9, 0.1])
    assert solvers.Preference().weights(losses).tolist() == [0.5, 0.5]


def test_missing_objectives_with_a_preference_and_without():
    losses = torch.tensor([1.0, torch.nan, 1.0], dtype=torch.float64)
    given = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
    assert solvers.Preference().solve(losses, None, given, [0, 2]).tolist() == [0.2, 0.0, 0.5]
    assert solvers.Preference(given).solve(losses, None, None, [0, 2]).tolist() == [0.2, 0.0, 0.5]


def test_the_default_is_checked():
    with pytest.raises(ValueError, match="default must be finite and not negative"):
        solvers.Preference([-1.0, 2.0])
    with pytest.raises(ValueError, match="default must have 3 entries"):
        solvers.Preference([0.5, 0.5]).solve(torch.ones(3))


def test_normalised_gradients_count_as_the_preference_says():
    rows = torch.tensor([[3.0, 4.0], [0.0, 10.0], [0.0, 0.0]], dtype=torch.float64)
    solver = solvers.Preference(normalise=True)
    given = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
    found = solver.weights(torch.ones(3, dtype=torch.float64), rows @ rows.T, given)
    assert (found[:, None] * rows).norm(dim=1).tolist() == pytest.approx([0.2, 0.3, 0.0])
    assert found[2] == 0.5  # no gradient, no division
    with pytest.raises(ValueError, match="Gram matrix"):
        solver.weights(torch.ones(3), preference=given)
