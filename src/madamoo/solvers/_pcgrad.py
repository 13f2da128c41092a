from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..checks import check_choice
from ._base import Solver
from ._cosines import cosines


class PCGrad(Solver):
    """Gradient surgery (`Yu et al., 2020 <https://arxiv.org/abs/2001.06782>`_).

    Each gradient g_i meets the others one after the other; where g_i^PC . g_j < 0, it loses its part along g_j:
    g_i^PC <- g_i^PC - (g_i^PC . g_j) / ||g_j||^2 g_j. d is the sum of all g_i^PC, so where nothing conflicts every
    lambda_i is 1, which is also the weight of the heads.

    Args:
        order: ``"random"``, a new one for each gradient and step, or ``"fixed"``, the order of the objectives.
        seed: seed of the generator, which is saved with the solver.

    Example:
        >>> losses, gram = torch.tensor([2.0, 1.0]), torch.tensor([[4.0, -1.5], [-1.5, 1.0]])
        >>> PCGrad(order="fixed").solve(losses, gram)
        tensor([1.3750, 2.5000])
    """

    family = "gradient"
    needs_gram = True

    def __init__(self, order: str = "random", *, seed: int = 0) -> None:
        super().__init__()
        self.order = check_choice("order", order, ("random", "fixed"))
        if order == "random":
            self.seed_generator(seed)

    def weights(self, losses: Tensor, gram: Tensor | None = None, preference: Tensor | None = None) -> Tensor:
        gram = self.require(gram)
        S, n, _ = cosines(gram)
        W = np.eye(len(S))  # g_i^PC = n_i sum_j W_ij g_j / n_j
        P = S.copy()  # its products with all g_j, over n_i n_j
        each = np.arange(len(S))
        # All i at once: none of them sees what becomes of another.
        for j in meetings(len(S), self.generator).T:
            step = -np.minimum(P[each, j], 0.0)
            if step.any():
                W[each, j] += step
                P += step[:, None] * S[j]
        return torch.from_numpy(n @ W / n).to(losses)


def meetings(count: int, generator: torch.Generator | None) -> NDArray[np.intp]:
    """Row i: the others in the order in which i meets them; a random one if there is a generator. [C, C - 1]."""
    if generator is None:
        keys = np.tile(np.arange(float(count)), (count, 1))
    else:
        keys = torch.rand(count, count, generator=generator, dtype=torch.float64, device=generator.device).numpy()
    np.fill_diagonal(keys, count)
    return keys.argsort(axis=1)[:, :-1]
