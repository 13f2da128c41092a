"""Checks of arguments that several solvers take."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def check_vector(name: str, vector: Sequence[float] | Tensor, count: int | None = None) -> Tensor:
    """A vector of non-negative numbers, one an objective, not all zero, as a float64 tensor on the CPU."""
    result = torch.as_tensor(vector, dtype=torch.float64, device="cpu").detach()
    found = f"got {result.tolist()}"
    if result.dim() != 1 or result.numel() == 0:
        raise ValueError(f"{name} must be a vector with one number for each objective, {found}")
    if count is not None and len(result) != count:
        raise ValueError(f"{name} must have {count} entries, one for each objective, {found}")
    if not bool(torch.isfinite(result).all()) or bool((result < 0).any()):
        raise ValueError(f"{name} must be finite and not negative, {found}")
    if float(result.sum()) == 0:
        raise ValueError(f"{name} must not sum to zero, {found}")
    return result.clone()


def check_choice(name: str, value: str, choices: Sequence[str]) -> str:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")
    return value


def check_positive(name: str, value: float, *, zero: bool = False) -> float:
    """A finite number above zero (or zero, where that is allowed)."""
    if not (0 < value < float("inf") or (zero and value == 0)):
        raise ValueError(f"{name} must be {'zero or ' if zero else ''}positive and finite, got {value!r}")
    return float(value)
