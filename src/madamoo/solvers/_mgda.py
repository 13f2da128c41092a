from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..checks import check_choice
from ._base import Solver
from ._qp import Array, Program


class MGDA(Solver):
    """Multiple-gradient descent (`Sener and Koltun, 2018 <https://arxiv.org/abs/1810.04650>`_).

    lambda = argmin over the simplex of lambda' K lambda: the shortest vector in the convex hull of the gradients,
    along which no objective gets worse.

    Args:
        normalization: what the gradients are divided by while lambda is sought (it is applied to the gradients as they
            are): ``"none"``, ``"l2"`` their norms, ``"loss"`` the losses, ``"loss+"`` norm times loss.

    Example:
        >>> losses, gram = torch.tensor([2.0, 1.0]), torch.tensor([[4.0, -1.5], [-1.5, 1.0]])
        >>> MGDA().solve(losses, gram)
        tensor([0.3125, 0.6875])
    """

    family = "gradient"
    needs_gram = True

    def __init__(self, normalization: str = "none") -> None:
        super().__init__()
        self.normalization = check_choice("normalization", normalization, ("none", "l2", "loss", "loss+"))
        self.uses_losses = normalization in ("loss", "loss+")

    def weights(self, losses: Tensor, gram: Tensor | None = None, preference: Tensor | None = None) -> Tensor:
        K = self.require(gram).to("cpu", torch.float64).numpy()
        if self.normalization != "none":
            size = self._sizes(losses, K)
            K = K / _power_of_two(K) / np.outer(size, size)
        weights, _ = Program(K / max(float(K.diagonal().max()), 1e-300)).solve()
        return torch.from_numpy(weights).to(losses)

    def _sizes(self, losses: Tensor, K: Array) -> Array:
        """What to divide the gradients by, 1 for a size of zero; up to a common power of two."""
        parts = []
        if self.normalization in ("l2", "loss+"):
            parts.append(np.sqrt(K.diagonal().clip(0)))
        if self.normalization in ("loss", "loss+"):
            parts.append(losses.detach().to("cpu", torch.float64).abs().numpy())
        size, one = np.ones(len(K)), 1.0
        for part in parts:
            power = _power_of_two(part)
            size, one = size * (part / power), one / power
        size = np.where(size > 0, size, min(one, 1e100))
        return np.maximum(size / _power_of_two(size), 1e-100)


def _power_of_two(x: Array) -> float:
    """The one next to the largest entry: to divide by it is exact, and makes squares safe."""
    return float(np.ldexp(0.5, np.frexp(np.abs(x).max())[1]))
