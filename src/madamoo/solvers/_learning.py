"""Solvers that learn a vector, one entry per objective, by gradient steps of their own."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from ..checks import check_positive
from ._base import Solver


class LearningSolver(Solver):
    """Holds ``variable`` [C] and moves it by Adam with its own rate, so that the scale of the losses does not matter.

    Nothing of it is in the user's parameter groups: the state is the solver's own.
    """

    per_objective: ClassVar[tuple[str, ...]] = ("variable", "first_moment", "second_moment", "updates")

    variable: Tensor
    first_moment: Tensor
    second_moment: Tensor
    updates: Tensor

    def __init__(self, lr: float, betas: tuple[float, float] = (0.9, 0.999)) -> None:
        super().__init__()
        self.lr = check_positive("lr", lr)
        self.betas = betas

    def setup(self, n_objectives: int) -> None:
        for name in self.per_objective:
            self.register_buffer(name, torch.zeros(n_objectives, dtype=torch.float64))

    def descend(self, gradient: Tensor) -> None:
        """One Adam step of ``variable`` against ``gradient``."""
        beta1, beta2 = self.betas
        gradient = gradient.to(self.variable)
        self.updates = self.updates + 1
        self.first_moment = torch.lerp(gradient, self.first_moment, beta1)
        self.second_moment = torch.lerp(gradient.square(), self.second_moment, beta2)
        m = self.first_moment / (1 - beta1**self.updates)
        v = self.second_moment / (1 - beta2**self.updates)
        self.variable = self.variable - self.lr * m / (v.sqrt() + 1e-8)
