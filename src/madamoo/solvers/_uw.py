from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ..checks import check_choice, check_positive
from ._learning import LearningSolver
from ._values import magnitudes


class UW(LearningSolver):
    """Uncertainty weighting (`Kendall et al., 2018 <https://arxiv.org/abs/1705.07115>`_).

    Learns s_i = log sigma_i^2, the noise of each objective. A regression loss enters the likelihood as
    l_i / (2 sigma_i^2) + log sigma_i, a classification loss as l_i / sigma_i^2 + log sigma_i; lambda_i is the factor
    of l_i there. A loss counts by its magnitude, below ``eps`` as ``eps``: lambda_i stays near 1 / (2 eps) at most.

    Args:
        kinds: ``"regression"``, ``"classification"``, or one of them per objective, in order or by name.
        lr: rate of the solver's own Adam on s; the slope it follows is cut to [-0.5, 0.5].
        eps: losses below it count as it.

    Example:
        >>> UW(["regression", "classification"]).solve(torch.tensor([4.0, 1.0]))
        tensor([0.5000, 1.0000])
    """

    per_objective = (*LearningSolver.per_objective, "factor")
    factor: Tensor

    def __init__(
        self, kinds: str | Mapping[str, str] | Sequence[str] = "regression", *, lr: float = 0.025, eps: float = 1e-8
    ) -> None:
        super().__init__(lr)
        self.eps = check_positive("eps", eps)
        self.kinds = kinds
        if isinstance(kinds, str):
            _factors("kinds", [kinds])
        self.take_per_objective("kinds", None if isinstance(kinds, str) else kinds, _factors)

    def setup(self, n_objectives: int) -> None:
        super().setup(n_objectives)
        given = self.values_per_objective("kinds", n_objectives)
        self.register_buffer("factor", _factors("kinds", [self.kinds] * n_objectives) if given is None else given)

    def weights(self, losses: Tensor, gram: Tensor | None = None, preference: Tensor | None = None) -> Tensor:
        self.ensure(len(losses))
        weights = self.factor * torch.exp(-self.variable)
        # Derivative by s_i of  weights_i l_i + s_i / 2. It is 0.5 for a small loss and unbounded for a large one, which
        # Adam would remember long after s_i has begun to follow. Cut at -0.5, s_i moves by lr per step either way.
        slope = 0.5 - weights * magnitudes(losses, self.eps).to(weights)
        self.descend(slope.clamp_min(-0.5))
        return weights.to(losses)


def _factors(name: str, kinds: Any, count: int | None = None) -> Tensor:
    """The factor of l_i in the likelihood at sigma_i = 1, by kind."""
    if not isinstance(kinds, list):
        raise ValueError(f"{name} must be a string, or one string per objective, got {kinds!r}")
    if count is not None and len(kinds) != count:
        raise ValueError(f"{name} must have {count} entries, one per objective, got {kinds}")
    known = {"regression": 0.5, "classification": 1.0}
    return torch.tensor([known[check_choice(name, kind, list(known))] for kind in kinds], dtype=torch.float64)
