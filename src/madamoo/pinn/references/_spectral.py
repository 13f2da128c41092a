"""Spectral methods in space, exponential time differencing in time: for periodic problems and sine series."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Modes = Any
"""Coefficients, real or complex."""


def etdrk4(
    linear: Array,
    nonlinear: Callable[[Modes, float], Modes],
    start: Modes,
    times: Sequence[float],
    step: float,
) -> list[Modes]:
    """Solutions of v' = linear v + nonlinear(v, t) at ``times`` (ascending; the first is the start), fourth order.

    `Kassam and Trefethen: Fourth-order time-stepping for stiff PDEs (2005) <https://doi.org/10.1137/S1064827502410633>`_.
    ``linear`` is diagonal. Steps are shortened so that they end at each of ``times``.
    """
    v, t, found = start, times[0], [start]
    known: dict[float, tuple[Array, ...]] = {}
    for end in times[1:]:
        count = max(1, int(np.ceil((end - t) / step - 1e-9)))
        h = (end - t) / count
        key = round(h, 15)
        if key not in known:
            known[key] = _coefficients(linear, h)
        e, e2, q, f1, f2, f3 = known[key]
        for _ in range(count):
            n = nonlinear(v, t)
            a = e2 * v + q * n
            na = nonlinear(a, t + h / 2)
            b = e2 * v + q * na
            nb = nonlinear(b, t + h / 2)
            c = e2 * a + q * (2 * nb - n)
            nc = nonlinear(c, t + h)
            v = e * v + f1 * n + 2 * f2 * (na + nb) + f3 * nc
            t += h
        t = end
        found.append(v)
    return found


def _coefficients(linear: Array, h: float, nodes: int = 32) -> tuple[Array, ...]:
    """By a mean over a circle around each entry, since the formulas cancel near zero."""
    z = h * linear
    circle = np.exp(1j * np.pi * (np.arange(1, nodes + 1) - 0.5) / nodes)
    q, f1, f2, f3 = (np.zeros_like(z) for _ in range(4))
    for r in circle:
        p = z + r
        ep = np.exp(p)
        q += ((np.exp(p / 2) - 1) / p).real
        f1 += ((-4 - p + ep * (4 - 3 * p + p**2)) / p**3).real
        f2 += ((2 + p + ep * (-2 + p)) / p**3).real
        f3 += ((-4 - 3 * p - p**2 + ep * (4 - p)) / p**3).real
    return np.exp(z), np.exp(z / 2), h * q / nodes, h * f1 / nodes, h * f2 / nodes, h * f3 / nodes


def kuramoto_sivashinsky(
    start: Callable[[Array], Array],
    times: Sequence[float],
    n: int = 256,
    step: float = 1e-4,
    alpha: float = 100 / 16,
    beta: float = 100 / 16**2,
    gamma: float = 100 / 16**4,
) -> tuple[Array, Array]:
    """u_t + alpha u u_x + beta u_xx + gamma u_xxxx = 0, period 2 pi: x [n] and u [times, n]."""
    x = 2 * np.pi * np.arange(n) / n
    k = np.fft.rfftfreq(n, 1 / n)
    keep = k < n / 3

    def nonlinear(v: Modes, t: float) -> Modes:
        return -0.5j * alpha * k * keep * np.fft.rfft(np.fft.irfft(v, n) ** 2)

    found = etdrk4(beta * k**2 - gamma * k**4, nonlinear, np.fft.rfft(start(x)), times, step)
    return x, np.stack([np.fft.irfft(v, n) for v in found])


def gray_scott(
    start: Callable[[Array, Array], tuple[Array, Array]],
    times: Sequence[float],
    n: int = 256,
    step: float = 0.5,
    diffusion: tuple[float, float] = (1e-5, 5e-6),
    feed: float = 0.04,
    decay: float = 0.1,
    low: float = -1.0,
    high: float = 1.0,
) -> tuple[Array, Array]:
    """u_t = d1 Lap u + feed (1 - u) - u v^2, v_t = d2 Lap v - decay v + u v^2, periodic.

    x is [n], (u, v) is [times, 2, n, n].
    """
    from scipy import fft

    x = low + (high - low) * np.arange(n) / n
    k2 = _squares(n, high - low)
    keep = _dealias(n, 2)
    linear = np.stack([-diffusion[0] * k2 - feed, -diffusion[1] * k2 - decay])
    source = np.zeros_like(linear)
    source[0, 0, 0] = feed * n * n

    def nonlinear(v: Modes, t: float) -> Modes:
        a, b = fft.irfft2(v, (n, n))
        reaction = fft.rfft2(a * b * b) * keep
        return np.stack([source[0] - reaction, reaction])

    first = fft.rfft2(np.stack(start(*np.meshgrid(x, x, indexing="ij"))))
    found = etdrk4(linear, nonlinear, first, times, step)
    return x, np.stack([fft.irfft2(v, (n, n)) for v in found])


def burgers_2d(
    start: Callable[[Array, Array], tuple[Array, Array]],
    times: Sequence[float],
    n: int = 256,
    step: float = 1e-3,
    nu: float = 1e-3,
    length: float = 4.0,
) -> tuple[Array, Array]:
    """u_t + (u . grad) u = nu Lap u for the velocity (u, v), periodic: x [n] and (u, v) [times, 2, n, n].

    Fronts have a width of about nu over the velocity. Where the grid does not resolve them, the higher modes alone get
    more viscosity (`Tadmor's spectral vanishing viscosity (1989) <https://doi.org/10.1137/0726003>`_): fronts are as
    thin as the grid allows and move at the right speed, and the addition vanishes on a grid that is fine enough.
    """
    from scipy import fft

    x = length * np.arange(n) / n
    kx, ky = _wavenumbers(n, length)
    keep = _dealias(n, 1.5)

    def nonlinear(v: Modes, t: float) -> Modes:
        velocity = fft.irfft2(v, (n, n))
        by_x, by_y = fft.irfft2(1j * kx * v, (n, n)), fft.irfft2(1j * ky * v, (n, n))
        return -fft.rfft2(velocity[0] * by_x + velocity[1] * by_y) * keep

    values = np.stack(start(*np.meshgrid(x, x, indexing="ij")))
    extra = max(0.0, abs(values).max() * length / n - nu)
    k = np.sqrt(kx**2 + ky**2) / (2 * np.pi / length * n / 3)  # 1 at the highest mode that is kept
    share = np.where(k > 0.25, np.exp(-(np.minimum(k - 1, 0) ** 2) / np.maximum(k - 0.25, 1e-9) ** 2), 0.0)
    linear = np.broadcast_to(-(nu + extra * share) * (kx**2 + ky**2), (2, n, n // 2 + 1)).copy()
    first = fft.rfft2(values) * keep
    found = etdrk4(linear, nonlinear, first, times, step)
    return x, np.stack([fft.irfft2(v, (n, n)) for v in found])


def heat_with_source(
    start: Callable[[Array, Array], Array],
    source: Callable[[Array, Array, Array, float], Array],
    times: Sequence[float],
    n: int = 64,
    step: float = 0.01,
    diffusion: float = 1e-3,
) -> tuple[Array, Array]:
    """u_t = diffusion Lap u + source(u, x, y, t) on the unit square, u = 0 on its boundary, by sine series.

    x [n - 1] are the inner grid points, u is [times, n - 1, n - 1].
    """
    from scipy import fft

    x = np.arange(1, n) / n
    grid = np.meshgrid(x, x, indexing="ij")
    k = np.pi * np.arange(1, n)
    linear = -diffusion * (k[:, None] ** 2 + k[None, :] ** 2)

    def nonlinear(v: Modes, t: float) -> Modes:
        return fft.dstn(source(fft.idstn(v, type=1), *grid, t), type=1)

    found = etdrk4(linear, nonlinear, fft.dstn(start(*grid), type=1), times, step)
    return x, np.stack([fft.idstn(v, type=1) for v in found])


def _wavenumbers(n: int, length: float) -> tuple[Array, Array]:
    scale = 2 * np.pi / length
    kx, ky = np.fft.fftfreq(n, 1 / n)[:, None], np.fft.rfftfreq(n, 1 / n)[None, :]
    return (scale * kx).astype(np.float64), (scale * ky).astype(np.float64)


def _squares(n: int, length: float) -> Array:
    kx, ky = _wavenumbers(n, length)
    return kx**2 + ky**2


def _dealias(n: int, factor: float) -> Array:
    """One for the modes whose products of ``factor`` times the band do not fold back."""
    kx, ky = np.fft.fftfreq(n, 1 / n)[:, None], np.fft.rfftfreq(n, 1 / n)[None, :]
    return ((abs(kx) < n / (2 * factor)) & (abs(ky) < n / (2 * factor))).astype(float)
