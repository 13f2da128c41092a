"""UPGrad and DualProj: projections onto the dual cone, by least squares, by TorchJD, by their own conditions."""

import numpy as np
import pytest
import scipy
import torch
from scipy.optimize import nnls

from gram_matrices import KINDS, angle, cases, gradients, solve, units
from madamoo.solvers._dual_cone import _grow, project
from madamoo.solvers._dualproj import DualProj
from madamoo.solvers._upgrad import UPGrad

# The nearest points that SciPy 1.15 gives are two percent off for some of these rows; ours are the same beside both.
sure_oracle = pytest.mark.skipif(
    tuple(map(int, scipy.__version__.split(".")[:2])) < (1, 16), reason="nnls of SciPy before 1.16 is no oracle here"
)


def projection(J, x):
    """Onto {x: J x >= 0}; by Moreau, x plus the nearest point of the cone of the rows to -x."""
    u = units(J)
    return x + nnls(u.T, -x, maxiter=1000)[0] @ u


def check(make, counts=(1, 2, 3, 5, 8, 20)):
    for kind, J in cases(counts=counts, seeds=range(4)):
        for weights in (None, np.arange(len(J)) + 1.0):
            w = np.full(len(J), 1 / len(J)) if weights is None else weights
            solver = make(weights)
            if isinstance(solver, UPGrad):
                expected = sum(projection(J, w[i] * J[i]) for i in range(len(J)))
            else:
                expected = projection(J, w @ J)
            size = np.linalg.norm(w[:, None] * J, axis=1).sum()
            d = solve(solver, J) @ J
            assert np.linalg.norm(d - expected) <= 1e-8 * size, kind
            assert (units(J) @ d).min() >= -1e-10 * size, kind


@sure_oracle
@pytest.mark.parametrize("make", [UPGrad, DualProj])
def test_projects_onto_the_dual_cone(make):
    check(make)


def test_that_check_rejects_a_projection_onto_half_spaces_in_turn():
    class Broken(UPGrad):
        def weights(self, losses, gram=None, preference=None):
            self.ensure(len(losses))
            total = torch.zeros_like(losses)
            for i in range(len(losses)):
                v = torch.eye(len(losses), dtype=losses.dtype)[i]
                for j in range(len(losses)):
                    v[j] -= (gram[j] @ v).clamp_max(0) / gram[j, j].clamp_min(1e-300)
                total += self.coefficients[i] * v
            return total

    with pytest.raises(AssertionError):
        check(Broken, counts=(3,))


@pytest.mark.parametrize("name", ["UPGrad", "DualProj"])
def test_agrees_with_torchjd(name):
    aggregation = pytest.importorskip("torchjd.aggregation")
    projector = pytest.importorskip("torchjd.linalg").QuadprogProjector(norm_eps=0.0, reg_eps=1e-10)
    ours = {"UPGrad": UPGrad, "DualProj": DualProj}[name]()
    theirs = getattr(aggregation, f"{name}Weighting")
    for kind, J in cases(("plain", "square", "low rank", "correlated", "duplicates", "silent"), counts=(2, 3, 5, 8)):
        K = torch.from_numpy(J @ J.T)
        d = solve(type(ours)(), J) @ J
        if np.linalg.norm(d) < 1e-6 * np.linalg.norm(J):
            continue  # the cone is zero: no direction to compare
        assert angle(d, theirs(projector=projector)(K).numpy() @ J) < 1e-4, kind
        if kind in ("plain", "correlated"):  # its default ridge is 1e-4
            assert angle(d, theirs()(K).numpy() @ J) < 1e-2, kind


