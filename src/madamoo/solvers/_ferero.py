from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..checks import check_positive
from ._base import Solver
from ._qp import Array
from ._rays import read_preference, unit_sum


class FERERO(Solver):
    """Preference-guided descent, FERERO (`Chen et al., 2024 <https://arxiv.org/abs/2412.01773>`_).

    Each step solves min over (d, c) of c + |d|^2 / 2 subject to A J d <= c and B_h J d = -c_h H; the rows of J are the
    g_i, and H = B_h F. Here the constraints H = 0 say that all r_i l_i are equal, and the cone C_A is the non-negative
    orthant. A = diag(r): the lengths of its rows only change the weight of descent beside the constraints, as c_h
    does. In the dual, z_i = lambda_i / r_i minimises |sum_i z_i r_i g_i|^2 / 2 - c_h sum_i z_i r_i l_i subject to
    sum_i z_i = 1. It is solved exactly; a constraint that no direction can meet is dropped.

    The preference r (1/C each if none is given) is a weight: the larger r_i, the smaller l_i shall be. At convergence
    the losses lie on the ray r_i l_i = const and are Pareto optimal, if the front meets that ray. A weight is negative
    where a loss must grow to get there. An objective with preference 0 is left out, with weight 0. Losses should not
    be negative. The weights are scaled to sum_i |lambda_i| = 1.

    Args:
        c_h: how fast the losses come to the ray, in units that make the scale of the losses irrelevant:
            max_i |r_i g_i|^2 / max_i |r_i l_i|.

    Example:
        >>> losses, gram = torch.tensor([2.0, 1.0]), torch.tensor([[4.0, -1.5], [-1.5, 1.0]])
        >>> FERERO().solve(losses, gram, preference=torch.tensor([0.3, 0.7]))
        tensor([0.2972, 0.7028])
    """

    family = "preference"
    needs_gram = True
    uses_preference = True
    uses_losses = True

    def __init__(self, c_h: float = 1.0) -> None:
        super().__init__()
        self.c_h = check_positive("c_h", c_h)

    def weights(self, losses: Tensor, gram: Tensor | None = None, preference: Tensor | None = None) -> Tensor:
        gram = self.require(gram)
        r = read_preference(preference, len(losses))
        K = gram.to("cpu", torch.float64).numpy()
        F = losses.detach().to("cpu", torch.float64).numpy()
        weights = np.zeros(len(r))
        S = np.flatnonzero(r)
        if len(S):
            weights[S] = unit_sum(_subprogram(K[np.ix_(S, S)], F[S], r[S], self.c_h))
        return torch.from_numpy(weights).to(losses)


def _subprogram(K: Array, F: Array, r: Array, c_h: float) -> Array:
    """lambda of the subprogram, for the objectives r_i l_i, whose ray is the diagonal."""
    K = K / max(float(K.diagonal().max()), 1e-300) * np.outer(r, r)
    K /= max(float(K.diagonal().max()), 1e-300)
    F = F * r
    F = F / max(float(np.abs(F).max()), 1e-300)
    z = np.full(len(r), 1.0 / len(r))
    # z moves in the plane sum z = const, on which P K P acts; P takes the mean away.
    half = K - K.mean(axis=0)
    plane = half - half.mean(axis=1, keepdims=True)
    if plane.diagonal().max() > 1e-10:  # else all r_i g_i are equal: no direction changes a ratio of losses
        right = c_h * F - K @ z
        move = np.linalg.lstsq(plane, right - right.mean(), rcond=1e-10)[0]
        z += move - move.mean()
    return r * z
