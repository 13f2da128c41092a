"""One buffer for any number of objectives: F_ij = S_ij u, with u a shape that all pairs of a group of rows share.

Kept are, per coordinate, v = the average of d^2 and, per group, S = the average of the group's Gram matrix and T = that
of its |d|^2, to which v adds up. So u = v / T and

    C_lambda = (lambda' S lambda / T) v:

the average of d^2, and a factor for what lambda has become since. With S measured in every step it is exact where
F_ij = S_ij u, and where lambda is constant, whatever F is. An average has to be divided by 1 - beta^n for its start at
zero. In v / T that cancels, and what is left is the bias of each S_ij, which has a count of its own. v and T are made
of d and updated in every step; S is updated in those in which the gradients of single objectives are computed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..direction import Direction
from ..gradients import Block, first_row, gathered, local, own_part, spread
from ._averages import (
    Averages,
    Averaging,
    Curvature,
    Label,
    check_pairs,
    coefficients,
)
from ._rounding import check_dtype, chosen, decayed, random_bits

SHARE = 4  # coordinates of a group for each entry of its S, at least, in tensors that have so many


class Groups:
    """The coordinates of some parameters, group by group.

    A group is one row of a tensor (all entries with one index in dimension 0: the inputs of a neuron, the filter of a
    channel, the vector of a token), or as many neighbouring rows as it takes to have ``SHARE`` coordinates for each of
    the C (C + 1) / 2 pairs of objectives. The rows of a vector (bias, norm) are its entries. No group spans tensors.
    With ``whole``, a group is a tensor.
    """

    def __init__(self, params: Sequence[Tensor], count: int, whole: bool = False) -> None:
        self.count = count
        least = [p.numel() if whole else SHARE * count * (count + 1) // 2 for p in params]
        self.layout = [_group(p, n) for p, n in zip(params, least, strict=True)]
        self.total = sum(run.groups for run in self.layout)
        self._runs = _merge(self.layout)
        self._sizes: Tensor | None = None
        self._shards = Block(tuple(params)).shards

    def gram(self, G: Tensor) -> Tensor:
        """The Gram matrix of the rows G [k, entries] in each group: [groups, k, k]."""
        found = []
        for run, part in zip(self._runs, G.split([run.entries for run in self._runs], dim=1), strict=True):
            first, last = run.first // run.size, -(-(run.first + run.entries) // run.size)
            before, after = run.first - first * run.size, last * run.size - run.first - run.entries
            if before or after:
                part = torch.nn.functional.pad(part, (before, after))
            X = part.reshape(len(G), last - first, run.size).transpose(0, 1)
            if last - first < run.groups:  # the others are those of other processes
                found += [G.new_zeros(first, len(G), len(G)), X @ X.mT]
                found.append(G.new_zeros(run.groups - last, len(G), len(G)))
            else:
                found.append(X @ X.mT)
        # Where a sum of squares overflows, any large number will do.
        largest = torch.finfo(G.dtype).max / (8 * max(len(G), 1))
        return self._shards.sum(torch.cat(found)).nan_to_num_(0.0, largest, -largest).clamp_(-largest, largest)

    def of_each(self, values: Sequence[float], like: Tensor) -> Tensor:
        """The value of its parameter for each group."""
        return spread(values, [run.groups for run in self.layout], like)

    def spread(self, values: Tensor) -> Tensor:
        """The value of its group for each coordinate."""
        if self._sizes is None or self._sizes.device != values.device:
            sizes = [size for run in self.layout for size in run.sizes()]
            self._sizes = torch.tensor(sizes, dtype=torch.int64, device=values.device)
        return values.repeat_interleave(self._sizes, output_size=sum(run.entries for run in self.layout))


class Run(NamedTuple):
    """The groups of a tensor: all but the last have ``size`` entries. This process has ``entries``, from ``first`` on.

    Of a tensor with shards of another dimension than 0, each process has as many groups, with a part of each.
    """

    entries: int
    groups: int
    size: int
    first: int = 0

    @property
    def is_even(self) -> bool:
        """Whether all groups are here, and of one size."""
        return (self.entries, self.first) == (self.groups * self.size, 0)

    def sizes(self) -> list[int]:
        """What this process has of each group."""
        ends = [min(max(g * self.size - self.first, 0), self.entries) for g in range(self.groups + 1)]
        return [end - start for start, end in pairwise(ends)]


def _group(param: Tensor, least: int) -> Run:
    entries, here = param.numel(), local(param)
    if not entries:
        return Run(0, 0, 1)
    rows = param.shape[0] if param.dim() > 1 else entries
    together = min(rows, math.ceil(least / (entries // rows)))
    together = math.ceil(rows / (rows // together))  # evened out
    row = here.numel() // here.shape[0] if param.dim() > 1 and here.numel() else 1  # what this process has of one
    return Run(here.numel(), math.ceil(rows / together), together * row, first_row(param) * row)


def _merge(layout: Sequence[Run]) -> list[Run]:
    """The layout with neighbours whose groups are all of one size, and here, taken for one tensor."""
    runs: list[Run] = []
    for run in layout:
        before = runs[-1] if runs else Run(0, 0, 0)
        if before.size == run.size and before.is_even and run.is_even:
            runs[-1] = Run(before.entries + run.entries, before.groups + run.groups, run.size)
        else:
            runs.append(run)
    return runs


@dataclass
class SeparableAverages(Averages):
    """``scale * v`` per coordinate, S [len(pairs), groups], T [groups].

    S_ij of a pair that is not measured, because the batch lacks it, rests. In a rotated basis a group is a tensor: its
    Gram matrix is the same in every basis, which spares the rotation of all rows.
    """

    rotates_rows = False
    scale: float = 1.0
    v: Tensor | None = None  # [entries of all parameters]
    S: Tensor | None = None
    T: Tensor | None = None
    groups: Groups | None = None

    def curvature(self, x: Direction, measured: Sequence[Label], how: Averaging) -> Curvature | None:
        factor, beta = self._factor(x, measured, how), how.beta
        if factor is None:
            return None

        def some(columns: slice | None) -> Tensor:
            y = x if columns is None else x.part(columns)
            v = (1.0 - beta) * y.d.square()
            if self.v is not None:
                old = self.v if columns is None else self.v[columns]
                v.add_(old.to(v.dtype), alpha=self.scale * beta)
            return v.mul_(factor(columns))

        return some

    def _factor(self, x: Direction, measured: Sequence[Label], how: Averaging) -> Curvature | None:
        """lambda' S lambda / T, coordinate by coordinate."""
        counts = self._counts(measured)
        if not counts:
            return None
        groups = self._groups(len(x.weights))
        S, T = self._taken(groups, x, measured, how)
        pairs = [*self.pairs, *self.missing(measured)]
        bias = {pair: how.bias(n) for pair, n in counts.items()}
        weights = coefficients(x, pairs, self.owners, bias, how)
        if x.mask is None:
            weighed = groups.of_each(weights, S) * S[0] if self.owners else S.new_tensor(weights) @ S
            # What only steps without a measurement have moved has no S yet: there v stands for C, in the units of d.
            alone = how.shrink**2 / max(bias.values())
            factor = groups.spread(torch.where((S == 0).all(0), alone, _over(weighed, T)))
            return lambda columns: factor if columns is None else factor[columns]
        each = (groups.of_each(weights, S) * S[0]).unsqueeze(0) if self.owners else S.new_tensor(weights)[:, None] * S
        factors = _over(each, T)

        def masked(columns: slice | None) -> Tensor:
            return _masked(groups, x if columns is None else x.part(columns), columns, pairs, factors)

        return masked

    def update(
        self, x: Direction, measured: Sequence[Label], how: Averaging, noise: torch.Generator | None = None
    ) -> None:
        if self.v is None:
            return
        self.S, self.T = self._taken(self._groups(len(x.weights)), x, measured, how)
        fresh = set(measured)
        self.n = [n + (pair in fresh) for pair, n in zip(self.pairs, self.n, strict=True)]
        bits = random_bits(self.v, noise, self.block)
        self.scale = decayed(self.v, self.scale, how.beta, (x.d, x.d, 1.0 - how.beta), bits)

    def _taken(self, groups: Groups, x: Direction, measured: Sequence[Label], how: Averaging) -> tuple[Tensor, Tensor]:
        """S and T with this step in them; S decays where it is measured only, by as many steps as lie between."""
        missing = self.missing(measured)
        S = x.rows.new_zeros(0, groups.total) if self.S is None else self.S
        T = x.rows.new_zeros(groups.total) if self.T is None else self.T
        if missing:
            S = torch.cat([S, S.new_zeros(len(missing), groups.total)])
        if "square" not in x.memo:
            x.memo["square"] = groups.gram(x.d.unsqueeze(0)).flatten()
        T = torch.lerp(T, x.memo["square"], 1.0 - how.beta)
        if not measured:
            return S, T
        if "products" not in x.memo:
            at = {key: r for r, key in enumerate(x.objectives)}
            places = [(0, 0) if pair is None else (at[pair[0]], at[pair[1]]) for pair in measured]
            first, second = torch.tensor(places, device=x.rows.device).T
            x.memo["products"] = groups.gram(x.rows)[:, first, second].T
        K, fresh, norms = x.memo["products"], 1.0 - how.decay, how.norms
        if norms is not None and self.owners:
            K = K / groups.of_each([(norms[i] or 1.0) ** 2 for i in self.owners], K)
        elif norms is not None:
            K = K / K.new_tensor([[(norms[i] or 1.0) * (norms[j] or 1.0)] for i, j in filter(None, measured)])
        pairs = [*self.pairs, *missing]
        if pairs == [*measured]:
            return torch.lerp(S, K, fresh), T
        slot = {pair: e for e, pair in enumerate(pairs)}
        chosen = torch.tensor([slot[pair] for pair in measured], device=S.device)
        return S.index_copy(0, chosen, torch.lerp(S[chosen], K, fresh)), T

    def _groups(self, count: int) -> Groups:
        if self.groups is None:
            self.groups = Groups(self.block.params, count, self.turned)
        return self.groups

    def grown(
        self, measured: Sequence[Label], count: int, dtype: torch.dtype, device: torch.device
    ) -> SeparableAverages:
        missing = self.missing(measured)
        if not missing:
            return self
        groups = Groups(self.block.params, count, self.turned) if self.groups is None else self.groups
        v, T = self.v, self.T
        if T is None:
            T = torch.zeros(groups.total, dtype=dtype, device=device)
            v = torch.zeros(self.block.entries, dtype=self.dtype or dtype, device=device)
        new = torch.zeros(len(missing), groups.total, dtype=dtype, device=device)
        return replace(
            self,
            pairs=[*self.pairs, *missing],
            n=[*self.n, *[0] * len(missing)],
            v=v,
            S=new if self.S is None else torch.cat([self.S, new]),
            T=T,
            groups=groups,
        )

    def reorder(self, places: Tensor) -> None:
        if self.v is not None:
            self.v = self.block.own(chosen(self.block.whole(self.v), places))

    @property
    def age(self) -> Any:
        return self.n, self.scale

    def tensors(self) -> list[Tensor]:
        return [t for t in (self.v, self.S, self.T) if t is not None]

    def split(self) -> list[SeparableAverages]:
        blocks = self.block.split()
        vs: Sequence[Tensor | None] = [None] * len(blocks)
        Ss = Ts = vs
        count = None
        if self.v is not None and self.S is not None and self.T is not None and self.groups is not None:
            each = [run.groups for run in self.groups.layout]
            Ss, Ts = self.S.split(each, dim=1), self.T.split(each)
            vs = self.v.split(self.block.sizes)
            count = self.groups.count
        return [
            replace(
                self,
                block=block,
                owners=(),
                pairs=pairs,
                n=[*self.n],
                v=v,
                S=S,
                T=T,
                groups=None if count is None else Groups(block.params, count, self.turned),
            )
            for block, pairs, v, S, T in zip(blocks, self._pairs_by_param(), vs, Ss, Ts, strict=True)
        ]

    def join(self, block: Block, owners: tuple[int, ...], others: Sequence[SeparableAverages]) -> SeparableAverages:
        joined: dict[str, Any] = {
            "block": block,
            "owners": owners,
            "pairs": self._joined_pairs(owners, others),
            "n": [*self.n],
        }
        if self.v is None or self.S is None or self.T is None or self.groups is None:
            return replace(self, **joined, groups=None)
        v = torch.cat([self.v, *(a.v for a in others if a.v is not None)])
        S = torch.cat([self.S, *(a.S for a in others if a.S is not None)], dim=1)
        T = torch.cat([self.T, *(a.T for a in others if a.T is not None)])
        return replace(self, **joined, v=v, S=S, T=T, groups=Groups(block.params, self.groups.count, self.turned))

    def state_dict(self) -> dict[str, Any]:
        assert self.v is not None and self.S is not None and self.T is not None and self.groups is not None
        return {
            "v": gathered(self.block.params[0], self.v.reshape(self.block.shapes[0])).clone(),
            "S": self.S.clone(),
            "T": self.T.clone(),
            "pairs": [list(p) for p in self.pairs if p is not None],
            "n": list(self.n),
            "scale": self.scale,
            "count": self.groups.count,
        }

    def check_state_dict(self, state: dict[str, Any]) -> None:
        for key in ("v", "S", "T", "pairs", "n", "scale", "count"):
            if key not in state:
                raise ValueError(f"lack {key!r}")
        shape, groups = tuple(self.block.params[0].shape), Groups(self.block.params, state["count"], self.turned).total
        if tuple(state["v"].shape) != shape:
            raise ValueError(f"have shape {tuple(state['v'].shape)}; the parameter has shape {shape}")
        S, pairs = state["S"], len(state["pairs"])
        if tuple(S.shape) != (pairs, groups) or len(state["n"]) != pairs:
            raise ValueError(f"have S of shape {tuple(S.shape)} for {pairs} pairs and {groups} groups")
        if tuple(state["T"].shape) != (groups,):
            raise ValueError(f"have T of shape {tuple(state['T'].shape)} for {groups} groups")
        check_pairs(state["pairs"])
        check_dtype(state["v"], self.dtype)

    def load_state_dict(self, state: dict[str, Any], dtype: torch.dtype) -> None:
        (param,) = self.block.params
        v = own_part(param, state["v"])
        self.v = v.to(device=param.device, dtype=self.dtype or dtype, copy=True).reshape(-1)
        self.S, self.T = (state[key].to(device=param.device, dtype=dtype, copy=True) for key in ("S", "T"))
        self.pairs = [(int(i), int(j)) for i, j in state["pairs"]]
        self.n, self.scale = [*state["n"]], float(state["scale"])
        self.groups = Groups(self.block.params, state["count"], self.turned)


def _over(S: Tensor, T: Tensor) -> Tensor:
    """S / T, zero where nothing has moved yet; v times it is at most S, so that a bound does no harm."""
    largest = torch.finfo(S.dtype).max / 8
    return torch.where(T > 0, S / T, 0.0).nan_to_num_(0.0).clamp_(-largest, largest)


def _masked(groups: Groups, x: Direction, columns: slice | None, pairs: Sequence[Label], factors: Tensor) -> Tensor:
    """lambda' S lambda / T when each coordinate has weights of its own; objectives without a row have none."""
    assert x.mask is not None
    at = {key: r for r, key in enumerate(x.objectives)}
    result = torch.zeros_like(x.d)
    for pair, factor in zip(pairs, factors, strict=True):
        if pair is None or (pair[0] in at and pair[1] in at):
            i, j = (0, 0) if pair is None else (at[pair[0]], at[pair[1]])
            spread = groups.spread(factor)
            result.addcmul_(x.mask[i] * x.mask[j], spread if columns is None else spread[columns])
    return result
