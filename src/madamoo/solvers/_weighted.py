"""Solvers that combine the gradients, or what they made of them, with given weights."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..checks import check_vector
from ._base import Solver


class WeightedSolver(Solver):
    """Holds ``coefficients`` [C]: the given ones, or 1/C each. They never change."""

    family = "gradient"
    needs_gram = True
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

    @property
    def has_state(self) -> bool:
        return self.n_objectives is None
