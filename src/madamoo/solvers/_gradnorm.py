from __future__ import annotations

from math import log

import torch
from torch import Tensor

from ..checks import check_positive
from ._learning import LearningSolver


class GradNorm(LearningSolver):
    """Gradient normalisation (`Chen et al., 2018 <https://arxiv.org/abs/1711.02257>`_).

    G_i = w_i ||g_i||, G their mean, r_i = (L_i / L_i(0)) / (the mean of these ratios): w descends on
    sum_i |G_i - G r_i^alpha|, the targets held constant, and is scaled to sum w_i = C. An objective that trains slowly
    gets a larger share of the gradient. lambda_i = w_i / C, so that the step has the scale of :class:`LS`; this step's
    losses and gradients change the next step's lambda.

    The norms are those over the shared parameters (the paper: over the last shared layer). log w_i is what is learned,
    so that no weight turns negative, and the sum is measured in units of G, so that the losses' scale does not matter.
    An objective without gradient is left out of G and r, and nothing pulls its w. L_i(0) is the first positive loss;
    until then the ratio is 1, and where a loss is zero or negative it is 0.

    Args:
        alpha: strength of the pull towards equal training rates; 0 asks for equal norms.
        lr: rate of the solver's own Adam on log w.

    Example:
        >>> losses, gram = torch.tensor([2.0, 1.0]), torch.tensor([[4.0, -1.5], [-1.5, 1.0]])
        >>> solver = GradNorm()
        >>> solver.solve(losses, gram)  # at first; it learns from now on
        tensor([0.5000, 0.5000])
        >>> solver.solve(losses, gram)
        tensor([0.4875, 0.5125])
    """

    needs_gram = True
    per_objective = (*LearningSolver.per_objective, "initial")

    initial: Tensor

    def __init__(self, alpha: float = 1.5, *, lr: float = 0.025) -> None:
        super().__init__(lr)
        self.alpha = check_positive("alpha", alpha, zero=True)

    def setup(self, n_objectives: int) -> None:
        super().setup(n_objectives)
        self.register_buffer("initial", torch.full((n_objectives,), torch.nan, dtype=torch.float64))

    def weights(self, losses: Tensor, gram: Tensor | None = None, preference: Tensor | None = None) -> Tensor:
        gram = self.require(gram)
        self.ensure(len(losses))
        weights = torch.softmax(self.variable, 0)
        losses_now = losses.detach().to(self.initial)
        self.initial = torch.where(self.initial.isnan() & (losses_now > 0), losses_now, self.initial)
        G = weights * gram.diagonal().to(weights).clamp_min(0).sqrt()
        live = G > 0
        if bool(live.any()):
            self._balance(G, losses_now, live)
        return weights.to(losses)

    def _balance(self, G: Tensor, losses: Tensor, live: Tensor) -> None:
        ratio = torch.log(losses.clamp_min(1e-300)) - torch.log(self.initial)
        ratio = torch.where(self.initial.isnan(), 0.0, ratio)
        count = live.sum()
        r = count * torch.softmax(ratio.masked_fill(~live, -torch.inf), 0)  # ratios over their mean, free of overflow
        G = G * count / G.sum()  # in units of their mean
        # |G_i - r_i^alpha| falls or rises with log w_i at the slope G_i, which is 0 without a gradient.
        self.descend(torch.sign(G - r**self.alpha) * G)
        self.variable = self.variable - torch.logsumexp(self.variable, 0) + log(len(G))
