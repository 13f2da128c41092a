"""The running averages F_ij of a block of parameters, and the curvature they give: the mathematics, made fast."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations_with_replacement

import torch
from torch import Tensor

from ..direction import Direction
from ..gradients import sizes_of

Pair = tuple[int, int]
SMALLEST_SCALE = 1 / 32  # so that what is stored is at most so many times larger than what it stands for


@dataclass(frozen=True)
class Terms:
    """C_lambda as a sum: what multiplies each stored average, d^2, and the products of rows that are new."""

    stored: list[float]
    square: float = 0.0
    products: list[tuple[int, int, float]] = field(default_factory=list)  # two positions among the rows, coefficient


@dataclass
class Averages:
    """F_ij of a block for the pairs i <= j of objectives that reach it; nothing is stored for the others.

    ``scale[e] * F[e]`` is the average of g_i g_j for ``pairs[e]`` = (i, j) and ``n[e]`` the number of its updates. The
    factor spares a pass over memory: an update decays it, adds the new product to F, and leaves the rest alone.
    """

    params: tuple[Tensor, ...]
    pairs: list[Pair] = field(default_factory=list)
    n: list[int] = field(default_factory=list)
    scale: list[float] = field(default_factory=list)
    F: Tensor | None = None  # [len(pairs), entries of all parameters]

    def terms(
        self,
        x: Direction,
        measured: Sequence[Pair],
        beta: float,
        bias_correction: bool,
        norms: Mapping[int, float] | None = None,
    ) -> Terms | None:
        """How to sum up C_lambda = sum_ij w_i w_j F_ij as it will be once the rows of x are in the averages.

        ``measured`` are the pairs to be updated with the rows. None if there is no average yet.
        """
        counts = dict(zip(self.pairs, self.n, strict=True))
        for pair in measured:
            counts[pair] = counts.get(pair, 0) + 1
        if not counts:
            return None
        largest = torch.finfo(x.d.dtype).max / 8  # so that a weight beyond it, times an average of zero, is zero
        weights = x.weights if norms is None else [w * norms.get(i, 0.0) for i, w in enumerate(x.weights)]

        def weight(pair: Pair, w: Sequence[float]) -> float:
            i, j = pair
            both = w[i] * w[j] * (1.0 if i == j else 2.0)
            if bias_correction:
                both /= 1.0 - beta ** counts[pair]  # how far from its start at zero the average has come
            return min(max(both, -largest), largest)

        fresh = set(measured)
        stored = [
            weight(pair, weights) * scale * (beta if pair in fresh else 1.0)
            for pair, scale in zip(self.pairs, self.scale, strict=True)
        ]
        # If every pair of the rows is measured, and equally often, what comes new adds up to d * d.
        together = {counts[pair] for pair in measured} if bias_correction else {1}
        if x.complete and len(together) == 1 and len(measured) == len(x.keys) * (len(x.keys) + 1) // 2:
            bias = 1.0 - beta ** together.pop() if bias_correction else 1.0
            return Terms(stored, (1.0 - beta) / bias)
        at = {key: r for r, key in enumerate(x.keys)}
        return Terms(stored, 0.0, [(at[i], at[j], (1.0 - beta) * weight((i, j), x.weights)) for i, j in measured])

    def curvature(self, x: Direction, terms: Terms) -> Tensor:
        """C_lambda; the averages stay as they are."""
        if self.F is None:
            C = torch.zeros_like(x.d)
        elif x.mask is not None:
            C = self._masked(x, terms.stored)
        elif len(terms.stored) == 1:
            C = self.F[0] * terms.stored[0]
        else:
            C = self.F.new_tensor(terms.stored) @ self.F
        if terms.square:
            return C.addcmul_(x.d, x.d, value=terms.square)
        rows = x.rows if x.mask is None else x.mask * x.rows
        for i, j, c in terms.products:
            C.addcmul_(rows[i], rows[j], value=c)
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

    def update(self, x: Direction, measured: Sequence[Pair], beta: float, norms: Mapping[int, float] | None) -> None:
        """F_ij <- beta F_ij + (1 - beta) g_i g_j for the ``measured`` pairs; new pairs start from zero."""
        missing = [pair for pair in measured if pair not in self.pairs]
        if missing:
            room = x.rows.new_zeros((len(missing), x.rows.shape[1]))
            self.F = room if self.F is None else torch.cat([self.F, room])
            self.pairs.extend(missing)
            self.n.extend([0] * len(missing))
            self.scale.extend([1.0] * len(missing))
        if self.F is None:
            return
        at = {key: r for r, key in enumerate(x.keys)}
        slot = {pair: e for e, pair in enumerate(self.pairs)}
        for i, j in measured:
            e = slot[i, j]
            self.n[e] += 1
            self.scale[e] *= beta
            if self.scale[e] < SMALLEST_SCALE:
                self.F[e].mul_(self.scale[e])
                self.scale[e] = 1.0
            value = (1.0 - beta) / self.scale[e]
            if norms is not None:
                value /= (norms[i] or 1.0) * (norms[j] or 1.0)
            self.F[e].addcmul_(x.rows[at[i]], x.rows[at[j]], value=value)

    def part(self, columns: slice) -> Averages:
        """The averages of some coordinates; a view, to read."""
        return replace(self, F=None if self.F is None else self.F[:, columns])

    def owned(self) -> Averages:
        """The same in memory of its own."""
        return replace(self, F=None if self.F is None else self.F.clone(memory_format=torch.contiguous_format))

    def split(self) -> list[Averages]:
        """Parameter by parameter; F are views."""
        Fs: Sequence[Tensor | None] = [None] * len(self.params)
        if self.F is not None:
            Fs = self.F.split(sizes_of(self.params), dim=1)
        return [
            Averages((p,), [*self.pairs], [*self.n], [*self.scale], F) for p, F in zip(self.params, Fs, strict=True)
        ]


def join(parts: Sequence[Averages]) -> Averages:
    """The averages of several parameters, laid end to end."""
    first = parts[0]
    for other in parts[1:]:
        if (other.pairs, other.n, other.scale) != (first.pairs, first.n, first.scale):
            raise RuntimeError("averages of parameters that were updated in different steps cannot be joined")
    F = first.F
    if F is not None and len(parts) > 1:
        F = torch.cat([a.F for a in parts if a.F is not None], dim=1)
    return Averages(tuple(p for a in parts for p in a.params), first.pairs, first.n, first.scale, F)


def all_pairs(keys: Sequence[int]) -> list[Pair]:
    return list(combinations_with_replacement(sorted(keys), 2))


def metric_of(x: Direction, C: Tensor | None, *, floor: float | None, eps: float, alpha: float, ramp: str) -> Tensor:
    """M = alpha sqrt(C + eps) + (1 - alpha) s; C may be overwritten.

    With all pairs up to date C >= (1 - beta) d^2 holds by itself; ``floor`` = 1 - beta enforces it when they are not,
    so that no entry of d / M exceeds 1 / sqrt(floor). Without it, negative curvature counts as none.
    """
    if C is None:
        C = torch.zeros_like(x.d)
    C = C.clamp_(min=0.0) if floor is None else torch.maximum(C, floor * x.d.square())
    M = C.add_(eps).sqrt_()
    if alpha < 1.0:
        for part in M.split(sizes_of(x.params)):  # s is a matter of one tensor
            if part.numel():
                s = part.amax() if ramp == "largest" else part.mean() if ramp == "matched" else 1.0
                part.mul_(alpha).add_((1.0 - alpha) * s)
    return M
