from __future__ import annotations

import torch
from torch import Tensor

from ..checks import check_integer, check_positive
from ._base import Solver


class DWA(Solver):
    """Dynamic weight average (`Liu et al., 2019 <https://arxiv.org/abs/1803.10704>`_).

    lambda_i = softmax_i(r_i / T), r_i = mean loss of the last window / mean loss of the window before it: an objective
    that falls slowly gets more weight. Until two windows are full, the weights are equal. The weights sum to 1 (the
    paper's sum to C), so that the step has the scale of :class:`LS`.

    Args:
        temperature: T; a larger one makes the weights more equal.
        window: number of steps whose losses are averaged; the paper's window is an epoch.

    Example:
        >>> solver = DWA(window=1)
        >>> for losses in ([4.0, 1.0], [2.0, 1.0], [1.0, 1.0]):
        ...     weights = solver.solve(torch.tensor(losses))
        >>> weights  # the first has fallen by half, the second stands
        tensor([0.4378, 0.5622])
    """

    per_objective = ("sums", "counts", "last", "before")

    sums: Tensor
    counts: Tensor
    last: Tensor
    before: Tensor

    def __init__(self, temperature: float = 2.0, window: int = 25) -> None:
        super().__init__()
        self.temperature = check_positive("temperature", temperature)
        self.window = check_integer("window", window, 1)

    def setup(self, n_objectives: int) -> None:
        self.register_buffer("sums", torch.zeros(n_objectives, dtype=torch.float64))
        self.register_buffer("counts", torch.zeros(n_objectives, dtype=torch.float64))
        self.register_buffer("last", torch.full((n_objectives,), torch.nan, dtype=torch.float64))
        self.register_buffer("before", torch.full((n_objectives,), torch.nan, dtype=torch.float64))

    def weights(self, losses: Tensor, gram: Tensor | None = None, preference: Tensor | None = None) -> Tensor:
        self.ensure(len(losses))
        ratio = self.last / self.before
        # An objective without two windows behind it, or whose loss was zero, stands at par.
        ratio = torch.where(torch.isfinite(ratio), ratio, torch.ones_like(ratio))
        weights = torch.softmax(ratio / self.temperature, 0)
        self._record(losses.detach().to(self.sums))
        return weights.to(losses)

    def _record(self, losses: Tensor) -> None:
        sums, counts = self.sums + losses, self.counts + 1
        full = counts >= self.window  # each objective has windows of its own: some batches may lack it
        self.before = torch.where(full, self.last, self.before)
        self.last = torch.where(full, sums / counts, self.last)
        self.sums = torch.where(full, 0.0, sums)
        self.counts = torch.where(full, 0.0, counts)
