from __future__ import annotations

import torch
from torch import Tensor

from ..checks import check_fraction, check_positive
from ._base import Solver
from ._values import bounded_exp, magnitudes


class DBMTL(Solver):
    """Dual balancing (`Lin et al., 2023 <https://arxiv.org/abs/2308.12029>`_): of loss scales and of gradient norms.

    The objectives are log l_i, with gradients g_i / l_i, and each of these is scaled to the largest of their norms:
    lambda_i = max_j n_j / (n_i l_i), n_i = ||g_i|| / l_i averaged over the steps; it depends on this step's losses.

    The paper averages the gradients themselves and takes norms and direction from that average. The solver sees the
    gradients of this step only, through their Gram matrix, so it averages the norms: the same scales when the share
    of noise is alike in all objectives, and the paper's method without change for ``beta=0``. Averaging the direction
    is the momentum of the optimizer that moves the parameters. Norms are those over the shared parameters, and lambda
    weighs every parameter, since the logarithm does.

    A loss counts by its magnitude, below ``eps`` as ``eps``. An objective without gradient keeps its average; one that
    never had a gradient is not scaled, lambda_i = 1 / l_i.

    Args:
        beta: decay of the average of the norms, 0 <= beta < 1; 0 takes this step's.
        eps: losses below it count as it.

    Example:
        >>> losses, gram = torch.tensor([2.0, 1.0]), torch.tensor([[4.0, -1.5], [-1.5, 1.0]])
        >>> DBMTL().solve(losses, gram)
        tensor([0.5000, 1.0000])
    """

    needs_gram = True
    uses_losses = True
    per_objective = ("average", "counts")

    average: Tensor
    counts: Tensor

    def __init__(self, beta: float = 0.9, *, eps: float = 1e-8) -> None:
        super().__init__()
        self.beta = check_fraction("beta", beta)
        self.eps = check_positive("eps", eps)

    def setup(self, n_objectives: int) -> None:
        for name in self.per_objective:
            self.register_buffer(name, torch.zeros(n_objectives, dtype=torch.float64))

    def weights(self, losses: Tensor, gram: Tensor | None = None, preference: Tensor | None = None) -> Tensor:
        gram = self.require(gram)
        self.ensure(len(losses))
        sizes = magnitudes(losses, self.eps).to(self.average)
        norms = gram.diagonal().to(sizes).clamp_min(0).sqrt() / sizes
        live = norms > 0
        self.average = torch.where(live, torch.lerp(norms, self.average, self.beta), self.average)
        self.counts = self.counts + live
        known = self.counts > 0
        n = torch.log(self.average / (1 - self.beta**self.counts)).masked_fill(~known, 0.0)  # bias-corrected, as Adam's
        largest = n.masked_fill(~known, -torch.inf).max()
        scale = torch.where(known, largest - n, 0.0)
        return bounded_exp(scale - sizes.log(), losses)
