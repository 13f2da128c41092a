from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ..checks import check_integer, check_vector
from ._base import Solver
from ._options import PerObjectiveNumbers
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
        rays: the preference vectors whose u_j divide the space, each in order or by name. If None: for two objectives
            five evenly spaced ones, else a one-hot one per objective and the equal one.
        search_steps: how many steps may go to searching; the paper searches at the start only.

    Example:
        >>> losses, gram = torch.tensor([2.0, 1.0]), torch.tensor([[4.0, -1.5], [-1.5, 1.0]])
        >>> ParetoMTL().solve(losses, gram, preference=torch.tensor([0.3, 0.7]))
        tensor([0.3125, 0.6875])
    """

    family = "preference"
    needs_gram = True
    uses_preference = True
    uses_losses = True
    per_objective = ("columns",)

    columns: Tensor
    remaining: Tensor
    rays: Tensor | None

    def __init__(
        self,
        rays: Sequence[PerObjectiveNumbers] | Tensor | None = None,
        *,
        search_steps: int = 500,
    ) -> None:
        super().__init__()
        if rays is not None and (isinstance(rays, str) or not hasattr(rays, "__len__") or len(rays) == 0):
            raise ValueError(f"rays must be a sequence of preference vectors, at least one, got {rays!r}")
        self.n_rays = 0 if rays is None else len(rays)
        for j, ray in enumerate(() if rays is None else rays):
            self.take_per_objective(f"rays[{j}]", ray, check_vector)
        self.search_steps = check_integer("search_steps", search_steps, 0)
        self.register_buffer("rays", None)

    def setup(self, n_objectives: int) -> None:
        rays = [self.values_per_objective(f"rays[{j}]", n_objectives) for j in range(self.n_rays)]
        self.rays = torch.stack([ray for ray in rays if ray is not None]) if rays else None
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
            return self.rays.cpu()[:, self.columns.cpu()].numpy()
        if count == 2:
            angles = np.linspace(0.0, np.pi / 2, 5)
            return np.stack([np.sin(angles), np.sin(angles[::-1])], axis=1)
        return np.vstack([np.eye(count), np.ones(count)])
