"""Momentum before the metric: the running average of d, and the preference that it stands for.

An optimizer's momentum averages directions of old preferences; no curvature of today's preference belongs to it. With
the momentum before the metric both belong together: m is the average of d = sum_i lambda_i g_i, its preference is the
average of lambda over the same steps, and m is divided by the root of the curvature at that preference. Under constant
weights that is Adam's step, and in the eigenbasis SOAP's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..direction import Direction
from ..gradients import gathered, local, own_part


@dataclass(frozen=True)
class Moving:
    """Of one parameter: the averages of d and of the weights behind it, over ``n`` steps; they start at zero."""

    d: Tensor  # [entries]
    weights: tuple[float, ...]
    n: int


class Momentum:
    """The momentum of all parameters, with the decay ``beta``."""

    def __init__(self, beta: float, moving: dict[Tensor, Moving] | None = None) -> None:
        self.beta = beta
        self.moving = moving or {}

    def after(self, x: Direction) -> dict[Tensor, Moving]:
        """That of the parameters of a block once this direction is in; nothing is kept."""
        if x.mask is not None:
            raise ValueError(
                "momentum= needs one weight per objective, and this solver weighs coordinate by coordinate: leave the "
                "momentum to the optimizer"
            )
        found = {}
        for param, part in x.block.parts():
            d, weights, n = (1.0 - self.beta) * x.d[part], [(1.0 - self.beta) * w for w in x.weights], 1
            if (before := self.moving.get(param)) is not None:
                d.add_(before.d, alpha=self.beta)
                weights = [w + self.beta * old for w, old in zip(weights, before.weights, strict=True)]
                n += before.n
            found[param] = Moving(d, tuple(weights), n)
        return found

    def averages(self, moving: Mapping[Tensor, Moving]) -> tuple[Tensor, tuple[float, ...]]:
        """m and its preference for a block, corrected for the start at zero.

        The parameters of a block have been moved in the same steps; should one be younger, the oldest tells.
        """
        oldest = max(moving.values(), key=lambda one: one.n)
        m = torch.cat([one.d / (1.0 - self.beta**one.n) for one in moving.values()])
        return m, tuple(w / (1.0 - self.beta**oldest.n) for w in oldest.weights)

    def keep(self, moving: Mapping[Tensor, Moving]) -> None:
        self.moving.update(moving)

    def bytes(self, param: Tensor, dtype: torch.dtype) -> int:
        return param.numel() * dtype.itemsize

    def state_dict(self, params: Sequence[Tensor]) -> dict[int, dict[str, Any]]:
        return {
            i: {
                "d": gathered(p, self.moving[p].d.reshape(local(p).shape)).clone(),
                "weights": list(self.moving[p].weights),
                "n": self.moving[p].n,
            }
            for i, p in enumerate(params)
            if p in self.moving
        }

    def loaded(
        self,
        state: Mapping[int, Mapping[str, Any]],
        params: Sequence[Tensor],
        dtype_of: Callable[[Tensor], torch.dtype],
    ) -> Momentum:
        """That of such a state, in the precision of each parameter; raises ValueError if it is none."""
        moving: dict[Tensor, Moving] = {}
        for index, entry in state.items():
            if not 0 <= index < len(params):
                raise ValueError(f"the checkpoint has a momentum of parameter {index}; there are {len(params)}")
            param, d = params[index], entry["d"]
            if d.shape != param.shape or entry["n"] < 1:
                found = f"{tuple(d.shape)} after {entry['n']} steps"
                raise ValueError(f"the checkpoint's momentum of parameter {index} is {found}, not {tuple(param.shape)}")
            part = own_part(param, d).to(device=local(param).device, dtype=dtype_of(param), copy=True).reshape(-1)
            moving[param] = Moving(part, tuple(map(float, entry["weights"])), int(entry["n"]))
        return Momentum(self.beta, moving)
