"""NashMTL: the bargaining equation, an independent minimiser, TorchJD's fair gradients at alpha = 1, and the edge."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from gram_matrices import KINDS, REGULAR, angle, cases, gradients, solve, units
from madamoo.solvers._nashmtl import NashMTL, bargain


def residual(J, alpha):
    """Of alpha_i (K alpha)_i = 1, relative."""
    return np.abs(alpha * (J @ (alpha @ J)) - 1).max()


def check(make, counts=(1, 2, 3, 5, 8, 20, 40)):
    for kind, J in cases((*REGULAR, "duplicates"), counts=counts, seeds=range(5)):
        alpha = solve(make(None), J)
        assert (alpha > 0).all(), kind
        assert residual(J, alpha) < 1e-8, kind


def test_the_bargaining_equation_holds():
    check(NashMTL)


def test_that_check_rejects_an_early_stop():
    class Broken(NashMTL):
        def weights(self, losses, gram=None, preference=None):
            return super().weights(losses, gram + 1e-6 * gram.diagonal().max() * torch.eye(len(gram)))

    with pytest.raises(AssertionError):
        check(Broken, counts=(3,))


def test_gradients_that_nearly_cancel():
    """The equation holds to 1e-6 as long as what is left of the gradients is more than float32 would leave."""
    for delta in (1e-1, 1e-3, 1e-5, 1e-6):
        c = -1 + delta
        J = np.array([[1.0, 0.0, 0.0], [c, np.sqrt(1 - c * c), 0.0], [0.0, 0.0, 3.0]])
        assert residual(J, solve(NashMTL(None), J)) < 1e-6


def test_it_is_the_minimum_that_another_method_finds():
    for _, J in cases(("plain", "square"), counts=(2, 4), seeds=range(3)):
        K = J @ J.T
        found = minimize(
            lambda y, K=K: 0.5 * np.exp(y) @ K @ np.exp(y) - y.sum(),
            np.zeros(len(J)),
            jac=lambda y, K=K: np.exp(y) * (K @ np.exp(y)) - 1,
            options={"gtol": 1e-10},
        )
        np.testing.assert_allclose(solve(NashMTL(None), J), np.exp(found.x), rtol=1e-6)


def test_agrees_with_torchjds_fair_gradients():
    aggregation = pytest.importorskip("torchjd.aggregation")
    for kind, J in cases(("plain", "correlated"), counts=(2, 3, 5), seeds=range(4)):
        theirs = aggregation.FairGradWeighting(1.0)(torch.from_numpy(J @ J.T)).numpy()
        assert angle(solve(NashMTL(), J) @ J, theirs @ J) < 1e-4, kind


def test_the_direction_has_length_sqrt_c_or_max_norm():
    for _, J in cases(REGULAR, counts=(1, 2, 5), seeds=range(3)):
        assert np.linalg.norm(solve(NashMTL(None), J) @ J) == pytest.approx(np.sqrt(len(J)))
        assert np.linalg.norm(solve(NashMTL(), J) @ J) == pytest.approx(1)
        assert np.linalg.norm(solve(NashMTL(0.3), J) @ J) == pytest.approx(0.3)
        assert np.linalg.norm(solve(NashMTL(100.0), J) @ J) == pytest.approx(np.sqrt(len(J)))


def test_every_objective_gains():
    for kind, J in cases(REGULAR, counts=(2, 5, 12)):
        assert (units(J) @ (solve(NashMTL(), J) @ J) > 0).all(), kind


def test_at_a_pareto_point_the_weights_are_positive_and_the_step_as_good_as_zero():
    for kind, J in cases(KINDS, counts=(2, 3, 7, 20)):
        alpha = solve(NashMTL(), J)
        norms = np.linalg.norm(J, axis=1)
        beta = alpha * np.where(norms > 0, norms, norms.max())
        assert (beta > 0).all() and beta.max() < 1e5, kind
    J = np.array([[1.0, 1.0], [-3.0, -3.0]])
    alpha = solve(NashMTL(), J)
    assert np.linalg.norm(alpha @ J) < 1e-9 and alpha[0] == pytest.approx(3 * alpha[1])
    # An objective that is not part of the conflict still gets its share.
    J = np.array([[1.0, 0.0], [-2.0, 0.0], [0.0, 5.0]])
    d = solve(NashMTL(), J) @ J
    assert d[1] == pytest.approx(1, rel=1e-6) and abs(d[0]) < 1e-6


def test_few_steps_are_enough(monkeypatch):
    solved = []
    original = np.linalg.solve
    monkeypatch.setattr(np.linalg, "solve", lambda *args: solved.append(1) or original(*args))
    for _, J in cases(KINDS, counts=(2, 7, 40), seeds=range(2)):
        solved.clear()
        bargain(np.clip(units(J) @ units(J).T, -1, 1) * (1 - np.eye(len(J))) + np.eye(len(J)))
        assert len(solved) <= 25


def test_weights_are_kept_between_updates():
    solver, exact = NashMTL(None, update_every=3), NashMTL(None)
    seen = [(solve(solver, gradients("plain", 4, t)), solve(exact, gradients("plain", 4, t))) for t in range(7)]
    for t, (kept, new) in enumerate(seen):
        np.testing.assert_allclose(kept, seen[t - t % 3][1], rtol=1e-12)
        assert (t % 3 == 0) == np.allclose(kept, new)


def test_kept_weights_are_clipped_to_the_gradients_of_now():
    solver = NashMTL(1.0, update_every=5)
    for factor in (1.0, 3.0, 0.1):
        J = factor * gradients("plain", 4)
        assert np.linalg.norm(solve(solver, J) @ J) == pytest.approx(min(1.0, 2 * factor))


def test_an_objective_that_joins_between_updates_is_not_left_out():
    solver = NashMTL(None, update_every=10)
    J = gradients("plain", 3)
    K, losses = torch.from_numpy(J @ J.T), torch.ones(3, dtype=torch.float64)
    solver.solve(losses, K, present=[0, 1])
    alpha = solver.solve(losses, K).numpy()
    assert residual(J, alpha) < 1e-8
