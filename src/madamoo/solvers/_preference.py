from __future__ import annotations

import torch
from torch import Tensor

from ..checks import check_flag, check_vector
from ._base import LARGEST_WEIGHT, Solver
from ._options import PerObjectiveNumbers


class Preference(Solver):
    """The weights given with each step, ``opt.backward(losses, preference=a)``: lambda = a, as it is.

    This is how preference-conditioned methods (PaMaL, PaLoRA, COSMOS) drive the optimizer: a new vector each step.

    Args:
        default: the vector for steps that give none, in order or by name; 1/C each if None.
        normalise: divide each weight by the length of the objective's gradient, lambda_i = a_i / |g_i|, so that the
            preference decides and not the scale of the losses (the inner balancing of PaMaL). An objective whose
            gradient is zero keeps its weight.

    Example:
        >>> Preference().solve(torch.ones(2), preference=torch.tensor([0.3, 0.7]))
        tensor([0.3000, 0.7000])
    """

    family = "preference"
    uses_preference = True
    per_objective = ("default",)

    default: Tensor

    def __init__(self, default: PerObjectiveNumbers | None = None, *, normalise: bool = False) -> None:
        super().__init__()
        self.needs_gram = check_flag("normalise", normalise)
        self.take_per_objective("default", default, check_vector)

    def setup(self, n_objectives: int) -> None:
        given = self.values_per_objective("default", n_objectives)
        equal = torch.full((n_objectives,), 1.0 / n_objectives, dtype=torch.float64)
        self.register_buffer("default", equal if given is None else given)

    def weights(self, losses: Tensor, gram: Tensor | None = None, preference: Tensor | None = None) -> Tensor:
        self.ensure(len(losses))
        a = (self.default if preference is None else preference).to(losses)
        if not self.needs_gram:
            return a
        lengths = self.require(gram).diagonal().clamp_min(0).sqrt().to(losses)
        return (a / torch.where(lengths > 0, lengths, 1.0)).clamp_max(LARGEST_WEIGHT)
