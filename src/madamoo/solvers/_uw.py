from __future__ import annotations

from collections.abc import Sequence

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
        kinds: ``"regression"``, ``"classification"``, or one of them for each objective.
        lr: rate of the solver's own Adam on s; the slope it follows is cut to [-0.5, 0.5].
        eps: the smallest loss that is told from zero.
    """

    per_objective = (*LearningSolver.per_objective, "factor")
    factor: Tensor

    def __init__(self, kinds: str | Sequence[str] = "regression", *, lr: float = 0.025, eps: float = 1e-8) -> None:
        super().__init__(lr)
        self.eps = check_positive("eps", eps)
        for kind in [kinds] if isinstance(kinds, str) else kinds:
            check_choice("kinds", kind, ("regression", "classification"))
        self.kinds = kinds

    def setup(self, n_objectives: int) -> None:
        super().setup(n_objectives)
        kinds = [self.kinds] * n_objectives if isinstance(self.kinds, str) else list(self.kinds)
        if len(kinds) != n_objectives:
            raise ValueError(f"kinds must have {n_objectives} entries, one for each objective, got {kinds}")
        self.register_buffer(
            "factor", torch.tensor([0.5 if k == "regression" else 1.0 for k in kinds], dtype=torch.float64)
        )

    def weights(self, losses: Tensor, gram: Tensor | None = None, preference: Tensor | None = None) -> Tensor:
        self.ensure(len(losses))
        weights = self.factor * torch.exp(-self.variable)
        # Derivative by s_i of  weights_i l_i + s_i / 2. It is 0.5 for a small loss and unbounded for a large one, which
        # Adam would remember long after s_i has begun to follow: cut at -0.5, s_i moves by lr a step from either side.
        slope = 0.5 - weights * magnitudes(losses, self.eps).to(weights)
        self.descend(slope.clamp_min(-0.5))
        return weights.to(losses)
