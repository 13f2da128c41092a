"""Learning-rate annealing against the formula written out, on gradients that are known in closed form."""

import numpy as np
import pytest
import torch

from madamoo import MAdam, MultiObjective, PreferenceMetric, solvers
from madamoo.solvers import LRA


def linear_losses(w, seed):
    """Mean squares of linear residuals A w - b: the gradient is (2 / n) A'(A w - b)."""
    rng = np.random.default_rng(seed)
    matrices = [rng.normal(size=(n, 6)) * scale for n, scale in [(9, 30.0), (5, 1.0), (4, 0.1)]]
    systems = [(A, A @ np.ones(6)) for A in matrices]  # solved by w = 1
    losses = [((torch.from_numpy(A) @ w - torch.from_numpy(b)) ** 2).mean() for A, b in systems]
    at = w.detach().numpy()
    return losses, [2 / len(b) * A.T @ (A @ at - b) for A, b in systems]


def test_weights_follow_the_formula_in_training():
    for seed in range(3):
        w = torch.nn.Parameter(torch.zeros(6, dtype=torch.float64))
        opt = MultiObjective(torch.optim.SGD([w], lr=1e-4), LRA(decay=0.7))
        expected = np.ones(3)
        for _ in range(6):
            opt.zero_grad()
            losses, g = linear_losses(w, seed)
            opt.backward(losses)
            for i in (1, 2):
                expected[i] = 0.7 * expected[i] + 0.3 * np.abs(g[0]).max() / np.abs(expected[i] * g[i]).mean()
            np.testing.assert_allclose(opt.weights.numpy(), expected, rtol=1e-12)
            np.testing.assert_allclose(w.grad.numpy(), expected @ np.stack(g), rtol=1e-9)
            opt.step()


def test_several_residuals_keep_weight_one_and_the_largest_entry_counts():
    found = LRA(["pde_v", "pde_u"])
    found.name_objectives(["pde_u", "data", "pde_v"], ordered=False)
    statistics = {"max_abs": torch.tensor([3.0, 9.0, 8.0]), "mean_abs": torch.tensor([1.0, 4.0, 1.0])}
    weights = found.solve(torch.ones(3, dtype=torch.float64), statistics=statistics)
    np.testing.assert_allclose(weights, [1.0, 0.9 + 0.1 * 8 / 4, 1.0])
    by_default = LRA()
    by_default.name_objectives(["pde_u", "data", "pde_v"], ordered=False)
    assert torch.equal(by_default.solve(torch.ones(3, dtype=torch.float64), statistics=statistics), weights)


def test_an_objective_or_a_residual_without_gradient_leaves_the_weights():
    ones = torch.ones(2, dtype=torch.float64)
    for max_abs, mean_abs in [((0.0, 1.0), (0.0, 1.0)), ((2.0, 0.0), (1.0, 0.0))]:
        statistics = {"max_abs": torch.tensor(max_abs), "mean_abs": torch.tensor(mean_abs)}
        assert LRA().solve(ones, statistics=statistics).tolist() == [1.0, 1.0]


def test_between_two_looks_a_step_is_one_pass_and_weights_stay():
    w = torch.nn.Parameter(torch.zeros(6, dtype=torch.float64))
    opt = MAdam([w], solver=LRA(every=3))
    seen = []
    for _ in range(6):
        opt.zero_grad()
        wanted = opt.solver.wants_rows
        opt.backward(linear_losses(w, 0)[0])
        opt.step()
        seen.append((wanted, opt.weights.tolist()))
    assert [wanted for wanted, _ in seen] == [True, False, False] * 2
    assert seen[0][1] == seen[1][1] == seen[2][1] != seen[3][1] == seen[4][1]


def test_it_composes_with_every_estimator():
    for estimator in ("full", "pair", "separable", "marginal"):
        w = torch.nn.Parameter(torch.zeros(6, dtype=torch.float64))
        opt = MAdam([w], lr=3e-2, solver="lra", metric=PreferenceMetric(estimator, rampup=5))
        for _ in range(100):
            opt.zero_grad()
            opt.backward(linear_losses(w, 1)[0])
            opt.step()
        assert (w.detach() - 1).norm() < 0.3 * 6**0.5 and opt.weights[2] > 1.0, estimator


def test_errors_name_what_was_found():
    with pytest.raises(ValueError, match="No name begins with 'pde': give reference=, one or more of 'a', 'b'"):
        LRA().name_objectives(["a", "b"], ordered=False)
    with pytest.raises(ValueError, match="reference names 'c', but the objectives are 'a', 'b'"):
        LRA("c").name_objectives(["a", "b"], ordered=False)
    with pytest.raises(ValueError, match="reference is given by position, but the losses come by name"):
        LRA(0).name_objectives(["a", "b"], ordered=False)
    with pytest.raises(ValueError, match="reference names 'a', but the objectives are without names: give positions"):
        LRA("a").ensure(2)
    with pytest.raises(ValueError, match="reference must be different names, or different positions"):
        solvers.get("lra", reference=("a", 1))
    with pytest.raises(ValueError, match="decay must be at least 0 and below 1, got 1"):
        LRA(decay=1)
