"""What the solver's weights did: their mean, and how fast they moved."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class WeightLog:
    """Shares lambda / sum |lambda| over the steps of an epoch.

    ``moved`` is the part of the total weight that changes hands from one step to the next: 0 for constant weights, 1 if
    each step's weights have nothing in common with the last one's.
    """

    def __init__(self, count: int) -> None:
        self.sums = torch.zeros(count, dtype=torch.float64)
        self.moved, self.steps = 0.0, 0
        self.last: Tensor | None = None

    def add(self, weights: Tensor | None) -> None:
        """The weights [C] of a step; None if it had none."""
        if weights is None:
            return
        share = weights.detach().to("cpu", torch.float64)
        share = share / share.abs().sum().clamp_min(torch.finfo(torch.float64).tiny)
        if self.last is not None:
            self.moved += 0.5 * float((share - self.last).abs().sum())
        self.sums += share
        self.steps += 1
        self.last = share

    def take(self) -> dict[str, Any]:
        """The means since the last call; the next epoch begins."""
        if not self.steps:
            return {"weights": None, "weights_moved": None}
        found = {"weights": (self.sums / self.steps).tolist(), "weights_moved": self.moved / self.steps}
        self.sums.zero_()
        self.moved, self.steps = 0.0, 0
        return found

    def state_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
