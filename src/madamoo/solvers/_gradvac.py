from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..checks import check_choice, check_fraction
from ._base import Solver
from ._cosines import cosines
from ._pcgrad import meetings

_CLOSEST = 1 - 1e-8  # a cosine of 1 could be reached with an infinite step only


class GradVac(Solver):
    """Gradient vaccine (`Wang et al., 2021 <https://arxiv.org/abs/2010.05874>`_).

    Keeps a target cosine phi^_ij for each pair, the average of those seen. Each gradient g_i meets the others as in
    :class:`PCGrad`, whose targets are all 0; where phi_ij = cos(g_i, g_j) < phi^_ij, g_i moves towards g_j until the
    cosine is phi^_ij: g_i <- g_i + ||g_i|| / ||g_j|| (phi^ sqrt(1 - phi^2) / sqrt(1 - phi^^2) - phi) g_j. Then
    phi^_ij <- (1 - beta) phi^_ij + beta phi_ij. d is the sum of all g_i. A pair with a zero gradient has no angle:
    nothing moves and its target rests.

    Args:
        beta: rate of the targets' average, at least 0 and below 1.
        order: ``"random"``, a new one for each gradient and step, or ``"fixed"``, the order of the objectives.
        seed: seed of the generator, which is saved with the solver.

    Example:
        >>> losses, gram = torch.tensor([2.0, 1.0]), torch.tensor([[4.0, -1.5], [-1.5, 1.0]])
        >>> GradVac().solve(losses, gram)
        tensor([1.3750, 2.5000])
    """

    family = "gradient"
    needs_gram = True
    per_objective = ("targets",)

    targets: Tensor

    def __init__(self, beta: float = 1e-2, order: str = "random", *, seed: int = 0) -> None:
        super().__init__()
        self.beta = check_fraction("beta", beta)
        self.order = check_choice("order", order, ("random", "fixed"))
        if order == "random":
            self.seed_generator(seed)

    def setup(self, n_objectives: int) -> None:
        self.register_buffer("targets", torch.zeros(n_objectives, n_objectives, dtype=torch.float64))

    def weights(self, losses: Tensor, gram: Tensor | None = None, preference: Tensor | None = None) -> Tensor:
        gram = self.require(gram)
        self.ensure(len(losses))
        S, n, alive = cosines(gram)
        targets = self.targets.cpu().numpy().copy()
        W = np.eye(len(S))  # g_i = n_i sum_j W_ij g_j / n_j
        P = S.copy()  # its products with all g_j, over n_i n_j
        each = np.arange(len(S))
        # All i at once: none of them sees what becomes of another.
        for j in meetings(len(S), self.generator).T:
            square = np.einsum("ij,ij->i", W, P)
            # What cancellation leaves of a gradient has no direction.
            angle = alive & alive[j] & (square > 1e-13 * np.abs(W).sum(1) ** 2)
            norm = np.sqrt(np.where(angle, square, 1.0))
            phi = np.clip(P[each, j] / norm, -1.0, 1.0)
            target = targets[each, j]
            moves = angle & (phi < np.minimum(target, _CLOSEST))
            if moves.any():
                aim = np.clip(target, -_CLOSEST, _CLOSEST)
                step = norm * (aim * np.sqrt((1 - phi * phi) / (1 - aim * aim)) - phi)
                step = np.where(moves, step, 0.0)
                W[each, j] += step
                P += step[:, None] * S[j]
            targets[each, j] = np.where(angle, target + self.beta * (phi - target), target)
        self.targets = torch.from_numpy(targets).to(self.targets)
        return torch.from_numpy(n @ W / n).to(losses)
