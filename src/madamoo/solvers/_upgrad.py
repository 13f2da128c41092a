from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ._cosines import cosines
from ._dual_cone import project
from ._weighted import WeightedSolver


class UPGrad(WeightedSolver):
    """Unconflicting projection of gradients (`Quinton and Rey, 2024 <https://arxiv.org/abs/2406.16232>`_).

    d = sum_i w_i pi(g_i), where pi projects onto the dual cone {x: g_j . x >= 0 for all j}: no objective gets worse,
    and where nothing conflicts lambda = w. In weights, lambda = sum_i w_i v_i, v_i = argmin v' K v over v >= e_i.

    Args:
        weights: w, one number per objective, finite and not negative, in order or by name; 1/C each if None.

    Example:
        >>> losses, gram = torch.tensor([2.0, 1.0]), torch.tensor([[4.0, -1.5], [-1.5, 1.0]])
        >>> UPGrad().solve(losses, gram)
        tensor([0.6875, 1.2500])
    """

    def weights(self, losses: Tensor, gram: Tensor | None = None, preference: Tensor | None = None) -> Tensor:
        gram = self.require(gram)
        self.ensure(len(losses))
        S, n, _ = cosines(gram)
        V = project(S, np.eye(len(S)))  # of the unit gradients
        return torch.from_numpy((self.coefficients.cpu().numpy() * n) @ V / n).to(losses)
