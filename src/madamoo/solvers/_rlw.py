from __future__ import annotations

import torch
from torch import Tensor

from ..checks import check_choice
from ._base import Solver


class RLW(Solver):
    """Random loss weighting (`Lin et al., 2022 <https://arxiv.org/abs/2111.10603>`_): new random weights each step.

    Args:
        distribution: ``"normal"``, the softmax of standard normal draws, or ``"dirichlet"``, uniform on the simplex.
        seed: seed of the generator, which is saved with the solver.

    Example:
        >>> RLW(seed=0).solve(torch.ones(3)).sum()
        tensor(1.)
    """

    def __init__(self, distribution: str = "normal", *, seed: int = 0) -> None:
        super().__init__()
        self.distribution = check_choice("distribution", distribution, ("normal", "dirichlet"))
        self.seed_generator(seed)

    def weights(self, losses: Tensor, gram: Tensor | None = None, preference: Tensor | None = None) -> Tensor:
        if self.distribution == "normal":
            draw = torch.randn(len(losses), generator=self.generator, dtype=torch.float64, device="cpu").softmax(0)
        else:  # exponential draws, divided by their sum, are Dirichlet(1, ..., 1)
            draw = torch.empty(len(losses), dtype=torch.float64, device="cpu").exponential_(generator=self.generator)
            draw = draw / draw.sum()
        return draw.to(losses)
