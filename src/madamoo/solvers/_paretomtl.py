from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ..checks import check_vector
from ._base import Solver
from ._qp import Array, Program
from ._rays import loss_ray, read_preference, unit_sum


class ParetoMTL(Solver):
    """Pareto multi-task learning (`Lin et al., 2019 <https://arxiv.org/abs/1912.12854>`_).

    Unit vectors u_j divide the space of losses L into regions; that of the one asked for, u_k, is where all
    G_j = (u_j - u_k)' L <= 0. *Search*, outside the region: d is the shortest vector in the convex hull of the
    gradients of the violated constraints, which are sums of the g_i. *Descent*, in the region: the same for the g_i.
    Outside it once the steps for searching are used up: the same for both together. The weights are scaled to
    sum_i |lambda_i| = 1; lambda_i < 0 lets l_i grow to come to the region.

    The preference (1/C each if none is given; one for the whole training) is a weight: u_k is the ray of losses
    inversely proportional to it, and where it has zeros, of losses on those objectives alone. At convergence the losses
    are Pareto stationary and in the region of u_k, if the search has found it: somewhere in it, not on the ray.

    Args:
        rays: the preference vectors whose u_j divide the space, one a row. If None: for two objectives five evenly
            spaced ones, else a one-hot one for each objective and the equal one.
        search_steps: how many steps may go to searching; the paper searches at the start only.
    """

    family = "preference"
    needs_gram = True
    uses_preference = True
    uses_losses = True
    per_objective = ("columns",)

    columns: Tensor
    remaining: Tensor

    def __init__(self, rays: Sequence[Sequence[float]] | Tensor | None = None, *, search_steps: int = 500) -> None:
        super().__init__()
        if rays is not None and len(rays) == 0:
            raise ValueError("rays must have at least one row, got none")
        if search_steps < 0:
            raise ValueError(f"search_steps must not be negative, got {search_steps}")
        self.rays = None if rays is None else [check_vector(f"rays[{j}]", ray) for j, ray in enumerate(rays)]
        self.search_steps = search_steps

    def setup(self, n_objectives: int) -> None:
        for j, ray in enumerate(self.rays or []):
            check_vector(f"rays[{j}]", ray, n_objectives)
        # Which columns of the rays this batch has objectives for: the base class restricts it with the losses.
        self.register_buffer("columns", torch.arange(n_objectives))
        self.register_buffer("remaining", torch.tensor(float(self.search_steps), dtype=torch.float64))

    def weights(self, losses: Tensor, gram: Tensor | None = None, preference: Tensor | None = None) -> Tensor:
        gram = self.require(gram)
        self.ensure(len(losses))
        values = losses.detach().to("cpu", torch.float64).numpy()
        K = gram.to("cpu", torch.float64).numpy()
        u = loss_ray(read_preference(preference, len(values)))
        W = loss_ray(self._preferences(len(values))) - u
        W = W[W @ values > 1e-12 * np.abs(values).max()]
        search = len(W) > 0 and float(self.remaining) > 0
        self.remaining = self.remaining - float(search)
        V = W if search else np.vstack([np.eye(len(values)), W])
        M = V @ (K / max(float(K.diagonal().max()), 1e-300)) @ V.T
        weights, _ = Program(M / max(float(M.diagonal().max()), 1e-300)).solve()
        return torch.from_numpy(unit_sum(weights @ V)).to(losses)

    def _preferences(self, count: int) -> Array:
        if self.rays is not None:
            return torch.stack(self.rays)[:, self.columns.cpu()].numpy()
        if count == 2:
            angles = np.linspace(0.0, np.pi / 2, 5)
            return np.stack([np.sin(angles), np.sin(angles[::-1])], axis=1)
        return np.vstack([np.eye(count), np.ones(count)])
