import pytest
import torch

from madamoo import solvers


@pytest.mark.parametrize("count", [1, 2, 7])
def test_equal_weights_unless_given(count, dtype):
    assert solvers.LS().weights(torch.ones(count, dtype=dtype)).tolist() == pytest.approx([1 / count] * count)


def test_given_weights_are_taken_as_they_are(dtype):
    for given in ([0.5, 2.0, 0.0], torch.tensor([0.5, 2.0, 0.0])):
        found = solvers.LS(given).weights(torch.ones(3, dtype=dtype))
        assert found.tolist() == [0.5, 2.0, 0.0] and found.dtype == dtype


def test_it_does_not_share_memory_with_what_was_given():
    given = torch.tensor([0.5, 0.5], dtype=torch.float64)
    solver = solvers.LS(given)
    given[0] = 9.0
    assert solver.weights(torch.ones(2)).tolist() == [0.5, 0.5]


@pytest.mark.parametrize(
    "weights, message",
    [
        ([-0.1, 1.0], "weights must be finite and not negative"),
        ([float("nan"), 1.0], "weights must be finite"),
        ([0.0, 0.0], "weights must not sum to zero"),
        ([], "weights must be a vector"),
        ([[0.5, 0.5]], "weights must be a vector"),
    ],
)
def test_weights_are_checked(weights, message):
    with pytest.raises(ValueError, match=message):
        solvers.LS(weights)


def test_the_number_of_objectives_is_checked():
    with pytest.raises(ValueError, match=r"weights must have 3 entries, one per objective, got \[0.5, 0.5\]"):
        solvers.LS([0.5, 0.5]).weights(torch.ones(3))
    solver = solvers.LS([0.5, 0.5])
    solver.weights(torch.ones(2))
    with pytest.raises(ValueError, match="LS was set up for 2 objectives, got 3"):
        solver.weights(torch.ones(3))


def test_missing_objectives_leave_the_others_as_they_are():
    found = solvers.LS([0.2, 0.3, 0.5]).solve(torch.tensor([1.0, torch.nan, 1.0]), present=[0, 2])
    assert found.tolist() == pytest.approx([0.2, 0.0, 0.5])
