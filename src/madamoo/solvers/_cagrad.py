from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..checks import check_positive
from ._base import Solver
from ._qp import Array, Program

TINY = 1e-5  # of the longest gradient: below it ||g_w|| counts as zero, or s / ||g_w|| would amplify rounding


class CAGrad(Solver):
    """Conflict-averse gradient descent (`Liu et al., 2021 <https://arxiv.org/abs/2110.14048>`_).

    d maximises the smallest g_i . d over the ball ||d - g_0|| <= c ||g_0|| around the mean gradient g_0. In the dual,
    w = argmin over the simplex of g_w . g_0 + c ||g_0|| ||g_w||, and lambda_i = 1/C + c ||g_0|| / ||g_w|| w_i.

    Args:
        c: radius of the ball; 0 is the mean gradient, 1 or more approaches MGDA.

    Example:
        >>> losses, gram = torch.tensor([2.0, 1.0]), torch.tensor([[4.0, -1.5], [-1.5, 1.0]])
        >>> CAGrad(c=0.4).solve(losses, gram)
        tensor([0.5000, 0.7828])
    """

    family = "gradient"
    needs_gram = True

    def __init__(self, c: float = 0.4) -> None:
        super().__init__()
        self.c = check_positive("c", c, zero=True)

    def weights(self, losses: Tensor, gram: Tensor | None = None, preference: Tensor | None = None) -> Tensor:
        gram = self.require(gram)
        K = gram.to("cpu", torch.float64).numpy()
        return torch.from_numpy(_cagrad(K, self.c)).to(losses)


def _cagrad(K: Array, c: float) -> Array:
    count = len(K)
    mean = np.full(count, 1.0 / count)
    K = K / max(float(K.diagonal().max()), 1e-300)
    b = K @ mean
    s = c * np.sqrt(max(float(mean @ b), 0.0))  # c ||g_0||
    if s <= 1e-12 * c or s == 0:
        return mean
    # s ||g_w|| = min over t of s (w'Kw / t + t) / 2, so the dual is a quadratic program for each t, and t = ||g_w|| at
    # its solution. ||g_w(t)|| - t falls from positive to negative: a root, found support by support.
    program = Program(K, b / s)
    low, high, t = 0.0, np.inf, s / c
    support: list[int] | None = None
    for _ in range(100):
        w, support = program.solve(t, support)
        norm = np.sqrt(max(float(w @ K @ w), 0.0))
        if abs(norm - t) <= 1e-12 * t:
            break
        low, high = (t, high) if norm > t else (low, t)
        t = max(_root_on(program, support), 0.1 * TINY)
        if not low < t < high:
            t = 2 * low if high == np.inf else 0.5 * (low + high)
        if high < np.inf and high - low <= max(1e-14 * high, 0.1 * TINY):
            break
    if norm > TINY:
        return mean + s / norm * w
    # The hull of the gradients holds zero. As t falls to 0, s / ||g_w|| w tends to s v, and a multiple of u whose
    # gradients cancel.
    result = mean.copy()
    if support:
        result[support] += s * program.parts(support)[1]
    return result


def _root_on(program: Program, support: list[int]) -> float:
    """t = ||g_w|| on a fixed support, where w = u + t v."""
    K = program.K[np.ix_(support, support)]
    u, v = program.parts(support)
    gap, half, rest = 1.0 - float(v @ K @ v), 0.5 * float(u @ K @ v + v @ K @ u), max(float(u @ K @ u), 0.0)
    return (half + float(np.sqrt(half * half + gap * rest))) / gap if gap > 0 else np.inf
