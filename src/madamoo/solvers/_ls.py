from __future__ import annotations

from torch import Tensor

from ._weighted import WeightedSolver


class LS(WeightedSolver):
    """Linear scalarisation: constant weights, 1/C each unless given.

    Args:
        weights: one number per objective, finite and not negative. For losses given as a dict, give the weights by
            name, ``LS({"cls": 1.0, "reg": 0.1})``, or fix the order of the objectives in the optimizer,
            ``objectives=["cls", "reg"]``.

    Example:
        >>> import torch
        >>> LS().weights(torch.tensor([3.0, 1.0]))
        tensor([0.5000, 0.5000])
        >>> LS({"cls": 1.0, "reg": 0.1})
        LS(weights={'cls': 1.0, 'reg': 0.1})
    """

    family = "loss"
    needs_gram = False
    static = True

    def weights(self, losses: Tensor, gram: Tensor | None = None, preference: Tensor | None = None) -> Tensor:
        self.ensure(len(losses))
        return self.coefficients.to(losses)
