"""Adam's moments, kept for each objective: one row per objective that reaches the parameter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

Places: TypeAlias = slice | list[int]
"""Which rows of a parameter's state a step uses: all of them (a slice), or those of the objectives present."""


def moment_dtype(param: Tensor) -> torch.dtype:
    """At least float32: an average that changes by a thousandth a step does not change at all in less."""
    return torch.promote_types(param.dtype, torch.float32)


def open_state(state: dict[str, Any], param: Tensor, keys: Sequence[int], **shapes: tuple[int, ...]) -> Places:
    """The places of the objectives ``keys`` in a parameter's state, made at first sight; counts this update of theirs.

    ``shapes`` names what is kept for each objective beside ``updates`` and the two moments. The rows are in the order
    of the objectives, whichever came first.
    """
    old = state.get("objectives", [])
    if not set(keys) <= set(old):
        new = sorted({*old, *keys})
        updates = dict(zip(old, state.get("updates", []), strict=True))
        for name, shape in {"first_moment": param.shape, "second_moment": param.shape, **shapes}.items():
            room = torch.zeros(len(new), *shape, dtype=moment_dtype(param), device=param.device)
            if old:
                room[[new.index(key) for key in old]] = state[name]
            state[name] = room
        state["objectives"], state["updates"] = new, [updates.get(key, 0) for key in new]
    at = [state["objectives"].index(key) for key in keys]
    for i in at:
        state["updates"][i] += 1
    return slice(None) if at == list(range(len(state["objectives"]))) else at


def updates_of(state: dict[str, Any], at: Places) -> list[int]:
    """t of each objective: how often it has had a gradient for this parameter, this one included."""
    updates: list[int] = state["updates"]
    return updates[at] if isinstance(at, slice) else [updates[i] for i in at]


def update_moments(state: dict[str, Any], at: Places, g: Tensor, betas: tuple[float, float]) -> tuple[Tensor, Tensor]:
    """Take the gradients g [K, *shape] into both moments, and return copies of these with Adam's bias correction."""
    corrected = []
    for name, beta, x in (("first_moment", betas[0], g), ("second_moment", betas[1], g.square())):
        m = state[name][at].lerp_(x, 1 - beta)  # m <- beta m + (1 - beta) x
        if not isinstance(at, slice):  # a list of places gave a copy, a slice the state itself
            state[name][at] = m
        correction = g.new_tensor([1 - beta**t for t in updates_of(state, at)])
        corrected.append(m / correction.view(-1, *[1] * (g.dim() - 1)))
    return corrected[0], corrected[1]
