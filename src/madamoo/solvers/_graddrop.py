from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ._base import Solver


class GradDrop(Solver):
    """Gradient sign dropout (`Chen et al., 2020 <https://arxiv.org/abs/2010.06808>`_).

    In each coordinate, gradients of one sign are kept and those of the other dropped: the positive ones with
    probability P = (1 + sum_i g_i / sum_i |g_i|) / 2, their purity. There is no scalar lambda: the mask m_i of each
    coordinate takes its place, d_k = sum_i m_ik g_ik, also in the metric, C_k = sum_ij m_ik m_jk F_ij,k. It therefore
    works on the rows themselves, not on their Gram matrix, and :meth:`weights` are ones.

    Args:
        leak: how much of each objective's gradient passes undropped, one number in [0, 1] an objective; 0 if None.
        seed: seed of the generator, which is saved with the solver.
    """

    family = "gradient"
    per_coordinate = True

    def __init__(self, leak: Sequence[float] | None = None, *, seed: int = 0) -> None:
        super().__init__()
        if leak is not None and not all(0.0 <= float(x) <= 1.0 for x in leak):
            raise ValueError(f"leak must hold numbers in [0, 1], got {list(leak)}")
        self.leak = None if leak is None else [float(x) for x in leak]
        self.seed_generator(seed)

    def setup(self, n_objectives: int) -> None:
        if self.leak is not None and len(self.leak) != n_objectives:
            raise ValueError(f"leak must have {n_objectives} entries, one for each objective, got {self.leak}")

    def weights(self, losses: Tensor, gram: Tensor | None = None, preference: Tensor | None = None) -> Tensor:
        return torch.ones_like(losses)

    def masks(self, rows: Tensor, keys: Sequence[int]) -> Tensor:
        total = rows.abs().sum(0)
        purity = 0.5 * (1.0 + torch.where(total > 0, rows.sum(0) / total, 0.0))
        draw = torch.rand(purity.shape, generator=self.generator, device="cpu").to(purity)
        mask = torch.where(purity > draw, rows > 0, rows < 0).to(rows)
        if self.leak is None:
            return mask
        leak = rows.new_tensor([self.leak[key] for key in keys]).view(-1, *[1] * purity.dim())
        return leak + (1.0 - leak) * mask
