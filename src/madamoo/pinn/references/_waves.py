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

    Fourth order in space where c is smooth, second order in time; n intervals per side, steps of ``courant`` h / speed.
    Where c jumps within a cell, the mean of 1 / c over the cell counts, as in the weak form (u_tt / c, w).
    """
    x = np.linspace(low, high, n + 1)
    grid = list(np.meshgrid(x, x, indexing="ij"))
    h = (high - low) / n
    c, u = _cell_means(coefficient, grid, h, low, high), start(*grid)
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


def _cell_means(
    coefficient: Callable[[Array, Array], Array], grid: list[Array], h: float, low: float, high: float, parts: int = 6
) -> Array:
    """The harmonic mean of the coefficient over the cell around each grid point."""
    offsets = h * ((np.arange(parts) + 0.5) / parts - 0.5)
    total = np.zeros_like(grid[0])
    for a in offsets:
        for b in offsets:
            total += 1 / coefficient(np.clip(grid[0] + a, low, high), np.clip(grid[1] + b, low, high))
    return parts**2 / total


def _laplacian(u: Array) -> Array:
    """h^2 times the Laplacian of fourth order, mirrored at the boundary (zero Neumann)."""
    p, middle = np.pad(u, 2, mode="reflect"), slice(2, -2)
    near = p[3:-1, middle] + p[1:-3, middle] + p[middle, 3:-1] + p[middle, 1:-3]
    far = p[4:, middle] + p[:-4, middle] + p[middle, 4:] + p[middle, :-4]
    found: Array = (16 * near - far - 60 * u) / 12
    return found
