from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ._base import Solver
from ._cosines import cosines, eigh


class IMTLG(Solver):
    """Impartial multi-task learning, gradient part (`Liu et al., 2021 <https://openreview.net/forum?id=IMPnRXEWpvr>`_).

    d has the same projection onto every unit gradient u_i = g_i / ||g_i||, so its direction does not depend on the
    losses' scales. In closed form, lambda_i ~ x_i / ||g_i|| with S x = 1, S_ij = u_i . u_j, and sum lambda_i = 1. Where
    no direction has equal projections, x is the shortest least-squares solution; a zero gradient gets weight 0.

    With more than two objectives the weights may have both signs. Their sum can then be nearly zero, or negative, which
    would turn d around: so the sum of their absolute values is kept to 10 and the projections positive, but d may
    vanish where no Pareto point is.

    Example:
        >>> losses, gram = torch.tensor([2.0, 1.0]), torch.tensor([[4.0, -1.5], [-1.5, 1.0]])
        >>> IMTLG().solve(losses, gram)
        tensor([0.3333, 0.6667])
    """

    family = "gradient"
    needs_gram = True

    def weights(self, losses: Tensor, gram: Tensor | None = None, preference: Tensor | None = None) -> Tensor:
        gram = self.require(gram)
        return impartial(gram).to(losses)


def impartial(gram: Tensor) -> Tensor:
    """The weights of equal projections, in float64 on the CPU."""
    S, n, alive = cosines(gram)
    count = len(S)
    tiny = count * torch.finfo(gram.dtype).eps
    try:
        np.linalg.cholesky(S - max(tiny, 1e-9) * np.eye(count))
        x = np.linalg.solve(S, alive)
    except np.linalg.LinAlgError:  # gradients that depend on each other: the pseudo-inverse
        values, V = eigh(S)
        values[values <= tiny * values[-1]] = np.inf
        x = V @ ((alive @ V) / values) * alive
    # sum x = ||sum x_i u_i||^2. Where it is zero, the gradients are, or no direction suits them all.
    if x.sum() <= 1e-12:
        return torch.full((count,), 0.0 if alive.any() else 1.0 / count, dtype=torch.float64, device="cpu")
    x /= n
    return torch.from_numpy(x / max(x.sum(), 0.1 * np.abs(x).sum()))
