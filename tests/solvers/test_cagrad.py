"""CAGrad maximises the smallest g_i . d over a ball around the mean gradient: certified by its dual."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from madamoo import solvers
from madamoo.solvers._qp import Program


def dual(K, c, w):
    """An upper bound on the best smallest g_i . d, whatever w on the simplex."""
    g0 = np.full(len(K), 1 / len(K))
    return w @ K @ g0 + c * np.sqrt(max(g0 @ K @ g0, 0.0)) * np.sqrt(max(w @ K @ w, 0.0))


def lowest_dual(K, c):
    """As in the authors' code: scipy on the dual, here from several starts."""
    count = len(K)
    starts = [np.full(count, 1 / count), *(0.9 * np.eye(count) + 0.1 / count)]
    options = {"maxiter": 300, "ftol": 1e-15}
    total = {"type": "eq", "fun": lambda w: w.sum() - 1}
    found = [
        minimize(lambda w: dual(K, c, w), w, bounds=[(0, 1)] * count, constraints=total, options=options).x.clip(0)
        for w in starts
    ]
    return min(dual(K, c, w / w.sum()) for w in found)


def check_best(K, c, lam, upper=None, rtol=1e-6):
    """Inside the ball, and the smallest g_i . d is as large as the dual allows.

    The dual's minimiser is read off lambda, unless an upper bound is given.
    """
    K = K / max(K.diagonal().max(), 1e-300)
    count = len(K)
    off = lam - 1 / count
    radius = c * np.sqrt(max(np.full(count, 1 / count) @ K @ np.full(count, 1 / count), 0.0))
    assert np.sqrt(max(off @ K @ off, 0.0)) <= radius * (1 + rtol) + 1e-12
    if upper is None:
        assert (off >= -1e-9).all() and off.sum() > 0
        upper = dual(K, c, off / off.sum())
    else:
        upper = upper(K, c)
    assert (K @ lam).min() >= upper - rtol * radius - 1e-12


def draw(seed):
    rng = np.random.default_rng(seed)
    count, size = int(rng.integers(2, 9)), int(rng.integers(4, 30))
    J = rng.normal(size=(count, size)) + rng.choice([0.0, 0.5, 2.0]) * rng.normal(size=size)
    return J * 10 ** rng.uniform(-1, 1, (count, 1)) ** rng.integers(0, 2), rng.choice([0.1, 0.4, 0.8])


def weights(J, c, solve):
    return solve(solvers.CAGrad(c), np.ones(len(J)), J @ J.T).numpy()


def test_rounding_does_not_make_it_search(monkeypatch, solve):
    """A Gram matrix of float32 is symmetric to 1e-7 only; the radius of a support is right to 1e-12 all the same."""
    programs = []
    monkeypatch.setattr(Program, "solve", lambda *a, one=Program.solve: programs.append(a) or one(*a))
    rng = np.random.default_rng(0)
    for _ in range(50):
        K = (lambda J: J @ J.T)(rng.normal(size=(7, 200)))
        solve(solvers.CAGrad(0.4), np.ones(7), K * (1 + 1e-7 * rng.normal(size=K.shape)))
    assert len(programs) <= 50 * 4


def test_no_duality_gap_on_many(solve):
    for seed in range(300):
        J, c = draw(seed)
        check_best(J @ J.T, c, weights(J, c, solve))


def test_scipy_finds_no_better_bound(solve):
    for seed in range(25):
        J, c = draw(seed)
        check_best(J @ J.T, c, weights(J, c, solve), upper=lowest_dual)


def test_torchjd_agrees(solve):
    aggregation = pytest.importorskip("torchjd.aggregation")
    pytest.importorskip("cvxpy")
    pytest.importorskip("clarabel")
    for seed in range(200):
        J, c = draw(seed)
        K = J @ J.T
        a, b = weights(J, c, solve), aggregation.CAGradWeighting(c=float(c))(torch.from_numpy(K)).numpy()
        if not b.any():  # theirs gives up once |g_w| is below 1e-4
            continue
        size = np.linalg.norm(J.mean(0))
        assert np.linalg.norm(J.T @ (a - b)) <= 1e-3 * size
        assert (K @ a).min() >= (K @ b).min() - 1e-6 * size * np.sqrt(K.diagonal().max())


