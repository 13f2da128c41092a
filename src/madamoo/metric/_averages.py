"""The running averages F_ij of one parameter, and the curvature they give: the mathematics of the metric, made fast."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations_with_replacement

import torch
from torch import Tensor

from ..direction import Direction
from ..gradients import as_matrix

Pair = tuple[int, int]


@dataclass
class Averages:
    """F_ij of one parameter for the pairs i <= j of objectives that reach it; nothing is stored for the others.

    ``F[e]`` is the average of g_i * g_j for ``pairs[e]`` = (i, j) and ``n[e]`` the number of times it was updated.
    """

    pairs: list[Pair] = field(default_factory=list)
    n: list[int] = field(default_factory=list)
    F: Tensor | None = None

    def curvature(self, x: Direction, measured: Sequence[Pair], beta: float, bias_correction: bool) -> Tensor | None:
        """C_lambda = sum_ij w_i w_j F_ij as it will be once the rows of x are in the averages, which stay as they are.

        ``measured`` are the pairs to be updated with the rows. None if there is no average yet.
        """
        counts = dict(zip(self.pairs, self.n, strict=True))
        for pair in measured:
            counts[pair] = counts.get(pair, 0) + 1
        if not counts:
            return None

        largest = torch.finfo(x.d.dtype).max / 8  # so that a weight beyond it, times an average of zero, is zero
        fresh = set(measured)

        def weight(pair: Pair) -> float:
            i, j = pair
            both = x.weights[i] * x.weights[j] * (1.0 if i == j else 2.0)
            if bias_correction:
                both = both / (1.0 - beta ** counts[pair])
            return min(max(both, -largest), largest)

        # What is stored: one pass over F.
        stored = [weight(pair) * (beta if pair in fresh else 1.0) for pair in self.pairs]
        if self.F is None:
            C = torch.zeros_like(x.d)
        elif x.mask is not None:
            C = self._masked(x, stored)
        elif len(stored) == 1:
            C = self.F[0] * stored[0]
        else:
            C = (self.F.new_tensor(stored) @ as_matrix(self.F)).view(x.d.shape)
        # What comes new. If every pair of the rows is measured, and equally often, it adds up to d * d.
        together = {counts[pair] for pair in measured} if bias_correction else {1}
        alike = x.complete and len(together) == 1 and len(measured) == len(x.keys) * (len(x.keys) + 1) // 2
        if alike:
            bias = 1.0 - beta ** together.pop() if bias_correction else 1.0
            return C.addcmul_(x.d, x.d, value=(1.0 - beta) / bias)
        at = {key: r for r, key in enumerate(x.keys)}
        rows = x.rows if x.mask is None else x.mask * x.rows
        for i, j in measured:
            C.addcmul_(rows[at[i]], rows[at[j]], value=(1.0 - beta) * weight((i, j)))
        return C

    def _masked(self, x: Direction, stored: Sequence[float]) -> Tensor:
        """The stored part when each coordinate has weights of its own; objectives without a row have none."""
        assert self.F is not None and x.mask is not None
        at = {key: r for r, key in enumerate(x.keys)}
        C = torch.zeros_like(x.d)
        for (i, j), c, F in zip(self.pairs, stored, self.F, strict=True):
            if i in at and j in at:
                C.addcmul_(x.mask[at[i]] * x.mask[at[j]], F, value=c)
        return C

    def update(self, rows: Tensor, keys: Sequence[int], measured: Sequence[Pair], beta: float) -> None:
        """F_ij <- beta F_ij + (1 - beta) g_i g_j for the ``measured`` pairs; new pairs start from zero."""
        missing = [pair for pair in measured if pair not in self.pairs]
        if missing:
            room = rows.new_zeros((len(missing), *rows.shape[1:]))
            self.F = room if self.F is None else torch.cat([self.F, room])
            self.pairs.extend(missing)
            self.n.extend([0] * len(missing))
        if self.F is None:
            return
        at = {key: r for r, key in enumerate(keys)}
        slot = {pair: e for e, pair in enumerate(self.pairs)}
        for i, j in measured:
            e = slot[i, j]
            self.F[e].mul_(beta).addcmul_(rows[at[i]], rows[at[j]], value=1.0 - beta)
            self.n[e] += 1


def all_pairs(keys: Sequence[int]) -> list[Pair]:
    return list(combinations_with_replacement(sorted(keys), 2))


def precondition(d: Tensor, C: Tensor | None, *, floor: float | None, eps: float, alpha: float, ramp: str) -> Tensor:
    """d / M with M = alpha sqrt(C + eps) + (1 - alpha) s; C may be overwritten.

    With all pairs up to date C >= (1 - beta) d^2 holds by itself; ``floor`` = 1 - beta enforces it when they are not,
    so that no entry of the result exceeds 1 / sqrt(floor). Without it, negative curvature counts as none.
    """
    if C is None:
        C = torch.zeros_like(d)
    C = C.clamp_(min=0.0) if floor is None else torch.maximum(C, floor * d.square())
    M = C.add_(eps).sqrt_()
    if alpha < 1.0 and M.numel():
        s = M.amax() if ramp == "largest" else M.mean() if ramp == "matched" else 1.0
        M = M.mul_(alpha).add_((1.0 - alpha) * s)
    return d / M
