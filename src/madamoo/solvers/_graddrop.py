from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..checks import check_numbers
from ._base import Solver
from ._options import PerObjectiveNumbers


class GradDrop(Solver):
    """Gradient sign dropout (`Chen et al., 2020 <https://arxiv.org/abs/2010.06808>`_).

    In each coordinate, gradients of one sign are kept and those of the other dropped: the positive ones with
    probability P = (1 + sum_i g_i / sum_i |g_i|) / 2, their purity. There is no scalar lambda: the mask m_i of each
    coordinate takes its place, d_k = sum_i m_ik g_ik, also in the metric, C_k = sum_ij m_ik m_jk F_ij,k. It therefore
    works on the rows themselves, not on their Gram matrix, and :meth:`weights` are ones.

    Args:
        leak: how much of each objective's gradient passes undropped, one number in [0, 1] per objective, in order or
            by name; 0 each if None.
        seed: seed of the generator, which is saved with the solver.

    Example:
        >>> solver = GradDrop(seed=0)
        >>> solver.ensure(2)
        >>> solver.masks(torch.tensor([[1.0, 2.0], [3.0, -2.0]]), keys=[0, 1])  # in the first column the signs agree
        tensor([[1., 0.],
                [1., 1.]])
    """

    family = "gradient"
    per_coordinate = True

    leak: Tensor | None

    def __init__(self, leak: PerObjectiveNumbers | None = None, *, seed: int = 0) -> None:
        super().__init__()
        self.take_per_objective("leak", leak, _check_leak)
        self.register_buffer("leak", None)
        self.seed_generator(seed)

    def setup(self, n_objectives: int) -> None:
        self.leak = self.values_per_objective("leak", n_objectives)

    def weights(self, losses: Tensor, gram: Tensor | None = None, preference: Tensor | None = None) -> Tensor:
        return torch.ones_like(losses)

    def masks(self, rows: Tensor, keys: Sequence[int]) -> Tensor:
        total = rows.abs().sum(0)
        purity = 0.5 * (1.0 + torch.where(total > 0, rows.sum(0) / total, 0.0))
        draw = torch.rand(purity.shape, generator=self.generator, device="cpu").to(purity)
        mask = torch.where(purity > draw, rows > 0, rows < 0).to(rows)
        if self.leak is None:
            if self.n_objectives is None and self.options()["leak"] is not None:
                raise ValueError("GradDrop: leak is resolved once the objectives are known; call solve or ensure first")
            return mask
        leak = self.leak[list(keys)].to(rows).view(-1, *[1] * purity.dim())
        return leak + (1.0 - leak) * mask


def _check_leak(name: str, leak: Any, count: int | None = None) -> Tensor:
    result = check_numbers(name, leak, count)
    if bool(((result < 0) | (result > 1)).any()):
        raise ValueError(f"{name} must hold numbers in [0, 1], got {result.tolist()}")
    return result
