from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..checks import check_fraction, check_integer
from ._base import Solver
from ._residuals import Residuals, ResidualsT

SMALLEST, LARGEST = 1e-30, 1e30


class LRA(Solver):
    """Learning-rate annealing (`Wang et al., 2021 <https://arxiv.org/abs/2001.04536>`_).

    For physics-informed networks: the losses are residuals r of equations, and conditions i. The residuals keep weight
    1; lambda_i <- decay lambda_i + (1 - decay) max |g_r| / mean |lambda_i g_i|, so that the conditions' weighted
    gradients are as large as the residuals'. max |g_r| is the largest entry in the gradients of all residuals. An
    objective without gradient keeps its weight.

    Args:
        reference: the residuals, by name or by position. None: the names that begin with "pde", as in
            :class:`madamoo.pinn.Problem`, and the first objective where losses have no names.
        decay: share of the old weight in the new one.
        every: the gradients are looked at every so many steps; the steps in between cost one backward pass.

    Example:
        >>> solver = LRA(reference=[0])
        >>> sizes = {"max_abs": torch.tensor([8.0, 1.0]), "mean_abs": torch.tensor([2.0, 0.5])}
        >>> solver.solve(torch.tensor([1.0, 1.0]), statistics=sizes)
        tensor([1.0000, 2.5000])
    """

    row_statistics = ("max_abs", "mean_abs")
    per_objective = ("residual", "average", "wait")

    residual: Tensor
    average: Tensor  # lambda
    wait: Tensor  # steps that the objective's weight is still to be kept for

    def __init__(self, reference: ResidualsT = None, *, decay: float = 0.9, every: int = 1) -> None:
        super().__init__()
        self.residuals = Residuals("LRA", reference)
        self.decay = check_fraction("decay", decay)
        self.every = check_integer("every", every, 1)

    def setup(self, n_objectives: int) -> None:
        self.register_buffer("residual", self.residuals.mask(n_objectives, self.objective_names))
        self.register_buffer("average", torch.ones(n_objectives, dtype=torch.float64))
        self.register_buffer("wait", torch.zeros(n_objectives, dtype=torch.int64))

    def name_objectives(self, names: Sequence[str], ordered: bool) -> None:
        self.residuals.check_names(names, ordered)
        super().name_objectives(names, ordered)

    @property
    def wants_rows(self) -> bool:
        return self.n_objectives is None or not bool(self.wait.all())

    def weights(
        self,
        losses: Tensor,
        gram: Tensor | None = None,
        preference: Tensor | None = None,
        *,
        max_abs: Tensor | None = None,
        mean_abs: Tensor | None = None,
    ) -> Tensor:
        self.ensure(len(losses))
        # Rows may be here for an objective that was missing for a while: the others still wait.
        if max_abs is not None and mean_abs is not None and not bool(self.wait.all()):
            self._update(max_abs.to(self.average), mean_abs.to(self.average))
            self.wait = torch.full_like(self.wait, self.every)
        self.wait = (self.wait - 1).clamp_min(0)
        return self.average.to(losses)

    def _update(self, max_abs: Tensor, mean_abs: Tensor) -> None:
        largest = max_abs[self.residual].amax() if bool(self.residual.any()) else max_abs.new_zeros(())
        target = (largest / (mean_abs * self.average)).clamp_max(LARGEST)
        moved = torch.lerp(target, self.average, self.decay).clamp(SMALLEST, LARGEST)
        moves = ~self.residual & (mean_abs > 0) & (largest > 0)
        self.average = torch.where(moves, moved, self.average)
