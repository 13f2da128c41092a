"""Projection onto the dual cone of the gradients: the directions along which no objective gets worse."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ._qp import Array

Mask = NDArray[np.bool_]
Rows = NDArray[np.intp]


def project(S: Array, U: Array) -> Array:
    """For each row u of U [m, C], the minimiser of ``v' S v`` over ``v >= u``; S holds the cosines of the gradients.

    sum_j v_j g_j is then the projection of sum_j u_j g_j. With v = u + z and y = S v = S z + q, this is to find z >= 0
    and y >= 0 of which one is zero in each place.
    """
    Q = U @ S
    free = Q < -1e-13
    rows = np.flatnonzero(free.any(1))
    if len(rows) == 0:
        return U
    Q, free = Q[rows], free[rows]
    eye = np.eye(len(S))
    try:
        np.linalg.cholesky(S - 1e-7 * eye)
        Z, free, left = _pivot(S, Q, free, np.arange(len(rows)))
    except np.linalg.LinAlgError:
        # Gradients that depend on each other, up to rounding: a ridge makes the problem definite, then goes away.
        rough, free, failed = _pivot(S + 1e-6 * eye, Q, free, np.arange(len(rows)))
        Z, free, left = _pivot(S + 1e-14 * eye, Q, free, np.setdiff1d(np.arange(len(rows)), failed))
        Z[failed] = rough[failed]
        left = np.r_[left, failed]
    for i in left:
        Z[i] = _grow(S + 1e-14 * eye, Q[i], Z[i].clip(0.0))
    if Z.max() > 1e4:
        # Where gradients depend on each other but for rounding, it is rounding that makes such weights.
        for i in np.flatnonzero(Z.max(1) > 1e4):
            Z[i] = _grow(S + 1e-6 * eye, Q[i], np.zeros(len(S)))
    V = U.copy()
    V[rows] += Z.clip(0.0)
    return V


def _pivot(S: Array, Q: Array, free: Mask, rows: Rows) -> tuple[Array, Mask, Rows]:
    """z for the given rows q of Q, where it may differ from zero, and which rows are not solved; from a guess of where.

    Block principal pivoting (Judice and Pires, 1994): where z or y has the wrong sign, the two swap roles, all at once
    and in all rows. That takes a few rounds, but need not end.
    """
    Z = np.zeros(Q.shape)
    eye = np.eye(len(S))
    for _ in range(8):
        f, q = free[rows], Q[rows]
        system = np.where(f[:, :, None] & f[:, None, :], S, eye)
        Z[rows] = np.linalg.solve(system, (-q * f)[:, :, None])[:, :, 0]
        z = Z[rows]
        wrong = np.minimum(z, z @ S + q) < -_tiny(z)
        rest = wrong.any(1)
        rows = rows[rest]
        if len(rows) == 0:
            break
        free[rows] ^= wrong[rest]
    return Z, free, rows


def _grow(S: Array, q: Array, z: Array) -> Array:
    """z for one row, from a guess z >= 0: one place more at a time (Lawson and Hanson, 1974), slower but sure."""
    free = np.flatnonzero(z).tolist()
    for _ in range(5 * len(q)):
        while free:
            target = np.linalg.solve(S[np.ix_(free, free)], -q[free])
            if target.min() > 0:
                z[free] = target
                break
            # Go there as far as all stay positive, and drop what becomes zero on the way.
            now = z[free]
            ratio = np.where(target > 0, np.inf, now / np.maximum(now - target, 1e-300))
            if ratio.min() == 0.0:
                # The new place has to go at once, which only rounding brings about: it would come back for ever.
                return z
            z[free] = np.where(ratio > ratio.min(), now + ratio.min() * (target - now), 0.0)
            free = [k for k in free if z[k] > 0]
        y = S @ z + q
        j = int(np.argmin(y))
        if j in free or y[j] >= -_tiny(z)[0]:
            break
        free.append(j)
    return z


def _tiny(z: Array) -> Array:
    """What rounding may leave of a zero."""
    return 1e-13 + 1e-13 * np.abs(z).sum(-1, keepdims=True)
