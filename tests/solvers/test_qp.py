"""The simplex program: its own optimality conditions, and scipy's answer."""

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from madamoo.solvers._qp import Program

NO_SHRINKING = settings(
    max_examples=300, deadline=None, derandomize=True, phases=[Phase.explicit, Phase.generate], database=None
)


def simplex_qp(K, b=None, support=None):
    return Program(K, b).solve(support=support)


def check_optimal(K, b, w, rtol=1e-9):
    """On the simplex, and no vertex lies downhill: min_j q_j >= w'q, q = K w + b, up to rounding."""
    assert (w >= 0).all() and w.sum() == pytest.approx(1.0, abs=1e-12)
    q = K @ w + b
    assert q.min() >= w @ q - rtol * max(np.abs(K).max(), np.abs(b).max(), 1e-300), (q.min(), w @ q)


@NO_SHRINKING
@given(
    seed=st.integers(0, 2**32 - 1),
    count=st.integers(1, 12),
    rank=st.integers(1, 12),
    spread=st.floats(0, 4),
    linear=st.sampled_from([0.0, 0.1, 1.0, 10.0]),
    warm=st.booleans(),
)
def test_optimality(seed, count, rank, spread, linear, warm, bounded):
    """The linear term is one of gradients, b_i = g_i . v, as the solvers': then no line of the hull falls forever."""
    rng = np.random.default_rng(seed)
    J = rng.normal(size=(count, rank)) * 10 ** rng.uniform(-spread, 0, (count, 1))
    K, b = J @ J.T, linear * J @ rng.normal(size=rank)
    support = sorted({int(i) for i in rng.integers(count, size=3)}) if warm else None
    w, S = bounded(simplex_qp, K, b, support)
    check_optimal(K, b, w)
    assert np.array_equal(S, np.flatnonzero(w))


@pytest.mark.parametrize("seeds", [range(20), range(20, 40)])
def test_scipy_finds_nothing_lower(seeds, bounded):
    for seed in seeds:
        check_against_scipy(seed, bounded)


def check_against_scipy(seed, bounded):
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 9))
    J = rng.normal(size=(count, int(rng.integers(1, 10))))
    K, b = J @ J.T, J @ rng.normal(size=J.shape[1]) * rng.integers(0, 2)

    def value(w):
        return 0.5 * w @ K @ w + b @ w

    theirs = minimize(
        value,
        np.full(count, 1 / count),
        jac=lambda w: K @ w + b,
        bounds=[(0, 1)] * count,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1, "jac": lambda w: np.ones(count)},
        method="SLSQP",
        options={"maxiter": 500, "ftol": 1e-14},
    )
    w, _ = bounded(simplex_qp, K, b)
    assert value(w) == pytest.approx(theirs.fun, abs=1e-7) and value(w) <= theirs.fun + 1e-10


def test_closed_form_for_two(bounded):
    """The shortest vector between g_1 and g_2: w_1 = clip(g_2 . (g_2 - g_1) / |g_1 - g_2|^2)."""
    rng = np.random.default_rng(0)
    for J in rng.normal(size=(50, 2, 3)) * 10 ** rng.uniform(-3, 3, (50, 2, 1)):
        wanted = np.clip(J[1] @ (J[1] - J[0]) / ((J[0] - J[1]) @ (J[0] - J[1])), 0, 1)
        assert bounded(simplex_qp, J @ J.T)[0] == pytest.approx([wanted, 1 - wanted], abs=1e-9)


def test_no_curvature(bounded):
    for support in (None, [0], [1, 2], [0, 1, 2]):
        w, _ = bounded(simplex_qp, np.zeros((3, 3)), None, support)
        check_optimal(np.zeros((3, 3)), np.zeros(3), w)


def test_one_program_for_every_t():
    """What is kept from one t does not show in the answer to the next."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        J = rng.normal(size=(6, 8)) + 0.5
        K, b = J @ J.T, J @ rng.normal(size=8)
        program, support = Program(K, b), None
        for t in rng.uniform(0, 3, 6):
            w, support = program.solve(t, support)
            assert w == pytest.approx(simplex_qp(K, t * b)[0], abs=1e-9)
            check_optimal(K, t * b, w)
