"""Several preferences in one step: one loss per objective and one lambda, with the direction that all have together."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

RayLosses: TypeAlias = Sequence[Tensor] | Mapping[str, Tensor]
"""The losses of one forward: one scalar an objective."""


def merge(losses: Sequence[RayLosses], preferences: Any, *, penalty: float = 0.0) -> tuple[Any, Tensor]:
    """The losses and the weights [C] whose direction is that of W rays together, for ``opt.backward``.

    With a^w the w-th preference and l_i^w the loss of objective i under it, lambda_i = sum_w a_i^w and
    L_i = sum_w a_i^w l_i^w / lambda_i, so that sum_i lambda_i dL_i = sum_w sum_i a_i^w dl_i^w exactly. An objective
    that no ray wants has weight zero and the plain mean of its losses.

    Args:
        losses: one entry per ray: the losses under that preference, a sequence or a dict of scalars. The merged losses
            come in the same form.
        preferences: [W, C], the rays.
        penalty: coefficient of the multi-forward regulariser of PaMaL, :func:`disorder`. It is added to an objective's
            share lambda_i L_i of the total, while it is smaller than that.

    Example::

        rays = sampler(step / total_steps)
        losses = [task_losses(model(x, preference=ray), y) for ray in rays]
        opt.zero_grad()
        opt.backward(*pareto.merge(losses, rays))
        opt.step()
    """
    if not 0.0 <= penalty < math.inf:
        raise ValueError(f"penalty must be zero or positive, got {penalty!r}")
    names, columns = _columns(losses)
    rays = _check_rays(preferences, len(losses), len(columns))
    merged = []
    # One objective at a time: losses that share no operation keep the heads apart in the backward passes.
    for column, wants in zip(columns, rays.T, strict=True):
        weight = wants.sum()
        if not weight > 0:
            merged.append(column.mean())
            continue
        share = wants.to(column) @ column
        if penalty:
            extra = penalty * disorder(column, wants)
            share = share + extra if extra < share else share
        merged.append(share / weight.to(column))
    return merged if names is None else dict(zip(names, merged, strict=True)), rays.sum(dim=0)


def disorder(losses: Tensor, wants: Tensor) -> Tensor:
    """How far the losses [W] of one objective fail to fall as the preference for it rises: PaMaL's regulariser.

    Sorted by ``wants`` [W], the objective's entries in the rays, the largest first, each fall from one loss to the next
    counts: log(sum_k exp(relu(l^k - l^(k+1))) / (W - 1)). Zero if there is none; equal rays are not compared.
    """
    if len(losses) < 2:
        return losses.new_zeros(())
    wants, order = wants.sort(descending=True, stable=True)
    falls = losses[order].diff().neg().relu()
    falls = torch.where(wants.diff().to(losses.device) < 0, falls, 0.0)
    return falls.logsumexp(dim=0) - math.log(len(falls))


def _columns(losses: Sequence[RayLosses]) -> tuple[list[str] | None, list[Tensor]]:
    """The names of the objectives, if they have some, and for each its losses [W]."""
    if not isinstance(losses, Sequence) or not losses:
        raise TypeError("losses must be a sequence with one entry per ray: the losses under that preference")
    first = losses[0]
    names = list(first) if isinstance(first, Mapping) else None
    count = len(first)
    for w, entry in enumerate(losses):
        if isinstance(entry, Mapping) != (names is not None) or len(entry) != count:
            raise ValueError(f"losses must hold the same {count} objectives for every ray; ray {w} does not")
        if isinstance(entry, Mapping) and set(entry) != set(first):
            raise ValueError(f"losses of ray {w} must be named {list(first)}, got {list(entry)}")
    keys: Sequence[Any] = range(count) if names is None else names
    return names, [torch.stack([entry[key] for entry in losses]) for key in keys]


def _check_rays(preferences: Any, count: int, n_objectives: int) -> Tensor:
    rays = torch.as_tensor(preferences, dtype=torch.get_default_dtype(), device="cpu").detach()
    if rays.shape != (count, n_objectives):
        raise ValueError(
            f"preferences must be [{count}, {n_objectives}], a ray for each entry of losses; got {tuple(rays.shape)}"
        )
    if not bool((rays.isfinite() & (rays >= 0)).all()):
        raise ValueError("preferences must be finite and not negative")
    return rays
