"""Loss values as the loss-balancing solvers take them: never zero under a logarithm, never too large for a weight."""

from __future__ import annotations

from collections.abc import Sequence
from math import log

import torch
from torch import Tensor


def magnitudes(losses: Tensor, eps: float) -> Tensor:
    """|l_i| in float64, at least ``eps``: what a solver that asks for the size of a loss divides by."""
    return losses.detach().to(torch.float64).abs().clamp_min(eps)


def bounded_exp(log_weights: Tensor, like: Tensor) -> Tensor:
    """exp in the dtype and on the device of ``like``, at most its largest finite number."""
    return log_weights.clamp_max(log(torch.finfo(like.dtype).max) - 1e-6).exp().to(like)


def read_bounds(name: str, vector: Sequence[float] | Tensor | None) -> Tensor | None:
    """A vector of finite numbers of either sign, one an objective, as a float64 tensor on the CPU."""
    if vector is None:
        return None
    result = torch.as_tensor(vector, dtype=torch.float64, device="cpu").detach().clone()
    if result.dim() != 1 or not bool(torch.isfinite(result).all()):
        raise ValueError(f"{name} must be a vector with one finite number for each objective, got {result.tolist()}")
    return result


def bounds_for(name: str, given: Tensor | None, count: int) -> Tensor:
    """The bounds of ``count`` objectives: as given, else zero."""
    if given is None:
        return torch.zeros(count, dtype=torch.float64)
    if len(given) != count:
        raise ValueError(f"{name} must have {count} entries, one for each objective, got {given.tolist()}")
    return given.clone()
