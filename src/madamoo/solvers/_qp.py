"""Quadratic programs on the simplex, small and exact: an active-set method in float64."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def simplex_qp(K: Array, b: Array | None = None, support: list[int] | None = None) -> tuple[Array, list[int]]:
    """The minimiser of ``w' K w / 2 + b' w`` over the simplex, and its support.

    K is positive semi-definite, and b in its range (zero, or K times a vector).

    Wolfe's method: add the objective that violates optimality most, move to the minimiser over the affine hull of the
    support, and drop what would become negative on the way. Each round lowers the value, so it ends.
    ``support`` is where to start, the support of a similar problem.
    """
    count = len(K)
    b = np.zeros(count) if b is None else b
    if count == 2:  # on a segment, the parabola's lowest point
        bend = float(K[0, 0] + K[1, 1] - 2 * K[0, 1])
        slope = float(K[1, 1] - K[0, 1] + b[1] - b[0])
        first = min(max(slope / bend, 0.0), 1.0) if bend > 0 else float(slope > 0)
        w = np.array([first, 1.0 - first])
        return w, [i for i in range(2) if w[i] > 0]
    w = np.zeros(count)
    S = list(support) if support else [int(np.argmin(0.5 * K.diagonal() + b))]
    w[S] = 1.0 / len(S)
    w, S = _to_hull_minimum(K, b, w, S)
    best, value = w, 0.5 * w @ K @ w + b @ w
    for _ in range(20 * count):
        q = K @ w + b
        j = int(np.argmin(q))
        # w' q is the multiplier of sum w = 1; below it an entry wants to grow.
        if j in S or q[j] >= w @ q - 1e-15 * (np.abs(w) @ np.abs(q)):
            break
        w, S = _to_hull_minimum(K, b, w.copy(), [*S, j])
        new = 0.5 * w @ K @ w + b @ w
        if new >= value:
            break
        best, value = w, new
    return best, [int(i) for i in np.flatnonzero(best)]


def _to_hull_minimum(K: Array, b: Array, w: Array, S: list[int]) -> tuple[Array, list[int]]:
    """Walk from w towards the minimiser over the affine hull of S, shrinking S until that minimiser is inside."""
    while True:
        target, _ = affine_minimum(K[np.ix_(S, S)], b[S])
        if (target > 0).all():
            break
        blocked = target <= 0
        step = w[S] - target
        ratios = np.where(blocked & (step > 0), w[S] / np.where(step > 0, step, 1.0), np.where(blocked, 0.0, np.inf))
        theta = min(1.0, float(ratios.min()))
        leaving = {i for i, r in zip(S, ratios, strict=True) if r <= theta}
        if not leaving or len(leaving) == len(S):  # numbers too extreme to tell: any vertex is as good
            S = [int(np.argmin(K.diagonal()))]
            target = np.ones(1)
            break
        w[S] += theta * (target - w[S])
        w[list(leaving)] = 0.0
        S = [i for i in S if i not in leaving]
    w = np.zeros(len(K))
    w[S] = target / target.sum()
    return w, S


def affine_minimum(K: Array, b: Array, slope: bool = False) -> tuple[Array, Array]:
    """Minimiser of ``w' K w / 2 + b' w`` subject to ``sum w = 1``; with ``slope``, its parts u and v: w = u + v.

    u solves the problem with b = 0, v is what b adds. The system is scaled by the rows' norms: objectives whose
    gradients differ by many orders of magnitude are then as easy as equal ones.
    """
    n = len(K)
    diagonal = K.diagonal()
    scale = 1.0 / np.sqrt(np.maximum(diagonal, 1e-30 * max(float(diagonal.max()), 1e-270)))
    scale /= scale.max()
    system = np.zeros((n + 1, n + 1))
    system[:n, :n] = K * np.outer(scale, scale)
    peak = max(float(np.abs(system).max()), 1e-300)
    system[:n, :n] /= peak
    system[:n, n] = system[n, :n] = scale
    right = np.zeros((n + 1, 2))
    right[n, 0] = 1.0
    right[:n, 1] = -b * scale / peak
    try:
        solution = np.linalg.solve(system, right)
    except np.linalg.LinAlgError:
        solution = np.linalg.lstsq(system, right, rcond=None)[0]
    u, v = (solution[:n] * scale[:, None]).T
    return (u, v) if slope else (u + v, v)
