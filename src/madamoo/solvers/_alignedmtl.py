from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..checks import check_choice
from ._cosines import eigh
from ._options import PerObjectiveNumbers
from ._weighted import WeightedSolver


class AlignedMTL(WeightedSolver):
    """Independent component alignment (`Senushkin et al., 2023 <https://arxiv.org/abs/2305.19000>`_).

    Makes the principal components of the gradients equally long, which leaves no conflict and no dominance:
    lambda = sigma V Sigma^-1 V' w, where V Sigma^2 V' = K over the components that are not zero.

    Args:
        weights: w, one number per objective, finite and not negative, in order or by name; 1/C each if None.
        scale: sigma, the length that all components get: the smallest Sigma (``"min"``), their ``"median"`` (the lower
            one of two), or ``"rmse"``, the root of their mean square. Only the smallest vanishes at a Pareto point.

    Example:
        >>> losses, gram = torch.tensor([2.0, 1.0]), torch.tensor([[4.0, -1.5], [-1.5, 1.0]])
        >>> AlignedMTL().solve(losses, gram)
        tensor([0.3216, 0.5739])
    """

    def __init__(self, weights: PerObjectiveNumbers | None = None, *, scale: str = "min") -> None:
        super().__init__(weights)
        self.scale = check_choice("scale", scale, ("min", "median", "rmse"))

    def weights(self, losses: Tensor, gram: Tensor | None = None, preference: Tensor | None = None) -> Tensor:
        gram = self.require(gram)
        self.ensure(len(losses))
        w = self.coefficients.cpu().numpy()
        values, V = eigh(gram.to("cpu", torch.float64).numpy())
        kept = values > len(w) * torch.finfo(gram.dtype).eps * values[-1]
        if not kept.any():
            return self.coefficients.to(losses)
        values, V = values[kept], V[:, kept]
        square = {"min": values[0], "median": values[(len(values) - 1) // 2], "rmse": values.mean()}[self.scale]
        return torch.from_numpy(V @ (np.sqrt(square / values) * (w @ V))).to(losses)
