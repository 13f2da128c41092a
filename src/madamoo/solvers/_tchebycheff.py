from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from ..checks import check_numbers, check_vector
from ._base import Solver
from ._options import PerObjectiveNumbers


class Tchebycheff(Solver):
    """Tchebycheff scalarisation (Bowman, 1976; as in `Lin et al., 2024 <https://arxiv.org/abs/2402.19078>`_).

    Minimises max_i p_i (l_i - z_i), p the preference on the simplex and z the ideal point. It leads to the Pareto point
    where all p_i (l_i - z_i) are equal, if there is one, also on a front that is not convex. Only this step's largest
    term counts: lambda_i = C p_i there, shared equally among ties, and 0 elsewhere; the factor C gives a uniform
    preference the scale of :class:`LS`. Near the solution lambda jumps from objective to objective:
    :class:`SmoothTchebycheff` does not.

    Losses may be of any size and sign, also below the ideal point. Objectives with preference 0 take no part.

    Args:
        default: the preference for steps that give none, in order or by name; 1/C each if None.
        ideal: z, in order or by name; zero each if None.

    Example:
        >>> Tchebycheff().solve(torch.tensor([4.0, 1.0]))
        tensor([1., 0.])
    """

    uses_preference = True
    uses_losses = True
    per_objective: ClassVar[tuple[str, ...]] = ("default", "ideal")

    default: Tensor
    ideal: Tensor

    def __init__(
        self,
        default: PerObjectiveNumbers | None = None,
        *,
        ideal: PerObjectiveNumbers | None = None,
    ) -> None:
        super().__init__()
        self.take_per_objective("default", default, check_vector)
        self.take_per_objective("ideal", ideal, check_numbers)

    def setup(self, n_objectives: int) -> None:
        default = self.values_per_objective("default", n_objectives)
        ideal = self.values_per_objective("ideal", n_objectives)
        self.register_buffer("default", torch.ones(n_objectives, dtype=torch.float64) if default is None else default)
        self.register_buffer("ideal", torch.zeros(n_objectives, dtype=torch.float64) if ideal is None else ideal)

    def weights(self, losses: Tensor, gram: Tensor | None = None, preference: Tensor | None = None) -> Tensor:
        self.ensure(len(losses))
        p = self.default if preference is None else preference.to(self.default)
        gap = losses.detach().to(self.ideal) - self.ideal
        # A batch may lack every objective that is wanted: then all weights are 0.
        p = p / p.max().clamp_min(1e-300)  # first by the largest: the sum of huge entries would overflow
        p = p / p.sum().clamp_min(1e-300)
        return (len(p) * p * self.slopes(p, gap)).to(losses)

    def slopes(self, p: Tensor, gap: Tensor) -> Tensor:
        """Derivatives of the scalarisation by p_i l_i, from the preference on the simplex and l - z."""
        y = (p * gap).masked_fill(p == 0, -torch.inf)
        largest = (y == y.max()).to(y)
        return largest / largest.sum()
