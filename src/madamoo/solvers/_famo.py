from __future__ import annotations

import torch
from torch import Tensor

from ..checks import check_numbers, check_positive
from ._learning import LearningSolver
from ._options import PerObjectiveNumbers


class FAMO(LearningSolver):
    """Fast adaptive multitask optimisation (`Liu et al., 2023 <https://arxiv.org/abs/2306.03792>`_).

    Lets all losses fall at the same relative rate. z = softmax(w), lambda_i = (z_i / D_i) / sum_j (z_j / D_j), where
    D_i is the loss above its lower bound: a convex combination, which depends on this step's losses. After the step w
    descends along delta_i = log D_i(before) - log D_i(after), by the gradient (dz/dw)' delta + gamma w: an objective
    that fell less than the others gets more weight.

    The losses after the step, on the same batch, come by ``opt.observe(losses)``. Without that call the losses of the
    next batch that has the objective stand in for them: no extra forward pass, but delta holds batch noise too.

    A loss less than ``eps`` above its bound counts as ``eps`` above it and then draws most of the weight: give bounds
    for losses that may be negative.

    Args:
        lr: rate of the solver's own Adam on w.
        gamma: decay of w, which pulls z back to equal weights.
        min_losses: lower bound of each loss, in order or by name; zero each if None.
        eps: distances from the bound below it count as it.

    Example:
        >>> solver = FAMO()
        >>> solver.solve(torch.tensor([4.0, 1.0]))
        tensor([0.2000, 0.8000])
    """

    uses_losses = True
    per_objective = (*LearningSolver.per_objective, "bound", "before")

    bound: Tensor
    before: Tensor  # log D of the last step, NaN once w has learned from it

    def __init__(
        self,
        lr: float = 0.025,
        gamma: float = 1e-3,
        *,
        min_losses: PerObjectiveNumbers | None = None,
        eps: float = 1e-8,
    ) -> None:
        super().__init__(lr)
        self.gamma = check_positive("gamma", gamma, zero=True)
        self.take_per_objective("min_losses", min_losses, check_numbers)
        self.eps = check_positive("eps", eps)

    def setup(self, n_objectives: int) -> None:
        super().setup(n_objectives)
        bound = self.values_per_objective("min_losses", n_objectives)
        self.register_buffer("bound", torch.zeros(n_objectives, dtype=torch.float64) if bound is None else bound)
        self.register_buffer("before", torch.full((n_objectives,), torch.nan, dtype=torch.float64))

    def weights(self, losses: Tensor, gram: Tensor | None = None, preference: Tensor | None = None) -> Tensor:
        self.ensure(len(losses))
        self.observe(losses)  # does nothing where the losses after the last step were observed
        self.before = self._log_gap(losses)
        return torch.softmax(self.variable - self.before, 0).to(losses)

    def observe(self, losses: Tensor) -> None:
        """Learn from the losses [C] after the step, NaN where the batch lacks an objective: w rests there."""
        self.ensure(len(losses))
        delta = self.before - self._log_gap(losses)
        known = ~delta.isnan()
        if not bool(known.any()):
            return
        z = torch.softmax(self.variable.masked_fill(~known, -torch.inf), 0)
        delta = delta.masked_fill(~known, 0.0)
        old = {name: getattr(self, name) for name in LearningSolver.per_objective}
        self.descend(z * (delta - z @ delta) + self.gamma * self.variable)
        for name, rest in old.items():
            setattr(self, name, torch.where(known, getattr(self, name), rest))
        self.before = self.before.masked_fill(known, torch.nan)

    def _log_gap(self, losses: Tensor) -> Tensor:
        return (losses.detach().to(self.bound) - self.bound).clamp_min(self.eps).log()
