"""Preference vectors on the simplex: the rays along which a front is measured."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count as counting
from math import comb
from typing import Any

import numpy as np
import torch
from torch import Tensor


def rays(n_objectives: int, count: int) -> Tensor:
    """``count`` preference vectors [count, C] on which to measure a front, the corners of the simplex among them.

    For two objectives they run evenly from (1, 0) to (0, 1); 11 are usual. For more, ``count`` is either the size of a
    :func:`lattice`, or C + 1: the one-hot vectors and the uniform one. There is no even choice of any other number.

    Example:
        >>> rays(2, 3).tolist()
        [[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]]
        >>> rays(3, 66).shape
        torch.Size([66, 3])
    """
    check_count("n_objectives", n_objectives, 2)
    check_count("count", count, 2)
    if n_objectives == 2:
        return lattice(2, count - 1)
    if count == n_objectives + 1:
        eye = torch.eye(n_objectives, device="cpu")
        return torch.cat([eye, torch.full_like(eye[:1], 1 / n_objectives)])
    for order in counting(1):
        size = lattice_size(n_objectives, order)
        if size == count:
            return lattice(n_objectives, order)
        if size > count:
            break
    possible = sorted({n_objectives + 1, lattice_size(n_objectives, max(order - 1, 1)), size})
    below, above = ([n for n in possible if n < count], [n for n in possible if n > count])
    raise ValueError(
        f"count must be the size of a lattice on {n_objectives} objectives, or {n_objectives + 1} for the one-hot rays "
        f"and the uniform one, got {count}; the nearest are {' and '.join(map(str, below[-1:] + above[:1]))}"
    )


def lattice(n_objectives: int, order: int) -> Tensor:
    """All points of the simplex whose coordinates are multiples of 1/order, [(order + C - 1 choose C - 1), C].

    The first coordinate descends, then the second, and so on.

    Example:
        >>> lattice(3, 2)[:, 0].tolist()
        [1.0, 0.5, 0.5, 0.0, 0.0, 0.0]
    """
    check_count("n_objectives", n_objectives, 2)
    check_count("order", order, 1)
    return grid(n_objectives, order).to(torch.get_default_dtype())


def grid(n_objectives: int, order: int) -> Tensor:
    """:func:`lattice` in float64."""
    return torch.tensor(list(_compositions(order, n_objectives)), dtype=torch.float64, device="cpu") / order


def lattice_size(n_objectives: int, order: int) -> int:
    return comb(order + n_objectives - 1, n_objectives - 1)


def check_count(name: str, value: int, least: int) -> int:
    """An integer of at least ``least``."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")
    return value


def as_doubles(values: Any) -> Tensor:
    """Numbers in a tensor, an array, nested lists or a list of tensors: a new float64 tensor on the CPU."""
    if isinstance(values, list | tuple) and values and isinstance(values[0], Tensor):
        values = torch.stack(list(values))
    if isinstance(values, Tensor):
        return values.detach().to("cpu", torch.float64, copy=True)
    return torch.from_numpy(np.array(values, dtype=np.float64))


def check_preferences(name: str, vectors: Any) -> Tensor:
    """Preference vectors [N, C], none negative and none zero, as they are given."""
    result = as_doubles(vectors)
    if result.dim() != 2 or result.numel() == 0:
        raise ValueError(f"{name} must have the shape [rays, objectives], got {list(result.shape)}")
    if not bool(torch.isfinite(result).all()) or bool((result < 0).any()):
        raise ValueError(f"{name} must be finite and not negative, got {result.tolist()}")
    if bool((result.amax(dim=1) == 0).any()):
        raise ValueError(f"{name} must not have a row of zeros, got {result.tolist()}")
    return result


def normalise(vectors: Tensor) -> Tensor:
    """Each row divided by its sum, but first by its largest entry: the sum of huge ones would overflow."""
    vectors = vectors / vectors.amax(dim=1, keepdim=True)
    return vectors / vectors.sum(dim=1, keepdim=True)


def _compositions(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    """The ways to write ``total`` as a sum of ``parts`` non-negative integers, the largest first part first."""
    if parts == 1:
        yield (total,)
        return
    for first in range(total, -1, -1):
        for rest in _compositions(total - first, parts - 1):
            yield (first, *rest)
