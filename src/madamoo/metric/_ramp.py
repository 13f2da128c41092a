"""M = alpha sqrt(C + eps) + (1 - alpha) s: what a curvature makes d be divided by, and the ramp-up to it."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from ..checks import check_integer, check_positive
from ..gradients import Block

Ramp: TypeAlias = Literal["largest", "paper"]
RAMPS = ("largest", "paper")
RAMPUP = 300


def rampup_steps(rampup: int | float, total_steps: int | None) -> int:
    rampup = check_positive("rampup", rampup, zero=True)
    if total_steps is not None:
        check_integer("total_steps", total_steps, minimum=1)
    if rampup == int(rampup):
        if total_steps is not None and rampup > total_steps:
            warnings.warn(f"rampup={rampup:g} is longer than the run, total_steps={total_steps}", stacklevel=3)
        return int(rampup)
    if rampup > 1:
        raise ValueError(f"rampup must be a whole number of steps or a fraction below 1, got {rampup!r}")
    if total_steps is None:
        raise ValueError(f"rampup={rampup!r} is a fraction of the run: give total_steps, got None")
    return max(1, round(rampup * total_steps))


def metric_of(
    d: Tensor,
    C: Tensor | None,
    block: Block,
    *,
    floor: float | None,
    eps: float,
    alpha: float,
    ramp: str,
    unit: float = 1.0,
) -> Tensor:
    """M = alpha sqrt(C + eps) + (1 - alpha) s; C may be overwritten. ``unit`` is what the paper's ramp has for s.

    With all pairs up to date C >= (1 - beta) d^2 holds by itself; ``floor`` = 1 - beta enforces it when they are not,
    so that no entry of d / M exceeds 1 / sqrt(floor). With 0, negative curvature counts as none; None is for curvature
    that is known to be above the floor.
    """
    if C is None:
        C = torch.zeros_like(d)
    if floor is not None:
        C = torch.maximum(C, floor * d.square()) if floor else C.clamp_(min=0.0)
    M = C.add_(eps).sqrt_()
    if alpha < 1.0:
        parts = M.split(block.sizes)
        for part, s in zip(parts, _scales(parts, block, ramp, unit), strict=True):
            part.mul_(alpha).add_((1.0 - alpha) * s)
    return M


def _scales(parts: Sequence[Tensor], block: Block, ramp: str, unit: float) -> Iterable[Tensor | float]:
    """s of each tensor."""
    return largest_entries(parts, block) if ramp == "largest" else [unit] * len(parts)


def largest_entries(parts: Sequence[Tensor], block: Block) -> Tensor:
    """The largest entry of each tensor of the block, with what other processes have of it; zero where it is empty."""
    return block.shards.largest(torch.stack([x.amax() if x.numel() else x.new_zeros(()) for x in parts]))
