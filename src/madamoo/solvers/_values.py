"""Loss values as the loss-balancing solvers take them: never zero under a logarithm, never too large for a weight."""

from __future__ import annotations

from math import log

import torch
from torch import Tensor


def magnitudes(losses: Tensor, eps: float) -> Tensor:
    """|l_i| in float64, at least ``eps``: what a solver that asks for the size of a loss divides by."""
    return losses.detach().to(torch.float64).abs().clamp_min(eps)


def bounded_exp(log_weights: Tensor, like: Tensor) -> Tensor:
    """exp in the dtype and on the device of ``like``, at most its largest finite number."""
    return log_weights.clamp_max(log(torch.finfo(like.dtype).max) - 1e-6).exp().to(like)
