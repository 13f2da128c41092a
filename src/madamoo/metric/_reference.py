"""The metric as the paper writes it, one objective at a time: slow, short, and what the fast one is tested against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt

import torch
from torch import Tensor


class ReferenceMetric:
    """MAdam's metric for one parameter; see :class:`~madamoo.PreferenceMetric` for what the arguments mean.

    Example:
        >>> metric = ReferenceMetric(beta=0.9)
        >>> g = {0: torch.tensor([1.0, 10.0]), 1: torch.tensor([1.0, -10.0])}
        >>> metric.step(g, [(0, 0), (0, 1), (1, 1)], [0.75, 0.25], 0.75 * g[0] + 0.25 * g[1])
        tensor([1., 1.])
    """

    def __init__(
        self,
        beta: float = 0.999,
        eps: float = 1e-16,
        rampup: int = 0,
        ramp: str = "largest",
        bias_correction: bool = True,
        floor: bool = True,
        normalise: bool = False,
    ) -> None:
        self.beta, self.eps, self.rampup, self.ramp = beta, eps, rampup, ramp
        self.bias_correction, self.floor, self.normalise = bias_correction, floor, normalise
        self.F: dict[tuple[int, int], Tensor] = {}
        self.n: dict[tuple[int, int], int] = {}
        self.norm: dict[int, float] = {}
        self.t = 0

    def step(
        self, g: Mapping[int, Tensor], pairs: Sequence[tuple[int, int]], weights: Sequence[float], d: Tensor
    ) -> Tensor:
        """Take in the gradients ``g`` of some objectives, update the given ``pairs``, and return d / M."""
        # step 1: Fisher averages
        if self.normalise:
            self.norm.update({i: float(g[i].norm()) for i in g})
            g = {i: g[i] / (self.norm[i] or 1.0) for i in g}
            weights = [w * self.norm.get(i, 0.0) for i, w in enumerate(weights)]
        for i, j in pairs:
            old = self.F.get((i, j), torch.zeros_like(d))
            self.F[i, j] = self.beta * old + (1 - self.beta) * g[i] * g[j]
            self.n[i, j] = self.n.get((i, j), 0) + 1
        # step 2: assemble the metric
        C = torch.zeros_like(d)
        for (i, j), F in self.F.items():
            F_hat = F / (1 - self.beta ** self.n[i, j]) if self.bias_correction else F
            C = C + (1 if i == j else 2) * weights[i] * weights[j] * F_hat
        if self.floor and not pairs:
            C = torch.where(C == 0, d * d, C)
        C = torch.maximum(C, (1 - self.beta) * d * d) if self.floor else torch.clamp(C, min=0)
        root = torch.sqrt(C + self.eps)
        alpha = min(1.0, self.t / self.rampup) if self.rampup else 1.0
        s = d.new_ones(())
        if self.ramp != "paper" and d.numel():
            s = root.max() if self.ramp == "largest" else root.mean()
        M = alpha * root + (1 - alpha) * s
        self.t += 1
        # step 3: precondition the direction
        return d / M

    @property
    def bound(self) -> float:
        """With the floor and without ramp-up no entry of the result is larger than this."""
        return 1 / sqrt(1 - self.beta)
