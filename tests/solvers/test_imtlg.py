"""IMTL-G and IMTL: equal projections, the paper's closed form, TorchJD, and the way the two parts combine."""

import numpy as np
import pytest
import torch

from gram_matrices import REGULAR, angle, cases, gradients, solve, units
from madamoo.solvers._imtl import IMTL
from madamoo.solvers._imtlg import IMTLG
from madamoo.solvers._imtll import IMTLL


def closed_form(J):
    """The paper's alpha: alpha_2..C = g_1 U' (D U')^-1, with D = g_1 - g_i, U = u_1 - u_i."""
    u = units(J)
    D, U = J[0] - J[1:], u[0] - u[1:]
    rest = np.linalg.solve((D @ U.T).T, U @ J[0])
    return np.r_[1 - rest.sum(), rest]


def check(solver):
    for kind, J in cases(REGULAR):
        alpha = closed_form(J)
        weights = solve(solver, J)
        projections = units(J) @ (weights @ J)
        assert np.ptp(projections) <= 1e-8 * np.abs(projections).max(), kind
        assert (projections > 0).all(), kind
        if np.abs(alpha).sum() < 9.9 and (units(J) @ (alpha @ J) > 0).all():
            np.testing.assert_allclose(weights, alpha, rtol=1e-6, atol=1e-8 * np.abs(alpha).max(), err_msg=kind)
            assert weights.sum() == pytest.approx(1)
        else:
            assert np.abs(weights).sum() == pytest.approx(10)


def test_is_the_papers_closed_form():
    check(IMTLG())


def test_that_check_rejects_projections_that_follow_the_lengths():
    class Broken(IMTLG):
        def weights(self, losses, gram=None, preference=None):
            x = torch.linalg.solve(gram, torch.ones_like(losses))
            return x / x.sum()

    with pytest.raises(AssertionError):
        check(Broken())


def test_agrees_with_torchjd():
    aggregation = pytest.importorskip("torchjd.aggregation")
    compared = 0
    for kind, J in cases((*REGULAR, "duplicates", "silent"), counts=(2, 3, 5, 8, 12)):
        K = J @ J.T
        d = np.sqrt(K.diagonal())
        # Where no direction has equal projections, or K is too ill-conditioned for a pseudo-inverse, ways part.
        theirs = aggregation.IMTLGWeighting()(torch.from_numpy(K)).numpy()
        t = units(J) @ (theirs @ J)
        t = t[d > 0]
        if kind == "lengths" or np.ptp(t) > 1e-9 * np.abs(t).max():
            continue
        compared += 1
        # Its direction climbs where the weights' sum is negative; ours never does.
        assert angle(solve(IMTLG(), J) @ J, np.sign(t[0]) * theirs @ J) < 1e-7, kind
    assert compared > 60


def test_without_equal_projections_it_comes_as_close_as_possible():
    for _, J in cases(("low rank",), counts=(3, 5, 8)):
        S = units(J) @ units(J).T
        x = np.linalg.lstsq(S, np.ones(len(J)), rcond=1e-12)[0]
        assert angle(solve(IMTLG(), J) @ J, x @ units(J)) < 1e-7


def test_opposite_gradients_leave_nothing():
    J = np.array([[1.0, 2.0], [-2.0, -4.0]])
    np.testing.assert_array_equal(solve(IMTLG(), J), [0, 0])


def test_two_gradients_get_weights_in_inverse_proportion_to_their_lengths():
    J = np.array([[2.0, 0.0], [0.0, 8.0]])
    np.testing.assert_allclose(solve(IMTLG(), J), [0.8, 0.2])
    np.testing.assert_allclose(solve(IMTLG(), np.vstack([J, [0, 0]])), [0.8, 0.2, 0.0])


def test_imtl_weighs_the_gradients_of_the_scaled_losses():
    both, scale = IMTL(lr=0.1), IMTLL(lr=0.1)
    generator = torch.Generator().manual_seed(0)
    for step in range(30):
        losses = torch.rand(4, generator=generator, dtype=torch.float64) * torch.tensor([0.01, 1, 10, 100.0])
        J = torch.from_numpy(gradients("plain", 4, step))
        scales = scale.solve(losses)
        scaled = scales[:, None] * J
        alpha = IMTLG().weights(losses, scaled @ scaled.T)
        weights = both.solve(losses, J @ J.T)
        torch.testing.assert_close(weights @ J, alpha @ scaled, rtol=1e-9, atol=1e-12)
    assert scales.max() / scales.min() > 10


def test_imtl_scales_do_not_turn_the_direction():
    solver = IMTL(lr=0.5)
    for step in range(10):
        J = gradients("plain", 4, step)
        assert angle(solve(solver, J) @ J, solve(IMTLG(), J) @ J) < 1e-9