def test_optimality_conditions_hold_where_gradients_depend_on_each_other():
    for kind, J in cases(
        ("low rank", "duplicates", "opposed", "ill-conditioned"), counts=(3, 7, 20, 40), seeds=range(2)
    ):
        S = np.clip(units(J) @ units(J).T, -1, 1)
        V = project(S, np.eye(len(J)))
        z, y = V - np.eye(len(J)), V @ S
        size = 1 + z.sum(1, keepdims=True)
        assert (z >= 0).all() and z.max() < 1e4, kind
        assert (y >= -1e-9 * size).all() and (np.abs(z * y) <= 1e-9 * size**2).all(), kind


def test_the_sure_method_alone_finds_the_same():
    for _, J in cases(("plain", "square", "low rank"), counts=(2, 5, 12), seeds=range(3)):
        u = units(J)
        S = u @ u.T
        for i in range(len(J)):
            expected = project(S, np.eye(len(J)))[i] @ u
            got = _grow(S + 1e-14 * np.eye(len(J)), S[i], np.zeros(len(J))) @ u + u[i]
            np.testing.assert_allclose(got, expected, atol=1e-9)


@sure_oracle
def test_weights_are_bounded_where_only_rounding_tells_gradients_apart():
    rng = np.random.default_rng(0)
    for count in (3, 7, 20):
        for _ in range(10):
            J = rng.standard_normal((count, count // 2 + 1)).astype(np.float32)
            K = torch.from_numpy((J @ J.T).astype(np.float64))
            J = J.astype(np.float64)
            weights = UPGrad().weights(torch.ones(count, dtype=torch.float64), K).numpy()
            assert (weights > 0).all() and weights.max() < 1e4
            expected = sum(projection(J, J[i] / count) for i in range(count))
            assert np.linalg.norm(weights @ J - expected) < 1e-2 * np.linalg.norm(J, axis=1).mean()


@pytest.mark.parametrize("rank", [5, 10, 20])
@sure_oracle
def test_the_sure_method_stops_where_only_rounding_is_left(monkeypatch, rank):
    """For each of the 40 rows, fewer systems than there are places."""
    solve_system, systems = np.linalg.solve, []

    def count(A, b):
        if A.ndim == 2:  # those of all rows together are not its own
            systems.append(A)
        return solve_system(A, b)

    monkeypatch.setattr(np.linalg, "solve", count)
    for seed in range(3):
        J = np.random.default_rng(seed).standard_normal((40, rank)).astype(np.float32)
        K, J = (J @ J.T).astype(np.float64), J.astype(np.float64)  # of rank 40, by its rounding
        systems.clear()
        weights = UPGrad().weights(torch.ones(40, dtype=torch.float64), torch.from_numpy(K)).numpy()
        assert 40 < len(systems) < 40 * 40
        expected = sum(projection(J, g / 40) for g in J)
        assert np.linalg.norm(weights @ J - expected) < 1e-2 * np.linalg.norm(J, axis=1).mean()


def test_without_conflict_the_weights_are_the_given_ones():
    J = np.abs(gradients("plain", 4))
    for make in (UPGrad, DualProj):
        np.testing.assert_allclose(solve(make([1.0, 2.0, 0.0, 3.0]), J), [1, 2, 0, 3], rtol=1e-14)


def test_no_objective_gets_worse():
    for make in (UPGrad, DualProj):
        for kind, J in cases(KINDS, counts=(2, 7, 20), seeds=range(3)):
            d = solve(make(), J) @ J
            assert (units(J) @ d).min() >= -1e-10 * np.linalg.norm(J, axis=1).sum(), kind


def test_a_long_gradient_does_not_drown_the_others():
    """UPGrad projects each gradient by itself, so its direction is linear in a common change of length."""
    J = gradients("plain", 5)
    one = [solve(UPGrad(np.eye(5)[i]), J) @ J for i in range(5)]
    factors = np.array([1e-3, 1.0, 10.0, 1e3, 1e5])
    longer = factors[:, None] * J
    np.testing.assert_allclose(solve(UPGrad(np.ones(5)), longer) @ longer, factors @ np.array(one), rtol=1e-9)
