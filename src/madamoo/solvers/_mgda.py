from __future__ import annotations

import torch
from torch import Tensor

from ._base import Solver
from ._checks import check_choice
from ._qp import simplex_qp


class MGDA(Solver):
    """Multiple-gradient descent (`Sener and Koltun, 2018 <https://arxiv.org/abs/1810.04650>`_).

    lambda = argmin over the simplex of lambda' K lambda: the shortest vector in the convex hull of the gradients,
    along which no objective gets worse.

    Args:
        normalization: what the gradients are divided by while lambda is sought (it is applied to the gradients as they
            are): ``"none"``, ``"l2"`` their norms, ``"loss"`` the losses, ``"loss+"`` norm times loss.
    """

    family = "gradient"
    needs_gram = True

    def __init__(self, normalization: str = "none") -> None:
        super().__init__()
        self.normalization = check_choice("normalization", normalization, ("none", "l2", "loss", "loss+"))

    def weights(self, losses: Tensor, gram: Tensor | None = None, preference: Tensor | None = None) -> Tensor:
        gram = self.require(gram)
        K = gram.to("cpu", torch.float64)
        size = torch.ones(len(K), dtype=torch.float64)
        if self.normalization in ("l2", "loss+"):
            size = size * K.diagonal().clamp_min(0).sqrt()
        if self.normalization in ("loss", "loss+"):
            size = size * losses.detach().to(size).abs()
        size = torch.where(size > 0, size, torch.ones_like(size))
        K = K / size / size[:, None]
        weights, _ = simplex_qp((K / K.diagonal().max().clamp_min(1e-300)).numpy())
        return torch.from_numpy(weights).to(losses)