@pytest.mark.parametrize("c", [0.1, 0.4, 0.9])
def test_the_odd_ones(c, gradients, solve):
    kinds = "one, random, agreeing, two alike, all alike, forty, rank two, ill-conditioned, unlike sizes"
    for kind in kinds.split(", "):
        J = gradients[kind]
        check_best(J @ J.T, c, weights(J, c, solve), upper=lowest_dual if len(J) < 10 else None, rtol=1e-5)


def test_without_a_ball_it_is_the_mean(gradients, solve):
    J = gradients["random"]
    assert weights(J, 0.0, solve) == pytest.approx(np.full(4, 0.25))


# -- the hull of the gradients holds zero ----------------------------------------------------------------------------


def best_on_a_grid(J, c):
    """The definition itself, in the plane: the largest min_i g_i . d over a fine grid of the ball, and zero."""
    g0 = J.mean(0)
    radius, angle = np.meshgrid(np.linspace(0, 1, 201), np.linspace(0, 2 * np.pi, 721))
    ball = g0 + c * np.linalg.norm(g0) * np.stack([radius * np.cos(angle), radius * np.sin(angle)], -1).reshape(-1, 2)
    if c >= 1:
        ball = np.vstack([ball, np.zeros(2)])
    return (ball @ J.T).min(1).max()


STAR = np.array([[1.0, 0.0], [-0.5, 0.8], [-0.4, -0.7]])
DEGENERATE = {
    "star": STAR,
    "a star of unlike sizes": STAR * [[1.0], [3.0], [0.2]],
    "opposite, not equal": np.array([[1.0, 0.5], [-0.3, -0.15]]),
    "opposites": np.array([[-1.0, 1.0], [2.0, 0.0], [-1.0, 0.0], [-1.0, -2.0]]),
    "a zero": np.array([[1.0, 0.5], [0.0, 0.0]]),
    "a zero among conflict": np.array([[1.0, 0.2], [-0.5, 1.0], [0.0, 0.0]]),
    "nearly a zero": np.array([[1.0, 0.5], [1e-9, -1e-9]]),
}


@pytest.mark.parametrize("kind", DEGENERATE)
def test_the_definition_where_the_hull_holds_zero(kind, solve):
    J = DEGENERATE[kind]
    g0 = J.mean(0)
    for c in (0.1, 0.4, 0.9, 1.0, 1.5):
        d = J.T @ weights(J, c, solve)
        assert np.linalg.norm(d - g0) <= c * np.linalg.norm(g0) * (1 + 1e-6)  # for c < 1 the ball does not hold zero
        assert (J @ d).min() >= best_on_a_grid(J, c) - 1e-6


def test_no_objective_gets_worse_in_a_ball_that_holds_zero(solve):
    """Rows of small integers, so that gradients repeat and cancel exactly, and a Gram matrix in float32."""
    for seed in range(60):
        rng = np.random.default_rng(seed)
        J = rng.integers(-2, 3, size=(int(rng.integers(3, 8)), int(rng.integers(2, 4)))).astype(np.float32)
        c = float(rng.choice([1.0, 2.0]))
        lam = solve(solvers.CAGrad(c), np.ones(len(J)), (J @ J.T).astype(np.float64)).numpy()
        assert np.abs(lam).max() < 1e5
        assert (J @ (lam.astype(np.float32) @ J)).min() >= -1e-3 * np.linalg.norm(J, axis=1).max() ** 2


def test_opposite_gradients_leave_nothing_to_do(solve):
    """g_0 = 0: the ball is a point."""
    J = np.array([[1.0, 2.0], [-1.0, -2.0]])
    assert np.abs(J.T @ weights(J, 0.4, solve)).max() < 1e-12


def test_options_are_checked():
    for c in (-0.1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match=f"c must be zero or positive and finite, got {c}"):
            solvers.CAGrad(c)


# -- what the check would catch --------------------------------------------------------------------------------------


def uniform(lam):
    return np.full(len(lam), 1 / len(lam))


def sign_error(lam):
    return 2 / len(lam) - lam


def other_radius(lam):
    return 1.01 * (lam - 1 / len(lam)) + 1 / len(lam)


def other_point(lam):
    return 0.5 * lam + 0.5 * lam[::-1]


@pytest.mark.parametrize("broken", [uniform, sign_error, other_radius, other_point])
def test_the_check_catches_a_broken_one(broken, solve):
    caught = 0
    for seed in range(20):
        J, c = draw(seed)
        try:
            check_best(J @ J.T, c, broken(weights(J, c, solve)), upper=lowest_dual)
        except AssertionError:
            caught += 1
    assert caught >= 15
