from __future__ import annotations

import torch
from torch import Tensor

from ._imtlg import impartial
from ._imtll import IMTLL


class IMTL(IMTLL):
    """Impartial multi-task learning, both parts (`Liu et al., 2021 <https://openreview.net/forum?id=IMPnRXEWpvr>`_).

    :class:`IMTLL` scales the losses to e^(s_i) l_i, :class:`IMTLG` weighs the scaled gradients by alpha_i, so
    lambda_i = alpha_i e^(s_i). The direction is IMTL-G's, which no scaling changes; the scaled losses set its length.

    Args:
        lr: rate of the solver's own Adam on s.
        eps: losses below it count as it.

    Example:
        >>> losses, gram = torch.tensor([2.0, 1.0]), torch.tensor([[4.0, -1.5], [-1.5, 1.0]])
        >>> IMTL().solve(losses, gram)
        tensor([0.3333, 0.6667])
    """

    family = "gradient"
    needs_gram = True

    def weights(self, losses: Tensor, gram: Tensor | None = None, preference: Tensor | None = None) -> Tensor:
        gram = self.require(gram)
        scales = super().weights(losses.to(torch.float64))
        alpha = impartial(gram * torch.outer(scales, scales).to(gram))
        return (alpha.to(scales) * scales).to(losses)
