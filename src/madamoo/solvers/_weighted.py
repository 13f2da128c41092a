"""Solvers that combine the gradients, or what they made of them, with given weights."""

from __future__ import annotations

import torch
from torch import Tensor

from ..checks import check_vector
from ._base import Solver
from ._options import PerObjectiveNumbers


class WeightedSolver(Solver):
    """Holds ``coefficients`` [C]: the given weights, or 1/C each. Training does not change them."""

    family = "gradient"
    needs_gram = True
    per_objective = ("coefficients",)

    coefficients: Tensor

    def __init__(self, weights: PerObjectiveNumbers | None = None) -> None:
        super().__init__()
        self.take_per_objective("weights", weights, check_vector)

    def setup(self, n_objectives: int) -> None:
        given = self.values_per_objective("weights", n_objectives)
        equal = torch.full((n_objectives,), 1.0 / n_objectives, dtype=torch.float64)
        self.register_buffer("coefficients", equal if given is None else given)

    @property
    def has_state(self) -> bool:
        return self.n_objectives is None
