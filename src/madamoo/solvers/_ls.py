from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ._base import Solver
from ._checks import check_vector


class LS(Solver):
    """Linear scalarisation: constant weights, 1/C each unless given.

    Args:
        weights: one number for each objective, finite and not negative.

    Example:
        >>> LS().weights(torch.tensor([3.0, 1.0]))
        tensor([0.5000, 0.5000])
    """

    static = True
    per_objective = ("coefficients",)

    coefficients: Tensor

    def __init__(self, weights: Sequence[float] | Tensor | None = None) -> None:
        super().__init__()
        if weights is not None:
            given = check_vector("weights", weights)
            self.register_buffer("coefficients", given)
            self.n_objectives = len(given)

    def setup(self, n_objectives: int) -> None:
        self.register_buffer("coefficients", torch.full((n_objectives,), 1.0 / n_objectives, dtype=torch.float64))

    def weights(self, losses: Tensor, gram: Tensor | None = None, preference: Tensor | None = None) -> Tensor:
        self.ensure(len(losses))
        return self.coefficients.to(losses)
