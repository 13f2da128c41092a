"""Points of the unit cube: the designs from which every geometry draws its own."""

from __future__ import annotations

import torch
from torch import Tensor

SAMPLERS = ("pseudo", "uniform", "lhs", "sobol", "halton", "hammersley")
_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53)


def unit_points(count: int, dim: int, sampler: str, generator: torch.Generator | None = None) -> Tensor:
    """``count`` points of ``[0, 1)^dim`` in float64; ``generator`` makes another draw of the same design.

    Without a generator "sobol", "halton", "hammersley" and "uniform" are the plain sequences, the same each time; with
    one they are shifted modulo 1, which keeps their even spread. "pseudo" and "lhs" always draw.

    Example: ``unit_points(8192, 2, "hammersley")``.
    """
    if sampler not in SAMPLERS:
        raise ValueError(f"sampler must be one of {', '.join(SAMPLERS)}, got {sampler!r}")
    if count < 1:
        raise ValueError(f"count must be at least 1, got {count}")
    if sampler == "pseudo":
        return torch.rand(count, dim, generator=generator, dtype=torch.float64, device="cpu")
    if sampler == "lhs":
        strata = torch.stack([torch.randperm(count, generator=generator, device="cpu") for _ in range(dim)], 1)
        return (strata + torch.rand(count, dim, generator=generator, dtype=torch.float64, device="cpu")) / count
    if sampler == "uniform":
        points = _grid(count, dim)
    elif sampler == "sobol":
        # the first point of the sequence is the origin, a corner that would be drawn in every domain
        points = _sobol(dim, count + 1)[1:]
    elif dim > len(_PRIMES):
        raise ValueError(f"{sampler} has {len(_PRIMES)} dimensions at most, got {dim}: take 'sobol'")
    else:
        index = torch.arange(1, count + 1, device="cpu")
        columns = [radical_inverse(index, prime) for prime in _PRIMES[: dim - (sampler == "hammersley")]]
        if sampler == "hammersley":
            columns.insert(0, (index - 0.5).double() / count)
        points = torch.stack(columns, 1)
    if generator is not None:
        points = (points + torch.rand(dim, generator=generator, dtype=torch.float64, device="cpu")) % 1.0
    return points


def radical_inverse(index: Tensor, base: int) -> Tensor:
    """The digits of each index in this base, mirrored at the point: 6 = 110 in base 2 gives 0.011 = 0.375."""
    left, weight = index.clone(), 1.0 / base
    value = torch.zeros(index.shape, dtype=torch.float64, device="cpu")
    while bool((left > 0).any()):
        value += weight * (left % base)
        left, weight = left // base, weight / base
    return value


def _grid(count: int, dim: int) -> Tensor:
    """The first ``count`` cell centres of the smallest cubic grid that has so many, spread over all of it."""
    side = 1
    while side**dim < count:
        side += 1
    axis = (torch.arange(side, dtype=torch.float64, device="cpu") + 0.5) / side
    points = torch.cartesian_prod(*[axis] * dim).reshape(-1, dim)
    return points[torch.arange(count, device="cpu") * len(points) // count]


def _sobol(dim: int, count: int) -> Tensor:
    with torch.device("cpu"):  # torch's engine draws there and nowhere else
        return torch.quasirandom.SobolEngine(dim).draw(count, dtype=torch.float64)
