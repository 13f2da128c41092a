from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..checks import check_vector
from ._base import Solver


class Preference(Solver):
    """The weights given with each step, ``opt.backward(losses, preference=a)``: lambda = a, as it is.

    This is how preference-conditioned methods (PaMaL, PaLoRA, COSMOS) drive the optimizer: a new vector each step.

    Args:
        default: the vector for steps that give none; 1/C each when it is None.
        normalise: divide each weight by the length of the objective's gradient, lambda_i = a_i / |g_i|, so that the
            preference decides and not the scale of the losses (the inner balancing of PaMaL). An objective whose
            gradient is zero keeps its weight.
    """

    family = "preference"
    uses_preference = True
    per_objective = ("default",)

    default: Tensor

    def __init__(self, default: Sequence[float] | Tensor | None = None, *, normalise: bool = False) -> None:
        super().__init__()
        self.needs_gram = normalise
        self.given = None if default is None else check_vector("default", default)

    def setup(self, n_objectives: int) -> None:
        given = torch.full((n_objectives,), 1.0 / n_objectives) if self.given is None else self.given
        self.register_buffer("default", check_vector("default", given, n_objectives))

    def weights(self, losses: Tensor, gram: Tensor | None = None, preference: Tensor | None = None) -> Tensor:
        self.ensure(len(losses))
        a = (self.default if preference is None else preference).to(losses)
        if not self.needs_gram:
            return a
        lengths = self.require(gram).diagonal().clamp_min(0).sqrt().to(losses)
        return a / torch.where(lengths > 0, lengths, 1.0)
