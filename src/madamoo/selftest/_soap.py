"""SOAP without momentum on one matrix, dense and in NumPy: what the eigenbasis is compared with."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def soap(gradients: Array, *, lr: float, beta2: float, basis_beta: float, every: int, eps: float) -> Array:
    """The matrix that starts at 1 and takes one step per gradient [steps, m, n] (Vyas et al., 2024).

    The first gradient makes the first basis, in which it is diagonal; so it is scaled by one number.
    """
    first = gradients[0]
    left, right = _eigenvectors(first @ first.T), _eigenvectors(first.T @ first)
    L, R, v, param = np.zeros_like(left), np.zeros_like(right), np.zeros_like(first), np.ones_like(first)
    for t, G in enumerate(gradients, start=1):
        g = left.T @ G @ right
        v = beta2 * v + (1 - beta2) * g * g
        root = np.sqrt(v / (1 - beta2**t) + eps)
        param = param - lr * left @ (g / (root if t > 1 else root.max())) @ right.T
        L = basis_beta * L + (1 - basis_beta) * G @ G.T
        R = basis_beta * R + (1 - basis_beta) * G.T @ G
        if t % every == 0:
            left, rows = _power_step(L, left)
            right, columns = _power_step(R, right)
            v = v[rows][:, columns]
    return param


def _eigenvectors(A: Array) -> Array:
    """By falling eigenvalue."""
    return np.linalg.eigh(A)[1][:, ::-1]


def _power_step(A: Array, Q: Array) -> tuple[Array, Array]:
    """The next basis, and where each of its columns was in the last."""
    order = np.argsort(-np.diag(Q.T @ A @ Q), kind="stable")
    return np.linalg.qr(A @ Q[:, order])[0], order
