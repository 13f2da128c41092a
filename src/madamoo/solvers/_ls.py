from __future__ import annotations

from torch import Tensor

from ._weighted import WeightedSolver


class LS(WeightedSolver):
    """Linear scalarisation: constant weights, 1/C each unless given.

    Args:
        weights: one number for each objective, finite and not negative, in the order of the objectives: with
            dictionaries of losses, give the optimizer that order by ``objectives=[...]``.

    Example:
        >>> import torch
        >>> LS().weights(torch.tensor([3.0, 1.0]))
        tensor([0.5000, 0.5000])
    """

    family = "loss"
    needs_gram = False
    static = True

    def weights(self, losses: Tensor, gram: Tensor | None = None, preference: Tensor | None = None) -> Tensor:
        self.ensure(len(losses))
        return self.coefficients.to(losses)
