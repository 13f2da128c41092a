from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize

from ..checks import check_positive
from ._base import Solver


class COSMOS(Solver):
    """The objective of COSMOS (`Ruchte and Grabocka, 2021 <https://arxiv.org/abs/2103.13392>`_).

    Descends sum_i a_i l_i - w cos(a, l), so lambda_i = a_i - w (a_i / |a| - cos(a, l) l_i / |l|) / |l|.

    The preference a (1/C each if none is given) has two roles: it weighs the objectives, and it is the ray to which the
    losses are drawn. The larger w, the nearer they come to being *proportional* to a, where :class:`EPO`,
    :class:`FERERO` and :class:`ParetoMTL` make them inversely proportional. At convergence sum_i lambda_i g_i = 0,
    which is Pareto stationary where all lambda_i >= 0, as they are for small w; a negative one lets l_i grow to come
    nearer to the ray. The model that takes a as an input, the other half of the paper, is the user's.

    Args:
        weight: w, in the unit of the losses; 0 is linear scalarisation, the paper uses 0.01 to 8.

    Example:
        >>> COSMOS().solve(torch.tensor([2.0, 1.0]), preference=torch.tensor([0.3, 0.7]))
        tensor([0.5584, 0.1832])
    """

    family = "preference"
    uses_preference = True
    uses_losses = True

    def __init__(self, weight: float = 2.0) -> None:
        super().__init__()
        self.weight = check_positive("weight", weight, zero=True)

    def weights(self, losses: Tensor, gram: Tensor | None = None, preference: Tensor | None = None) -> Tensor:
        values = losses.detach().double()
        a = torch.full_like(values, 1.0 / len(values)) if preference is None else preference.to(values)
        ray, along = normalize(a, dim=0, eps=1e-300), normalize(values, dim=0, eps=1e-300)
        # The slope grows as the losses vanish; torch's cosine_similarity bounds it in the same way.
        slope = (ray - (ray @ along) * along) / values.norm().clamp_min(1e-8)
        return (a - self.weight * slope).to(losses)
