from __future__ import annotations

import torch
from torch import Tensor

from ._cosines import cosines
from ._dual_cone import project
from ._weighted import WeightedSolver


class DualProj(WeightedSolver):
    """Projection of the mean gradient (`Lopez-Paz and Ranzato, 2017 <https://arxiv.org/abs/1706.08840>`_).

    d = pi(sum_i w_i g_i), where pi projects onto the dual cone {x: g_j . x >= 0 for all j}: of the directions along
    which no objective gets worse, the one nearest to the weighted sum. In weights, lambda = argmin v' K v over v >= w.

    Args:
        weights: w, one number per objective, finite and not negative, in order or by name; 1/C each if None.

    Example:
        >>> losses, gram = torch.tensor([2.0, 1.0]), torch.tensor([[4.0, -1.5], [-1.5, 1.0]])
        >>> DualProj().solve(losses, gram)
        tensor([0.5000, 0.7500])
    """

    def weights(self, losses: Tensor, gram: Tensor | None = None, preference: Tensor | None = None) -> Tensor:
        gram = self.require(gram)
        self.ensure(len(losses))
        S, n, _ = cosines(gram)
        u = self.coefficients.cpu().numpy() * n
        size = u.max()
        return torch.from_numpy(project(S, u[None] / size)[0] * size / n).to(losses)
