"""One buffer for any number of objectives: F_ij = S_ij u, with u a shape that all pairs of a group of rows share.

Kept are, per coordinate, v = the average of sum_i g_i^2 and, per group, S = the average of the group's Gram matrix. The
sum of v over a group is tr S, whatever happens: so u = v / tr S and

    C_lambda = (lambda' S lambda / tr S) v,

which is exact where F_ij = S_ij u holds. An average has to be divided by 1 - beta^n for its start at zero. In v / tr S
that cancels, and what is left is the bias of each S_ij, which has a count of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..direction import Direction
from ..gradients import sizes_of
from ._averages import (
    Averages,
    Curvature,
    Norms,
    Pair,
    coefficient,
    effective_weights,
    largest_coefficient,
)
from ._rounding import check_dtype, decayed, random_bits

SHARE = 4  # coordinates of a group for each entry of its S, at least, in tensors that have so many


class Groups:
    """The coordinates of some parameters, group by group.

    A group is one row of a tensor (all entries with one index in dimension 0: the inputs of a neuron, the filter of a
    channel, the vector of a token), or as many neighbouring rows as it takes to have ``SHARE`` coordinates for each of
    the C (C + 1) / 2 pairs of objectives. The rows of a vector (bias, norm) are its entries. No group spans tensors.
    """

    def __init__(self, params: Sequence[Tensor], count: int) -> None:
        self.count = count
        self.layout = [_group(p, SHARE * count * (count + 1) // 2) for p in params]  # entries, groups, their entries
        self.total = sum(groups for _, groups, _ in self.layout)
        self._sizes: Tensor | None = None

    def gram(self, G: Tensor) -> Tensor:
        """The Gram matrix of the rows G [k, entries] in each group: [groups, k, k]."""
        found = []
        for (entries, groups, size), part in zip(
            self.layout, G.split([entries for entries, _, _ in self.layout], dim=1), strict=True
        ):
            if groups * size > entries:
                part = torch.nn.functional.pad(part, (0, groups * size - entries))
            X = part.reshape(len(G), groups, size).transpose(0, 1)
            found.append(X @ X.mT)
        # Where a sum of squares overflows, any large number will do.
        largest = torch.finfo(G.dtype).max / (8 * max(len(G), 1))
        return torch.cat(found).nan_to_num_(0.0, largest, -largest).clamp_(-largest, largest)

    def spread(self, values: Tensor) -> Tensor:
        """The value of its group for each coordinate."""
        if self._sizes is None or self._sizes.device != values.device:
            sizes = [min(size, entries - g * size) for entries, groups, size in self.layout for g in range(groups)]
            self._sizes = torch.tensor(sizes, dtype=torch.int64, device=values.device)
        return values.repeat_interleave(self._sizes, output_size=sum(entries for entries, _, _ in self.layout))


def _group(param: Tensor, least: int) -> tuple[int, int, int]:
    """Entries, number of groups, and entries of a group but for the last, which may be smaller."""
    entries = param.numel()
    if not entries:
        return 0, 0, 1
    rows = param.shape[0] if param.dim() > 1 else entries
    row = entries // rows
    together = min(rows, math.ceil(least / row))
    together = math.ceil(rows / (rows // together))  # evened out
    return entries, math.ceil(rows / together), together * row


@dataclass
class Separable(Averages):
    """``scale * v`` per coordinate, S [len(pairs), groups].

    When an objective is not measured, because the batch lacks it or another pair was drawn, its S_ii rests, and so does
    its part of v, which by the model is S_ii / tr S: the decay of v is the share of those that are measured.
    """

    scale: float = 1.0
    v: Tensor | None = None  # [entries of all parameters]
    S: Tensor | None = None
    groups: Groups | None = None

    def curvature(
        self, x: Direction, measured: Sequence[Pair], beta: float, norms: Norms | None, bias_correction: bool
    ) -> Curvature | None:
        counts = self._counts(measured)
        if not counts:
            return None
        groups = self._groups(len(x.weights))
        S, keep = self._taken(groups, x, measured, beta, norms)
        pairs = [*self.pairs, *self.missing(measured)]
        largest, weights = largest_coefficient(x), effective_weights(x, norms)
        bias = {pair: 1.0 - beta**n if bias_correction else 1.0 for pair, n in counts.items()}
        coefficients = [coefficient(pair, weights, bias[pair], largest) for pair in pairs]
        trace = _trace(S, pairs)
        shares = torch.where(trace > 0, S / trace, 0.0)
        factor = None if x.mask is not None else groups.spread(S.new_tensor(coefficients) @ shares)

        def some(columns: slice | None) -> Tensor:
            y = x if columns is None else x.part(columns)
            v = torch.zeros_like(y.d)
            if self.v is not None:
                old = self.v if columns is None else self.v[columns]
                v.add_(old.to(v.dtype), alpha=self.scale * (beta if keep is None else 1.0))
                if keep is not None:
                    v.mul_(keep if columns is None else keep[columns])
            for a, b, c in self._squares(y, measured, beta, norms):
                v.addcmul_(a, b, value=c)
            if factor is not None:
                return v.mul_(factor if columns is None else factor[columns])
            return v.mul_(_masked(groups, y, columns, pairs, coefficients, shares))

        return some

    def update(
        self,
        x: Direction,
        measured: Sequence[Pair],
        beta: float,
        norms: Norms | None = None,
        noise: torch.Generator | None = None,
    ) -> None:
        groups = self._groups(len(x.weights))
        self.allocate(measured, groups.count, x.rows.dtype, x.rows.device)
        if self.v is None or not measured:
            return
        self.S, keep = self._taken(groups, x, measured, beta, norms)
        fresh = set(measured)
        self.n = [n + (pair in fresh) for pair, n in zip(self.pairs, self.n, strict=True)]
        bits = random_bits(self.v, noise)
        decay = beta if keep is None else 1.0
        self.scale = decayed(self.v, self.scale, decay, self._squares(x, measured, beta, norms), bits, keep)

    def _taken(
        self, groups: Groups, x: Direction, measured: Sequence[Pair], beta: float, norms: Norms | None
    ) -> tuple[Tensor, Tensor | None]:
        """S with the rows of x in it, and what v keeps of itself: per coordinate, or None if it is beta everywhere."""
        missing = self.missing(measured)
        S = x.rows.new_zeros(len(self.pairs) + len(missing), groups.total)
        if self.S is not None:
            S[: len(self.pairs)] = self.S
        if not measured:
            return S, torch.ones_like(x.d)
        slot = {pair: e for e, pair in enumerate([*self.pairs, *missing])}
        at = {key: r for r, key in enumerate(x.keys)}
        wanted = sorted({i for pair in measured for i in pair})
        rows = x.rows if list(x.keys) == wanted else x.rows[[at[i] for i in wanted]]
        K = groups.gram(rows)
        if norms is not None:
            inverse = K.new_tensor([1.0 / (norms[i] or 1.0) for i in wanted])
            K = K * inverse[:, None] * inverse
        chosen, place = torch.tensor([slot[pair] for pair in measured]), {i: r for r, i in enumerate(wanted)}
        first, second = (torch.tensor([place[pair[side]] for pair in measured]) for side in (0, 1))
        own = [slot[i, i] for i in wanted]
        resting = [e for (i, j), e in slot.items() if i == j and e not in own]
        keep = None
        if resting:
            part = S[own].sum(0)
            total = part + S[resting].sum(0)
            keep = groups.spread(1.0 - (1.0 - beta) * torch.where(total > 0, part / total, 0.0))
        S[chosen] = beta * S[chosen] + (1.0 - beta) * K[:, first, second].T
        return S, keep

    @staticmethod
    def _squares(
        x: Direction, measured: Sequence[Pair], beta: float, norms: Norms | None
    ) -> list[tuple[Tensor, Tensor, float]]:
        """What is new in v: the squares of the objectives that are measured."""
        fresh = {i for pair in measured for i in pair}
        size = {i: 1.0 if norms is None else norms[i] or 1.0 for i in fresh}
        return [(g, g, (1.0 - beta) / size[i] ** 2) for i, g in zip(x.keys, x.rows, strict=True) if i in fresh]

    def _groups(self, count: int) -> Groups:
        if self.groups is None:
            self.groups = Groups(self.params, count)
        return self.groups

    def allocate(self, measured: Sequence[Pair], count: int, dtype: torch.dtype, device: torch.device) -> None:
        missing = self.missing(measured)
        if not missing:
            return
        if self.v is None:
            self.v = torch.zeros(sum(sizes_of(self.params)), dtype=self.dtype or dtype, device=device)
        room = torch.zeros(len(missing), self._groups(count).total, dtype=dtype, device=device)
        self.S = room if self.S is None else torch.cat([self.S, room])
        self.pairs.extend(missing)
        self.n.extend([0] * len(missing))

    def tensors(self) -> list[Tensor]:
        return [t for t in (self.v, self.S) if t is not None]

    def owned(self) -> Separable:
        v, S = (None if t is None else t.clone(memory_format=torch.contiguous_format) for t in (self.v, self.S))
        return replace(self, v=v, S=S)

    def split(self) -> list[Separable]:
        vs: Sequence[Tensor | None] = [None] * len(self.params)
        Ss = vs
        if self.v is not None and self.S is not None and self.groups is not None:
            vs = self.v.split(sizes_of(self.params))
            Ss = self.S.split([groups for _, groups, _ in self.groups.layout], dim=1)
        count = None if self.groups is None else self.groups.count
        return [
            replace(
                self,
                params=(p,),
                pairs=[*self.pairs],
                n=[*self.n],
                v=v,
                S=S,
                groups=None if count is None else Groups((p,), count),
            )
            for p, v, S in zip(self.params, vs, Ss, strict=True)
        ]

    def join(self, others: Sequence[Separable]) -> Separable:
        for other in others:
            if (other.pairs, other.n, other.scale) != (self.pairs, self.n, self.scale):
                raise RuntimeError("averages of parameters that were updated in different steps cannot be joined")
        params = tuple(p for a in (self, *others) for p in a.params)
        if self.v is None or self.S is None or self.groups is None:
            return replace(self, params=params, groups=None)
        if not others:
            return self
        v = torch.cat([self.v, *(a.v for a in others if a.v is not None)])
        S = torch.cat([self.S, *(a.S for a in others if a.S is not None)], dim=1)
        return replace(self, params=params, v=v, S=S, groups=Groups(params, self.groups.count))

    def state_dict(self) -> dict[str, Any]:
        assert self.v is not None and self.S is not None and self.groups is not None
        return {
            "v": self.v.reshape(self.params[0].shape).clone(),
            "S": self.S.clone(),
            "pairs": [list(p) for p in self.pairs],
            "n": list(self.n),
            "scale": self.scale,
            "count": self.groups.count,
        }

    def check_state_dict(self, state: dict[str, Any]) -> None:
        for key in ("v", "S", "pairs", "n", "scale", "count"):
            if key not in state:
                raise ValueError(f"lack {key!r}")
        shape, groups = tuple(self.params[0].shape), Groups(self.params, state["count"]).total
        if tuple(state["v"].shape) != shape:
            raise ValueError(f"have shape {tuple(state['v'].shape)}; the parameter has shape {shape}")
        S, pairs = state["S"], len(state["pairs"])
        if tuple(S.shape) != (pairs, groups) or len(state["n"]) != pairs:
            raise ValueError(f"have S of shape {tuple(S.shape)} for {pairs} pairs and {groups} groups")
        check_dtype(state["v"], self.dtype)

    def load_state_dict(self, state: dict[str, Any], dtype: torch.dtype) -> None:
        (param,) = self.params
        self.v = state["v"].to(device=param.device, dtype=self.dtype or dtype, copy=True).reshape(-1)
        self.S = state["S"].to(device=param.device, dtype=dtype, copy=True)
        self.pairs = [(int(i), int(j)) for i, j in state["pairs"]]
        self.n, self.scale, self.groups = [*state["n"]], float(state["scale"]), Groups(self.params, state["count"])


def _trace(S: Tensor, pairs: Sequence[Pair]) -> Tensor:
    return S[[e for e, (i, j) in enumerate(pairs) if i == j]].sum(0)


def _masked(
    groups: Groups,
    x: Direction,
    columns: slice | None,
    pairs: Sequence[Pair],
    coefficients: Sequence[float],
    shares: Tensor,
) -> Tensor:
    """lambda' S lambda / tr S when each coordinate has weights of its own; objectives without a row have none."""
    assert x.mask is not None
    at = {key: r for r, key in enumerate(x.keys)}
    result = torch.zeros_like(x.d)
    for (i, j), c, share in zip(pairs, coefficients, shares, strict=True):
        if i in at and j in at:
            spread = groups.spread(share)
            result.addcmul_(x.mask[at[i]] * x.mask[at[j]], spread if columns is None else spread[columns], value=c)
    return result
