"""Linear programs on the simplex, small and exact: the simplex method on a dense tableau in float64."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ._qp import Array

PATIENCE = 20
"""Pivots for each column of the tableau before Bland's rule, slow but never cycling, takes over."""


def simplex_lp(q: Array, A: Array, b: Array) -> Array | None:
    """The maximiser of ``q' x`` over the simplex subject to ``A x >= b``, where b <= 0; None if there is no such x.

    With a slack s_i for each row and t for sum x <= 1, x = 0 is a vertex to start from. The first phase drives t to
    zero, the second keeps it there.
    """
    m, n = A.shape
    size = np.maximum(np.abs(A).max(axis=1, initial=0.0), 1e-300)
    # Rows: -A x + s = -b, then sum x + t = 1, then the gain of each variable; the last column is the right-hand side.
    T = np.zeros((m + 2, n + m + 2))
    T[:m, :n] = -A / size[:, None]
    T[:m, -1] = -b / size + 1e-13  # the feasible set may be a single point, which rounding would lose
    T[m, :n] = T[m, -1] = 1.0
    T[: m + 1, n : n + m + 1] = np.eye(m + 1)
    basis = np.arange(n, n + m + 1)
    T[-1, :n] = 1.0
    _climb(T, basis)
    if n + m in basis:  # t must leave the basis, or it could grow again
        i = int(np.flatnonzero(basis == n + m)[0])
        if T[i, -1] > 1e-9:
            return None
        _pivot(T, basis, i, int(T[i, : n + m].argmax()))
    T[:, n + m] = 0.0
    gain = np.zeros(n + m + 1)
    gain[:n] = q / max(float(np.abs(q).max()), 1e-300)
    T[-1, :-1] = gain - gain[basis] @ T[:-1, :-1]
    _climb(T, basis)
    x = np.zeros(n + m + 1)
    x[basis] = np.maximum(T[:-1, -1], 0.0)
    return x[:n] / x[:n].sum()


def _climb(T: Array, basis: NDArray[np.int64]) -> None:
    """Go from vertex to vertex until no neighbour is higher."""
    gain, right = T[-1, :-1], T[:-1, -1]
    patience = PATIENCE * len(gain)
    for pivots in range(patience + 20 * len(gain)):
        j = int(gain.argmax()) if pivots < patience else int((gain > 1e-12).argmax())
        if gain[j] <= 1e-12:
            return
        column = T[:-1, j]
        ratios = np.full(len(right), np.inf)
        np.divide(right, column, out=ratios, where=column > 1e-11)
        nearest = float(ratios.min())
        if nearest == np.inf:  # the set is bounded: but for rounding, something always blocks
            return
        ties = np.flatnonzero(ratios <= nearest + 1e-15)
        _pivot(T, basis, int(ties[column[ties].argmax()] if pivots < patience else ties[basis[ties].argmin()]), j)


def _pivot(T: Array, basis: NDArray[np.int64], i: int, j: int) -> None:
    """Bring variable j into the basis in place of that of row i."""
    row = T[i] / T[i, j]
    T -= T[:, j, None] * row
    T[i] = row
    basis[i] = j
