"""The linear programs on the simplex, against scipy's."""

import numpy as np
import pytest
from scipy.optimize import linprog

from madamoo.solvers import _lp
from madamoo.solvers._lp import simplex_lp


def reference(q, A, b):
    """The value at the optimum; None if nothing is feasible."""
    n = len(q)
    rows = {"A_ub": -A, "b_ub": -b} if len(A) else {}
    result = linprog(-q, A_eq=np.ones((1, n)), b_eq=[1.0], **rows)
    return None if result.status == 2 else -result.fun


def problem(rng, n, m, kind):
    q, A = rng.normal(size=n), rng.normal(size=(m, n))
    b = -rng.uniform(size=m)
    if kind == "degenerate":  # every constraint goes through the origin
        b = np.zeros(m)
    elif kind == "gram":
        G = rng.normal(size=(n, max(1, n // 2)))
        A, b = G @ G.T, np.zeros(n)
    elif kind == "point":  # one feasible point only, where A x = 0
        G = rng.normal(size=(n, 2 * n))
        G -= rng.dirichlet(np.ones(n)) @ G
        A, b = G @ G.T, np.zeros(n)
    elif kind == "repeated":
        A, b = np.repeat(A, 2, axis=0), np.repeat(b, 2)
    elif kind == "scaled":
        size = 10.0 ** rng.uniform(-12, 6, size=m)
        A, b = A * size[:, None], b * size
    return q, A, b


KINDS = ["plain", "degenerate", "gram", "point", "repeated", "scaled"]


def check(solve, q, A, b):
    size = np.maximum(np.abs(A).max(axis=1), 1e-300)  # scipy's tolerances are absolute
    x, value = solve(q, A, b), reference(q, A / size[:, None], b / size)
    if x is None or value is None:
        assert x is None and value is None
        return False
    assert x.min() >= 0 and x.sum() == pytest.approx(1.0, abs=1e-12)
    assert ((A @ x - b) / size).min() >= -1e-10
    assert q @ x == pytest.approx(value, abs=1e-6)
    return True


def check_all(solve, kind):
    rng = np.random.default_rng(0)
    sizes = [(n, m) for n in (1, 2, 3, 5, 8, 20) for m in (1, n, 2 * n) for _ in range(4)]
    return sum(check(solve, *problem(rng, n, m, kind)) for n, m in sizes)


@pytest.mark.parametrize("kind", KINDS)
def test_equals_scipy(kind):
    assert check_all(simplex_lp, kind) > 20


def test_infeasible_is_said():
    rng = np.random.default_rng(1)
    A = -np.abs(rng.normal(size=(3, 4)))
    assert simplex_lp(rng.normal(size=4), A, np.zeros(3)) is None
    assert reference(rng.normal(size=4), A, np.zeros(3)) is None


def test_without_constraints_a_vertex():
    assert simplex_lp(np.array([1.0, 3.0, 2.0]), np.zeros((0, 3)), np.zeros(0)).tolist() == [0, 1, 0]


def test_zero_gain_and_zero_rows():
    x = simplex_lp(np.zeros(3), np.zeros((2, 3)), np.zeros(2))
    assert x.sum() == 1 and x.min() >= 0


def test_blands_rule_alone(monkeypatch):
    """The rule for long runs reaches the same values."""
    monkeypatch.setattr(_lp, "PATIENCE", 0)
    for kind in KINDS:
        check_all(simplex_lp, kind)


def test_a_wrong_program_is_rejected():
    with pytest.raises(AssertionError):
        check_all(lambda q, A, b: simplex_lp(q, A[1:], b[1:]), "plain")
