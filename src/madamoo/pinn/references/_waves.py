"""The wave equation in a medium, by finite differences and leapfrog steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def heterogeneous_wave(
    coefficient: Callable[[Array, Array], Array],
    start: Callable[[Array, Array], Array],
    times: Sequence[float],
    n: int = 256,
    low: float = -1.0,
    high: float = 1.0,
    courant: float = 0.5,
) -> tuple[Array, Array]:
    """u_tt = c(x, y) Lap u on a square, zero Neumann, u_t = 0 at the first time: x [n + 1], u [times, n + 1, n + 1].

    Second order in space and time where c is smooth; n intervals per side.
    """
    x = np.linspace(low, high, n + 1)
    grid = np.meshgrid(x, x, indexing="ij")
    c, u = coefficient(*grid), start(*grid)
    h = (high - low) / n
    spacing = np.diff(times)
    if not np.allclose(spacing, spacing[0]):
        raise ValueError(f"times must be evenly spaced, got {list(times)}")
    count = max(1, int(np.ceil(spacing[0] * np.sqrt(c.max()) / (courant * h) - 1e-9)))
    factor = c * (spacing[0] / count / h) ** 2
    found: list[Array] = [u]
    before: Array | None = None
    for _ in spacing:
        for _ in range(count):
            change = factor * _laplacian(u)
            if before is None:  # at rest: u(-dt) = u(dt)
                before, u = u, u + change / 2
            else:
                before, u = u, 2 * u - before + change
        found.append(u)
    return x, np.stack(found)


def _laplacian(u: Array) -> Array:
    """h^2 times the five-point Laplacian, mirrored at the boundary (zero Neumann)."""
    padded = np.pad(u, 1, mode="reflect")
    return padded[2:, 1:-1] + padded[:-2, 1:-1] + padded[1:-1, 2:] + padded[1:-1, :-2] - 4 * u
