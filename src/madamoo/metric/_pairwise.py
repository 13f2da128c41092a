"""The paper's averages, one F_ij for each pair of objectives: the mathematics, made fast."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from ..direction import Direction
from ..gradients import OWN, sizes_of, spread
from ._averages import (
    Averages,
    Curvature,
    Norms,
    Pair,
    coefficient,
    coefficients,
    largest_coefficient,
)
from ._rounding import check_dtype, decayed, random_bits


@dataclass(frozen=True)
class Terms:
    """C_lambda as a sum: what multiplies each stored average, d^2, and the products of rows that are new."""

    stored: list[float] | Tensor  # of heads, for each coordinate
    square: float = 0.0
    products: list[tuple[int, int, float]] = field(default_factory=list)  # two positions among the rows, coefficient


@dataclass
class Pairwise(Averages):
    """F_ij per coordinate. ``scale[e] * F[e]`` is the average of g_i g_j for ``pairs[e]`` = (i, j).

    The factor spares a pass over memory: an update decays it, adds the new product to F, and leaves the rest alone.
    """

    scale: list[float] = field(default_factory=list)
    F: Tensor | None = None  # [len(pairs), entries of all parameters]

    def curvature(
        self, x: Direction, measured: Sequence[Pair], beta: float, norms: Norms | None, bias_correction: bool
    ) -> Curvature | None:
        terms = self._terms(x, measured, beta, norms, bias_correction)
        if terms is None:
            return None
        return lambda columns: self._sum(x, terms, columns)

    def needs_no_floor(self, x: Direction, measured: Sequence[Pair]) -> bool:
        """So it is with a single average that is up to date."""
        return x.complete and len(x.keys) == len(measured) == 1 and self.pairs in ([], measured)

    def _terms(
        self, x: Direction, measured: Sequence[Pair], beta: float, norms: Norms | None, bias_correction: bool
    ) -> Terms | None:
        counts = self._counts(measured)
        if not counts:
            return None
        bias = {pair: 1.0 - beta**n if bias_correction else 1.0 for pair, n in counts.items()}
        stored: list[float] | Tensor
        weights, fresh = coefficients(x, self.pairs, self.owners, norms, bias), set(measured)
        decays = [(scale, beta if pair in fresh else 1.0) for pair, scale in zip(self.pairs, self.scale, strict=True)]
        if self.owners:
            ((scale, decay),) = decays
            stored = spread([c * scale * decay for c in weights], sizes_of(self.params), x.d)
        else:
            stored = [c * scale * decay for c, (scale, decay) in zip(weights, decays, strict=True)]
        # If every pair of the rows is measured, and equally often, what comes new adds up to d * d.
        together = {bias[pair] for pair in measured}
        if x.complete and len(together) == 1 and len(measured) == len(x.keys) * (len(x.keys) + 1) // 2:
            return Terms(stored, (1.0 - beta) / together.pop())
        at, largest = {key: r for r, key in enumerate(x.keys)}, largest_coefficient(x)
        new = [(at[i], at[j], coefficient((i, j), x.weights, bias[i, j], largest)) for i, j in measured]
        return Terms(stored, 0.0, [(i, j, (1.0 - beta) * c) for i, j, c in new])

    def _sum(self, x: Direction, terms: Terms, columns: slice | None) -> Tensor:
        F = self.F
        if columns is not None:
            x, F = x.part(columns), None if F is None else F[:, columns]
        if F is None:
            C = torch.zeros_like(x.d)
        elif isinstance(terms.stored, Tensor):
            C = F[0].to(x.d.dtype) * (terms.stored if columns is None else terms.stored[columns])
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
        for i, j, c in terms.products:
            C.addcmul_(rows[i], rows[j], value=c)
        return C

    def _masked(self, x: Direction, F: Tensor, stored: Sequence[float]) -> Tensor:
        """The stored part when each coordinate has weights of its own; objectives without a row have none."""
        assert x.mask is not None
        at = {key: r for r, key in enumerate(x.keys)}
        C = torch.zeros_like(x.d)
        for (i, j), c, row in zip(self.pairs, stored, F, strict=True):
            if i in at and j in at:
                C.addcmul_(x.mask[at[i]] * x.mask[at[j]], row.to(C.dtype), value=c)
        return C

    def update(
        self,
        x: Direction,
        measured: Sequence[Pair],
        beta: float,
        norms: Norms | None = None,
        noise: torch.Generator | None = None,
    ) -> None:
        """F_ij <- beta F_ij + (1 - beta) g_i g_j for the ``measured`` pairs."""
        self.allocate(measured, len(x.weights), x.rows.dtype, x.rows.device)
        if self.F is None:
            return
        self.owners = x.owners
        # One draw for all pairs: what is rounded differs from pair to pair, and with it the outcome.
        bits = random_bits(self.F, noise)
        at = {key: r for r, key in enumerate(x.keys)}
        slot = {pair: e for e, pair in enumerate(self.pairs)}
        for i, j in measured:
            e = slot[i, j]
            a, b, c = x.rows[at[i]], x.rows[at[j]], 1.0 - beta
            if norms is not None and i == OWN:
                a = b = a / spread([norms[owner] or 1.0 for owner in x.owners], sizes_of(x.params), a)
            elif norms is not None:
                c /= (norms[i] or 1.0) * (norms[j] or 1.0)
            self.n[e] += 1
            self.scale[e] = decayed(self.F[e], self.scale[e], beta, (a, b, c), bits)

    def allocate(self, measured: Sequence[Pair], count: int, dtype: torch.dtype, device: torch.device) -> None:
        missing = self.missing(measured)
        if not missing:
            return
        room = torch.zeros(len(missing), sum(sizes_of(self.params)), dtype=self.dtype or dtype, device=device)
        self.F = room if self.F is None else torch.cat([self.F, room])
        self.pairs.extend(missing)
        self.n.extend([0] * len(missing))
        self.scale.extend([1.0] * len(missing))

    @property
    def age(self) -> Any:
        return self.n, self.scale

    def tensors(self) -> list[Tensor]:
        return [] if self.F is None else [self.F]

    def owned(self) -> Pairwise:
        return replace(self, F=None if self.F is None else self.F.clone(memory_format=torch.contiguous_format))

    def split(self) -> list[Pairwise]:
        Fs: Sequence[Tensor | None] = [None] * len(self.params)
        if self.F is not None:
            Fs = self.F.split(sizes_of(self.params), dim=1)
        return [
            replace(self, params=(p,), pairs=pairs, n=[*self.n], owners=(), scale=[*self.scale], F=F)
            for p, pairs, F in zip(self.params, self._pairs_by_param(), Fs, strict=True)
        ]

    def join(self, others: Sequence[Pairwise]) -> Pairwise:
        joined, F = self._joined(others), self.F
        if F is not None and others:
            F = torch.cat([F, *(a.F for a in others if a.F is not None)], dim=1)
        return replace(self, **joined, F=F)

    def state_dict(self) -> dict[str, Any]:
        (param,) = self.params
        assert self.F is not None
        return {
            "F": self.F.reshape(len(self.pairs), *param.shape).clone(),
            "pairs": [list(p) for p in self.pairs],
            "n": list(self.n),
            "scale": list(self.scale),
        }

    def check_state_dict(self, state: dict[str, Any]) -> None:
        for key in ("F", "pairs", "n", "scale"):
            if key not in state:
                raise ValueError(f"lack {key!r}")
        F, pairs, n, scale = (state[key] for key in ("F", "pairs", "n", "scale"))
        shape = tuple(self.params[0].shape)
        if tuple(F.shape[1:]) != shape or not len(F) == len(pairs) == len(n) == len(scale):
            raise ValueError(f"have shape {tuple(F.shape)} for {len(pairs)} pairs; the parameter has shape {shape}")
        check_dtype(F, self.dtype)

    def load_state_dict(self, state: dict[str, Any], dtype: torch.dtype) -> None:
        (param,) = self.params
        F = state["F"].to(device=param.device, dtype=self.dtype or dtype, copy=True)
        self.pairs = [(int(i), int(j)) for i, j in state["pairs"]]
        self.n, self.scale, self.F = [*state["n"]], [*state["scale"]], F.reshape(len(F), param.numel())
