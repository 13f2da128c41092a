"""The paper's averages, one F_ij for each pair of objectives: the mathematics, made fast."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from ..direction import Direction
from ..gradients import Block, gathered, own_part
from ._averages import (
    Averages,
    Averaging,
    Curvature,
    Label,
    check_pairs,
    coefficient,
    coefficients,
    largest_coefficient,
)
from ._rounding import check_dtype, chosen, decayed, random_bits


@dataclass(frozen=True)
class Terms:
    """C_lambda as a sum: what multiplies each stored average, d^2, and the products of rows that are new."""

    stored: list[float] | Tensor  # of heads, for each coordinate
    square: float = 0.0
    products: list[tuple[int, int, float]] = field(default_factory=list)  # two positions among the rows, coefficient
    own: Tensor | None = None  # what multiplies the square of the one row of heads, for each coordinate


@dataclass
class PairAverages(Averages):
    """F_ij per coordinate. ``scale[e] * F[e]`` is the average of g_i g_j for ``pairs[e]`` = (i, j).

    The factor spares a pass over memory: an update decays it, adds the new product to F, and leaves the rest alone.
    """

    scale: list[float] = field(default_factory=list)
    F: Tensor | None = None  # [len(pairs), entries of all parameters]

    def curvature(self, x: Direction, measured: Sequence[Label], how: Averaging) -> Curvature | None:
        terms = self._terms(x, measured, how)
        if terms is None:
            return None
        return lambda columns: self._sum(x, terms, columns)

    def needs_no_floor(self, x: Direction, measured: Sequence[Label]) -> bool:
        """So it is with a single average that is up to date."""
        return x.complete and len(x.rows) == len(measured) == 1 and self.pairs in ([], measured)

    def _terms(self, x: Direction, measured: Sequence[Label], how: Averaging) -> Terms | None:
        counts = self._counts(measured)
        if not counts:
            return None
        bias = {pair: how.bias(n) for pair, n in counts.items()}
        decay, shrink = how.decay, how.shrink
        stored: list[float] | Tensor
        weights, fresh = coefficients(x, self.pairs, self.owners, bias, how), set(measured)
        decays = [(scale, decay if pair in fresh else 1.0) for pair, scale in zip(self.pairs, self.scale, strict=True)]
        if self.owners and decays:
            ((scale, aged),) = decays
            stored = self.block.spread([c * scale * aged for c in weights], x.d)
        else:
            stored = [c * scale * aged for c, (scale, aged) in zip(weights, decays, strict=True)]
        # If every pair of the rows is measured, and equally often, what comes new adds up to d * d.
        together, rows = {bias[pair] for pair in measured}, len(x.rows)
        if x.complete and len(together) == 1 and len(measured) == rows * (rows + 1) // 2:
            return Terms(stored, shrink * shrink * (1.0 - decay) / together.pop())
        largest, shrunk = largest_coefficient(x), [w * shrink for w in x.weights]
        if self.owners:
            new_own = [
                (1.0 - decay) * coefficient((i, i), shrunk, bias[None], largest) for i in self.owners if measured
            ]
            return Terms(stored, own=self.block.spread(new_own, x.d) if new_own else None)
        at = {key: r for r, key in enumerate(x.objectives)}
        new = [(at[i], at[j], coefficient((i, j), shrunk, bias[i, j], largest)) for i, j in filter(None, measured)]
        return Terms(stored, 0.0, [(i, j, (1.0 - decay) * c) for i, j, c in new])

    def _sum(self, x: Direction, terms: Terms, columns: slice | None) -> Tensor:
        F, own = self.F, terms.own
        if columns is not None:
            x, F = x.part(columns), None if F is None else F[:, columns]
            own = None if own is None else own[columns]
        if F is None or not len(self.pairs):
            C = torch.zeros_like(x.d)
        elif isinstance(terms.stored, Tensor):
            C = F[0].to(x.d.dtype) * (terms.stored if columns is None else terms.stored[columns])
            if x.mask is not None:
                C.mul_(x.mask[0]).mul_(x.mask[0])
        elif x.mask is not None:
            C = self._masked(x, F, terms.stored)
        elif len(terms.stored) == 1:
            C = F[0].to(x.d.dtype) * terms.stored[0]
        elif F.dtype == x.d.dtype:
            C = F.new_tensor(terms.stored) @ F
        else:
            C = torch.zeros_like(x.d)
            for c, row in zip(terms.stored, F, strict=True):
                C.add_(row.to(C.dtype), alpha=c)
        if terms.square:
            return C.addcmul_(x.d, x.d, value=terms.square)
        rows = x.rows if x.mask is None else x.mask * x.rows
        if own is not None:
            C.addcmul_(rows[0].square(), own)
        for i, j, c in terms.products:
            C.addcmul_(rows[i], rows[j], value=c)
        return C

    def _masked(self, x: Direction, F: Tensor, stored: Sequence[float]) -> Tensor:
        """The stored part when each coordinate has weights of its own; objectives without a row have none."""
        assert x.mask is not None
        at = {key: r for r, key in enumerate(x.objectives)}
        C = torch.zeros_like(x.d)
        for pair, c, row in zip(self.pairs, stored, F, strict=True):
            if pair is not None and pair[0] in at and pair[1] in at:
                C.addcmul_(x.mask[at[pair[0]]] * x.mask[at[pair[1]]], row.to(C.dtype), value=c)
        return C

    def update(
        self, x: Direction, measured: Sequence[Label], how: Averaging, noise: torch.Generator | None = None
    ) -> None:
        """F_ij <- decay F_ij + (1 - decay) g_i g_j for the ``measured`` pairs."""
        if self.F is None or not measured:
            return
        # One draw for all pairs: what is rounded differs from pair to pair, and with it the outcome.
        bits = random_bits(self.F, noise, self.block)
        at = {key: r for r, key in enumerate(x.objectives)}
        slot = {pair: e for e, pair in enumerate(self.pairs)}
        for pair in measured:
            e = slot[pair]
            self.n[e] += 1
            self.scale[e] = decayed(self.F[e], self.scale[e], how.decay, self._product(x, pair, at, how), bits)

    def _product(
        self, x: Direction, pair: Label, at: Mapping[int, int], how: Averaging
    ) -> tuple[Tensor, Tensor, float]:
        """(1 - decay) g_i g_j as two rows and a factor."""
        c, norms = 1.0 - how.decay, how.norms
        if pair is None and (norms is None or self.block.owner is None):
            a = x.rows[0]
            if norms is not None:
                a = a / self.block.spread([norms[owner] or 1.0 for owner in x.owners], a)
            return a, a, c
        if pair is None:
            assert self.block.owner is not None
            i = j = self.block.owner
            a = b = x.rows[0]
        else:
            i, j = pair
            a, b = x.rows[at[i]], x.rows[at[j]]
        if norms is None:
            return a, b, c
        first, second = norms[i] or 1.0, norms[j] or 1.0
        if 1e-12 < first * second < 1e12:
            return a, b, c / (first * second)
        return a / first, b / second, c  # the factor would be too large, or too small, for the rows' precision

    def grown(self, measured: Sequence[Label], count: int, dtype: torch.dtype, device: torch.device) -> PairAverages:
        missing = self.missing(measured)
        if not missing:
            return self
        new = torch.zeros(len(missing), self.block.entries, dtype=self.dtype or dtype, device=device)
        return replace(
            self,
            pairs=[*self.pairs, *missing],
            n=[*self.n, *[0] * len(missing)],
            scale=[*self.scale, *[1.0] * len(missing)],
            F=new if self.F is None else torch.cat([self.F, new]),
        )

    def reorder(self, places: Tensor) -> None:
        if self.F is not None:
            self.F = self.block.own(chosen(self.block.whole(self.F), places))

    @property
    def age(self) -> Any:
        return self.n, self.scale

    def tensors(self) -> list[Tensor]:
        return [] if self.F is None else [self.F]

    def split(self) -> list[PairAverages]:
        Fs: Sequence[Tensor | None] = [None] * len(self.block.params)
        if self.F is not None:
            Fs = self.F.split(self.block.sizes, dim=1)
        return [
            replace(self, block=block, owners=(), pairs=pairs, n=[*self.n], scale=[*self.scale], F=F)
            for block, pairs, F in zip(self.block.split(), self._pairs_by_param(), Fs, strict=True)
        ]

    def join(self, block: Block, owners: tuple[int, ...], others: Sequence[PairAverages]) -> PairAverages:
        pairs, F = self._joined_pairs(owners, others), self.F
        if F is not None:
            F = torch.cat([F, *(a.F for a in others if a.F is not None)], dim=1)
        return replace(self, block=block, owners=owners, pairs=pairs, n=[*self.n], scale=[*self.scale], F=F)

    def state_dict(self) -> dict[str, Any]:
        (param,) = self.block.params
        assert self.F is not None
        return {
            "F": gathered(param, self.F.reshape(len(self.pairs), *self.block.shapes[0]), 1).clone(),
            "pairs": [list(p) for p in self.pairs if p is not None],
            "n": list(self.n),
            "scale": list(self.scale),
        }

    def check_state_dict(self, state: dict[str, Any]) -> None:
        for key in ("F", "pairs", "n", "scale"):
            if key not in state:
                raise ValueError(f"lack {key!r}")
        F, pairs, n, scale = (state[key] for key in ("F", "pairs", "n", "scale"))
        shape = tuple(self.block.params[0].shape)
        if tuple(F.shape[1:]) != shape or not len(F) == len(pairs) == len(n) == len(scale):
            raise ValueError(f"have shape {tuple(F.shape)} for {len(pairs)} pairs; the parameter has shape {shape}")
        check_pairs(pairs)
        check_dtype(F, self.dtype)

    def load_state_dict(self, state: dict[str, Any], dtype: torch.dtype) -> None:
        (param,) = self.block.params
        F = own_part(param, state["F"], 1).to(device=param.device, dtype=self.dtype or dtype, copy=True)
        self.pairs = [(int(i), int(j)) for i, j in state["pairs"]]
        self.n, self.scale, self.F = [*state["n"]], [*state["scale"]], F.reshape(len(F), self.block.entries)
