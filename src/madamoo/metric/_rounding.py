"""Averages in less than 32 bits: kept small, changed in float32, and rounded at random so that none stalls.

An average with decay 0.999 changes by a thousandth of itself in a step. Rounded to the nearest bfloat16, which has
eight bits, that is no change at all. Rounded up or down at random, with odds that make the expectation right, it is.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..gradients import Block

DROPPED = {torch.bfloat16: 16, torch.float8_e5m2: 21}
"""The small dtypes: each is float32 with a shorter mantissa, and how many bits of it are missing."""
SMALLEST_SCALE = 1 / 32  # so that what is stored is at most so many times larger than what it stands for
LOWEST, HIGHEST = 2.0**6, 2.0**14  # where the largest entry of a row in float8 is kept: it ends at 57344
SUBNORMAL, QUANTUM = 2.0**-14, 2.0**-16  # float8: below this, numbers are multiples of that
FAINTEST = 2.0**-100  # the smallest factor of a row in float8

Product = tuple[Tensor, Tensor, float]


def decayed(row: Tensor, scale: float, decay: float, product: Product, bits: Tensor | None = None) -> float:
    """scale * row <- decay * scale * row + c * a * b, the ``product``; returns the new scale."""
    a, b, c = product
    scale *= decay
    x = row if bits is None else row.to(a.dtype)
    least, unit = SMALLEST_SCALE, 1.0
    if row.dtype is torch.float8_e5m2:  # with a smaller scale the product would be too large for it
        least = unit = max(FAINTEST, c * _largest(a) * _largest(b) / HIGHEST)
    if scale < least:
        x.mul_(scale / unit)
        scale = unit
    if row.dtype is not torch.float8_e5m2:
        x.addcmul_(a, b, value=c / scale)
    else:
        x.add_((a * b).mul_(c), alpha=1.0 / scale)  # in this order: neither c / scale nor a c / scale need be finite
    if bits is None:
        return scale
    if row.dtype is torch.float8_e5m2:
        factor = _into_range(x, scale)
        x.mul_(factor)
        scale /= factor
    row.copy_(rounded(x, row.dtype, bits))
    return scale


def _into_range(x: Tensor, scale: float) -> float:
    """The power of two that brings the largest entry to where float8 has the most room on both sides."""
    largest = _largest(x)
    if largest == 0.0 or LOWEST <= largest <= HIGHEST:
        return 1.0
    return float(min(2.0 ** (13 - math.frexp(largest)[1]), scale / FAINTEST))


def _largest(x: Tensor) -> float:
    return float(x.abs().amax()) if x.numel() else 0.0


def random_bits(like: Tensor, noise: torch.Generator | None, block: Block | None = None) -> Tensor | None:
    """Sixteen random bits for each entry of a row of ``like``; None if its dtype needs no rounding.

    For a block of which this process has a part, they are drawn as for the whole: all processes draw the same.
    """
    if like.dtype not in DROPPED:
        return None
    if noise is None:
        raise ValueError(f"averages in {like.dtype} need a generator to round them")
    if like.device.type != "cpu":  # the generator that is saved lives on the CPU
        seed = int(torch.randint(2**62, (), generator=noise, device=noise.device))
        noise = torch.Generator(like.device).manual_seed(seed)
    size = like.shape[-1] if block is None else sum(block.whole_sizes)
    words = torch.empty((size + 3) // 4, dtype=torch.int64, device=like.device)
    words.random_(-(2**63), None, generator=noise)  # four entries per draw
    bits = words.view(torch.int16)[:size]
    return (bits if block is None else block.own(bits)).to(torch.int32).bitwise_and_(0xFFFF)


def rounded(x: Tensor, dtype: torch.dtype, bits: Tensor) -> Tensor:
    """x in a small dtype, its expectation over ``bits`` that of x."""
    x = x.float()
    drop = DROPPED[dtype]
    spread = bits if drop == 16 else (bits << (drop - 16)) + (1 << (drop - 17))
    y = (x.view(torch.int32) + spread).bitwise_and_(-1 << drop).view(torch.float32)
    if dtype is torch.float8_e5m2:
        faint = torch.floor(x.abs() / QUANTUM + (bits + 0.5) / 65536.0) * QUANTUM
        y = torch.where(x.abs() < SUBNORMAL, torch.copysign(faint, x), y)
    return y.to(dtype)


def chosen(rows: Tensor, places: Tensor) -> Tensor:
    """The entries of ``rows`` [..., n] at some places, in any dtype: torch has no index for float8."""
    if rows.dtype is not torch.float8_e5m2:
        return rows[..., places]
    return rows.view(torch.uint8)[..., places].view(rows.dtype)


def check_dtype(saved: Tensor, dtype: torch.dtype | None) -> None:
    """Raise unless averages that were saved can be kept in ``dtype``."""
    small = {saved.dtype, dtype} & DROPPED.keys()
    if small and saved.dtype != dtype:
        raise ValueError(f"are in {saved.dtype}, here they are kept in {dtype or 'that of the parameter'}")
