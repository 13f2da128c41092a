from __future__ import annotations

from math import log

from torch import Tensor

from ..checks import check_positive
from ._base import Solver
from ._values import bounded_exp, magnitudes


class GeometricMean(Solver):
    """Geometric loss strategy, GLS (`Chennupati et al., 2019 <https://arxiv.org/abs/1904.08492>`_).

    Minimises the geometric mean L = (prod_i l_i)^(1/C), so lambda_i = dL / dl_i = L / (C l_i): every lambda_i l_i is
    the same. It depends on this step's losses.

    A loss counts by its magnitude, below ``eps`` as ``eps``: lambda is positive and finite, whatever the losses.

    Args:
        eps: losses below it count as it.

    Example:
        >>> import torch
        >>> GeometricMean().solve(torch.tensor([4.0, 1.0]))
        tensor([0.2500, 1.0000])
    """

    uses_losses = True

    def __init__(self, *, eps: float = 1e-8) -> None:
        super().__init__()
        self.eps = check_positive("eps", eps)

    def weights(self, losses: Tensor, gram: Tensor | None = None, preference: Tensor | None = None) -> Tensor:
        logs = magnitudes(losses, self.eps).log()
        return bounded_exp(logs.mean() - logs - log(len(logs)), losses)
