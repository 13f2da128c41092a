from __future__ import annotations

import torch
from torch import Tensor

from ..checks import check_positive
from ._learning import LearningSolver
from ._values import magnitudes


class IMTLL(LearningSolver):
    """IMTL-L, impartial loss balance (`Liu et al., 2021 <https://openreview.net/forum?id=IMPnRXEWpvr>`_).

    Learns s_i by descent on sum_i e^(s_i) l_i - s_i, whose minimum has e^(s_i) l_i = 1: all scaled losses equal.
    lambda_i = e^(s_i), 1 at the start; this step's losses change the next step's lambda.

    A loss counts by its magnitude, so a negative one is balanced too; below ``eps`` it counts as ``eps``, which keeps
    lambda_i near 1 / eps at most.

    Args:
        lr: rate of the solver's own Adam on s.
        eps: losses below it count as it.

    Example:
        >>> solver = IMTLL()
        >>> solver.solve(torch.tensor([4.0, 1.0]))  # at first; it learns from now on
        tensor([1., 1.])
        >>> solver.solve(torch.tensor([4.0, 1.0]))
        tensor([0.9753, 1.0000])
    """

    def __init__(self, lr: float = 0.025, *, eps: float = 1e-8) -> None:
        super().__init__(lr)
        self.eps = check_positive("eps", eps)

    def weights(self, losses: Tensor, gram: Tensor | None = None, preference: Tensor | None = None) -> Tensor:
        self.ensure(len(losses))
        weights = torch.exp(self.variable)
        slope = weights * magnitudes(losses, self.eps).to(weights) - 1
        # For a small loss the slope is -1, for a large one unbounded: Adam would remember it and crawl, long after s_i
        # has begun to follow. Cut at 1, s_i moves by lr per step from either side.
        self.descend(slope.clamp_max(1.0))
        return weights.to(losses)
