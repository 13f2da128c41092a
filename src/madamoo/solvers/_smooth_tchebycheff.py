from __future__ import annotations

import torch
from torch import Tensor

from ..checks import check_flag, check_integer, check_positive
from ._options import PerObjectiveNumbers
from ._tchebycheff import Tchebycheff


class SmoothTchebycheff(Tchebycheff):
    """Smooth Tchebycheff scalarisation (`Lin et al., 2024 <https://arxiv.org/abs/2402.19078>`_).

    Minimises mu log sum_i exp(p_i (f_i - z_i) / mu), p the preference on the simplex: the maximum of
    :class:`Tchebycheff` for mu to 0, :class:`LS` with weights p for mu to infinity. With f = l,
    lambda_i = C p_i softmax_i(p (l - z) / mu), from this step's losses; the factor C gives a uniform preference the
    scale of LS.

    mu is measured in units of p_i (f_i - z_i), so losses of unlike scales want a warm-up: in its steps the softmax is
    uniform (linear scalarisation), and the average distance n_i = |l_i - z_i| in them becomes the unit of that
    objective, f_i - z_i = (l_i - z_i) / n_i, as the authors' code divides by the distance of ideal and nadir. With
    ``log``, f_i - z_i = log((l_i - z_i) / n_i), as in the paper's multi-task experiments (whose p is 1 for each
    objective: their mu is C times this one).

    Any finite losses give finite weights: a unit is at least ``eps``, and so is the distance under the logarithm.

    Args:
        mu: smoothing; smaller is nearer to the maximum.
        warmup: number of steps of the warm-up; with 0 losses are taken as they are.
        log: take the logarithm of the losses.
        default: the preference for steps that give none, in order or by name; 1/C each if None.
        ideal: z, in order or by name; zero each if None.
        eps: distances from the ideal point below it count as it.

    Example:
        >>> SmoothTchebycheff(mu=1.0).solve(torch.tensor([4.0, 1.0]))
        tensor([0.8176, 0.1824])
    """

    per_objective = ("default", "ideal", "unit", "counts")

    unit: Tensor
    counts: Tensor

    def __init__(
        self,
        mu: float = 0.1,
        warmup: int = 0,
        *,
        log: bool = False,
        default: PerObjectiveNumbers | None = None,
        ideal: PerObjectiveNumbers | None = None,
        eps: float = 1e-8,
    ) -> None:
        super().__init__(default, ideal=ideal)
        self.mu = check_positive("mu", mu)
        self.warmup = check_integer("warmup", warmup, 0)
        self.log = check_flag("log", log)
        self.eps = check_positive("eps", eps)

    def setup(self, n_objectives: int) -> None:
        super().setup(n_objectives)
        self.register_buffer("unit", torch.ones(n_objectives, dtype=torch.float64))
        self.register_buffer("counts", torch.zeros(n_objectives, dtype=torch.float64))

    def slopes(self, p: Tensor, gap: Tensor) -> Tensor:
        warming = self.counts < self.warmup  # each objective counts its own steps: some batches may lack it
        linear = bool(warming.any()) or not bool(p.any())
        if linear:
            self.counts = self.counts + warming
            mean = self.unit + (gap.abs() - self.unit) / self.counts.clamp_min(1)
            self.unit = torch.where(warming, mean, self.unit)
        unit, distance = self.unit.clamp_min(self.eps), gap.clamp_min(self.eps)
        f = torch.log(distance / unit) if self.log else (gap / unit).clamp(-1e300, 1e300)
        slope = 1 / (distance if self.log else unit)
        if linear:
            return slope / len(p)
        y = (p * f).masked_fill(p == 0, -torch.inf)
        return slope * torch.softmax((y - y.max()) / self.mu, 0)
