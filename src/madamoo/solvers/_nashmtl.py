from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..checks import check_integer, check_positive
from ._base import Solver
from ._cosines import cosines
from ._qp import Array


class NashMTL(Solver):
    """Multi-task learning as a bargaining game (`Navon et al., 2022 <https://arxiv.org/abs/2202.01017>`_).

    lambda = alpha > 0 with K alpha = 1 / alpha: the step that maximises the product of the objectives' gains. It has
    length sqrt(C) whatever the gradients' lengths, so with the usual ``max_norm`` of 1 it has length 1.

    Args:
        max_norm: longest d; None for no limit.
        update_every: alpha is computed every so many steps, and kept in between. With ``max_norm=None`` the steps in
            between need no gradient per objective: one backward pass instead of C. Heads, which weigh their own
            objective by 1, do; ``head_weights="lambda"`` spares that.

    Example:
        >>> losses, gram = torch.tensor([2.0, 1.0]), torch.tensor([[4.0, -1.5], [-1.5, 1.0]])
        >>> NashMTL(max_norm=None).solve(losses, gram)
        tensor([1., 2.])
    """

    family = "gradient"
    needs_gram = True
    per_objective = ("alpha", "wait")

    alpha: Tensor
    wait: Tensor  # steps that the objective's alpha is still to be kept for

    def __init__(self, max_norm: float | None = 1.0, *, update_every: int = 1) -> None:
        super().__init__()
        self.max_norm = None if max_norm is None else check_positive("max_norm", max_norm)
        self.update_every = check_integer("update_every", update_every, 1)

    def setup(self, n_objectives: int) -> None:
        self.register_buffer("alpha", torch.zeros(n_objectives, dtype=torch.float64))
        self.register_buffer("wait", torch.zeros(n_objectives, dtype=torch.int64))

    @property
    def has_state(self) -> bool:
        return self.n_objectives is None or self.update_every > 1

    @property
    def wants_rows(self) -> bool:
        """While every alpha is kept and nothing limits the length of d, no gradient is looked at."""
        return self.max_norm is not None or self.n_objectives is None or not bool(self.wait.all())

    def weights(self, losses: Tensor, gram: Tensor | None = None, preference: Tensor | None = None) -> Tensor:
        self.ensure(len(losses))
        if not self.wants_rows:
            self.wait = self.wait - 1
            return self.alpha.to(losses)
        S, n, _ = cosines(self.require(gram))
        if self.update_every == 1:
            beta = bargain(S)
        else:
            if not bool(self.wait.all()):
                self.alpha = torch.from_numpy(bargain(S) / n).to(self.alpha)
                self.wait = torch.full_like(self.wait, self.update_every)
            self.wait = self.wait - 1
            beta = self.alpha.cpu().numpy() * n
        if self.max_norm is not None:
            beta = beta * min(1.0, self.max_norm / np.sqrt(max(float(beta @ S @ beta), 1e-300)))
        return torch.from_numpy(beta / n).to(losses)


def bargain(S: Array) -> Array:
    """beta > 0 with S beta = 1 / beta; then alpha_i = beta_i / ||g_i||.

    It minimises beta' S beta / 2 - sum log beta, which is convex and self-concordant: damped Newton steps find it from
    anywhere. At a Pareto point there is no minimum: beta grows along the weights whose gradients cancel, and is stopped
    where what they leave of each other is below the precision of gradients.
    """
    count = len(S)
    beta = np.full(count, np.sqrt(count / max(float(S.sum()), 1e-2 * count)))  # the best of equal ones
    for _ in range(100):
        # The Newton step is beta <- beta (1 - q), (B S B + 1) q = B (S beta - 1 / beta), B = diag(beta).
        system = S * np.outer(beta, beta)
        residual = system.sum(1) - 1.0
        system.flat[:: count + 1] += 1.0
        q = np.linalg.solve(system, residual)
        decrement = float(q @ residual)  # squared
        if not decrement > 0:  # exact, or S is not positive because of rounding
            break
        # The whole step changes the value by this; the damped one never leaves beta > 0 and always lowers it.
        whole = q.max() < 1 and -0.5 * decrement - float((q + 0.5 * q * q + np.log1p(-q)).sum()) <= -0.1 * decrement
        beta = beta * (1.0 - q * (1.0 if whole else 1.0 / (1.0 + np.sqrt(decrement))))
        if decrement <= 1e-12 or beta.max() > 1e4:  # Newton's steps square the error
            break
    return beta
