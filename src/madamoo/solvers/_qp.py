"""Quadratic programs on the simplex, small and exact: an active-set method in float64."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Program:
    """The minimum of ``w' K w / 2 + t b' w`` over the simplex, for any t; ``b`` is zero if None.

    K is positive semi-definite, and b in its range (zero, or K times a vector).
    """

    def __init__(self, K: Array, b: Array | None = None) -> None:
        self.K = K
        self.b = np.zeros(len(K)) if b is None else b
        # Scaled by the rows' norms, objectives whose gradients differ by many orders of magnitude are as easy as equal
        # ones.
        diagonal = K.diagonal()
        self.scale = 1.0 / np.sqrt(np.maximum(diagonal, 1e-30 * max(float(diagonal.max()), 1e-270)))
        self.cosines = K * np.outer(self.scale, self.scale)
        self._parts: dict[tuple[int, ...], tuple[Array, Array]] = {}

    def solve(self, t: float = 1.0, support: list[int] | None = None) -> tuple[Array, list[int]]:
        """The minimiser and its support; ``support`` is where to start, that of a similar t.

        Wolfe's method: add the objective that violates optimality most, move to the minimiser over the affine hull of
        the support, and drop what would become negative on the way. Each round lowers the value, so it ends.
        """
        K, b = self.K, t * self.b
        count = len(K)
        if count == 2:  # on a segment, the parabola's lowest point
            bend = float(K[0, 0] + K[1, 1] - 2 * K[0, 1])
            slope = float(K[1, 1] - K[0, 1] + b[1] - b[0])
            first = min(max(slope / bend, 0.0), 1.0) if bend > 0 else float(slope > 0)
            w = np.array([first, 1.0 - first])
            return w, [i for i in range(2) if w[i] > 0]
        w = np.zeros(count)
        S = sorted(support) if support else [int(np.argmin(0.5 * K.diagonal() + b))]
        w[S] = 1.0 / len(S)
        w, S = self._to_hull_minimum(w, S, t)
        best, value = (w, S), np.inf
        for _ in range(20 * count):
            q = K @ w + b
            new = float(w @ (q + b))  # twice the value
            if new >= value:
                break
            best, value = (w, S), new
            j = int(q.argmin())
            # w' q is the multiplier of sum w = 1; below it an entry wants to grow.
            if j in S or q[j] >= w @ q - 1e-15 * (w @ np.abs(q)):
                break
            w, S = self._to_hull_minimum(w.copy(), sorted([*S, j]), t)
        return best

    def _to_hull_minimum(self, w: Array, S: list[int], t: float) -> tuple[Array, list[int]]:
        """Walk from w towards the minimiser over the affine hull of S, shrinking S until that minimiser is inside."""
        while True:
            u, v = self.parts(S)
            target = u + t * v
            if target.min() > 0:
                break
            blocked = target <= 0
            step = w[S] - target
            ratios = np.where(
                blocked & (step > 0), w[S] / np.where(step > 0, step, 1.0), np.where(blocked, 0.0, np.inf)
            )
            theta = min(1.0, float(ratios.min()))
            leaving = {i for i, r in zip(S, ratios, strict=True) if r <= theta}
            if not leaving or len(leaving) == len(S):  # numbers too extreme to tell: any vertex is as good
                S = [int(np.argmin(self.K.diagonal()))]
                target = np.ones(1)
                break
            w[S] += theta * (target - w[S])
            w[list(leaving)] = 0.0
            S = [i for i in S if i not in leaving]
        w = np.zeros(len(w))
        w[S] = target / target.sum()
        return w, S

    def parts(self, S: list[int]) -> tuple[Array, Array]:
        """u and v such that u + t v minimises over the affine hull of S, whatever t: solved once for each S."""
        known = self._parts.get(tuple(S))
        if known is None:
            known = self._parts[tuple(S)] = self._solve_on(S)
        return known

    def _solve_on(self, S: list[int]) -> tuple[Array, Array]:
        n, scale = len(S), self.scale[S]
        largest = float(scale.max())
        border = scale / largest
        system, right = np.zeros((n + 1, n + 1)), np.zeros((n + 1, 2))
        system[:n, :n] = self.cosines[np.ix_(S, S)]
        system[:n, n] = system[n, :n] = border
        right[n, 0] = 1.0
        right[:n, 1] = -largest * self.b[S] * scale
        try:
            solution = np.linalg.solve(system, right)
        except np.linalg.LinAlgError:
            solution = np.linalg.lstsq(system, right, rcond=None)[0]
        u, v = solution[:n].T * border
        return u, v
