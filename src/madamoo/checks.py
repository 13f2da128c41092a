"""Checks of arguments: each returns the value in its final type, or raises an error that names the argument.

Example:
    >>> check_positive("c", 0.4)
    0.4
    >>> check_positive("c", "abc")
    Traceback (most recent call last):
    ...
    ValueError: c must be positive and finite, got 'abc'
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor

__all__ = [
    "check_betas",
    "check_choice",
    "check_flag",
    "check_fraction",
    "check_integer",
    "check_numbers",
    "check_positive",
    "check_vector",
]


def check_vector(name: str, vector: Sequence[float] | Tensor, count: int | None = None) -> Tensor:
    """A vector of non-negative numbers, one per objective, not all zero, as a float64 tensor on the CPU."""
    result = _as_vector(name, vector, count)
    if not bool(torch.isfinite(result).all()) or bool((result < 0).any()):
        raise ValueError(f"{name} must be finite and not negative, got {result.tolist()}")
    if float(result.sum()) == 0:
        raise ValueError(f"{name} must not sum to zero, got {result.tolist()}")
    return result


def check_numbers(name: str, vector: Sequence[float] | Tensor, count: int | None = None) -> Tensor:
    """A vector of finite numbers of either sign, one per objective, as a float64 tensor on the CPU."""
    result = _as_vector(name, vector, count)
    if not bool(torch.isfinite(result).all()):
        raise ValueError(f"{name} must be finite, got {result.tolist()}")
    return result


def check_choice(name: str, value: str, choices: Sequence[str]) -> str:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")
    return value


def check_positive(name: str, value: float, *, zero: bool = False) -> float:
    """A finite number above zero (or zero, where that is allowed)."""
    if not (_is_number(value) and (0 < value < float("inf") or (zero and value == 0))):
        raise ValueError(f"{name} must be {'zero or ' if zero else ''}positive and finite, got {value!r}")
    return float(value)


def check_fraction(name: str, value: float) -> float:
    """A number in [0, 1): the decay of a moving average, for example."""
    if not (_is_number(value) and 0 <= value < 1):
        raise ValueError(f"{name} must be at least 0 and below 1, got {value!r}")
    return float(value)


def check_betas(betas: tuple[float, float]) -> tuple[float, float]:
    """The decays of an optimizer's two moments."""
    if not isinstance(betas, (tuple, list)) or len(betas) != 2:
        raise ValueError(f"betas must be two numbers, of the first moment and of the second, got {betas!r}")
    first, second = (check_fraction(f"betas[{i}]", beta) for i, beta in enumerate(betas))
    return first, second


def check_integer(name: str, value: int, minimum: int | None = None) -> int:
    """An integer, at least ``minimum`` where that is given."""
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not whole or (minimum is not None and value < minimum):
        bound = "" if minimum is None else f", at least {minimum}"
        raise ValueError(f"{name} must be an integer{bound}, got {value!r}")
    return int(value)


def check_flag(name: str, value: bool) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be True or False, got {value!r}")
    return value


def _as_vector(name: str, vector: Sequence[float] | Tensor, count: int | None) -> Tensor:
    try:
        result = torch.as_tensor(vector, dtype=torch.float64, device="cpu").detach().clone()
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"{name} must be a vector with one number per objective, got {vector!r}") from None
    found = f"got {result.tolist()}"
    if result.dim() != 1 or result.numel() == 0:
        raise ValueError(f"{name} must be a vector with one number per objective, {found}")
    if count is not None and len(result) != count:
        raise ValueError(f"{name} must have {count} entries, one per objective, {found}")
    return result


def _is_number(value: Any) -> bool:
    if isinstance(value, Tensor):
        return value.numel() == 1 and not value.is_complex()
    return isinstance(value, Real) and not isinstance(value, bool)
