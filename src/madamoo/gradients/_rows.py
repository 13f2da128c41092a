"""From losses to rows: the gradients g_i of the objectives, block by block, and their Gram matrix."""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ._losses import Losses

REST = -1
"""Key of the row that holds a sum of several objectives, their weights already in it."""
OWN = -2
"""Key of the row that holds, for each parameter of a block of heads, the gradient of its own objective."""
ALONE = 1 << 17
"""Entries from which a parameter is a block by itself: handling one more block is then cheaper than copying it."""

PIECE = 2048
"""Entries of each row in one of the many small matrix products that make a Gram matrix."""

Gradients = dict[Tensor, dict[int, Tensor]]
"""Of each parameter that is reached, the row of each objective, or of REST."""
Kinds = Callable[[Tensor, tuple[int, ...]], Hashable]
"""From a parameter and the keys of its rows, what all of a block have in common.

The keys are part of it. Only parameters with a single row each may be of a kind though their keys differ.
"""

_DONATED = (
    "This model was compiled before the optimizer was built, for one backward pass only. Build the optimizer first, or "
    "set torch._functorch.config.donated_buffer = False before the first forward."
)


@dataclass(frozen=True)
class Rows:
    """The gradients of a block of parameters, laid end to end, so that small parameters are handled many at a time.

    ``stack[k]`` is the row of objective ``keys[k]``, or of REST: all parameters of a block are reached by the same. Or
    they are heads, reached by one objective each, though not the same: the only key is OWN, and ``owners`` are these
    objectives, one for each parameter.
    """

    params: tuple[Tensor, ...]
    keys: tuple[int, ...]
    stack: Tensor  # [len(keys), entries of all parameters]
    owners: tuple[int, ...] = ()

    def keys_by_param(self) -> list[tuple[int, ...]]:
        return [(i,) for i in self.owners] or [self.keys] * len(self.params)


def sizes_of(params: Iterable[Tensor]) -> list[int]:
    return [p.numel() for p in params]


def spread(values: Sequence[float], sizes: Sequence[int], like: Tensor) -> Tensor:
    """The value of its parameter for each entry of a block."""
    each = like.new_tensor(values)
    if all(value == values[0] for value in values):
        return each[:1].expand(sum(sizes))
    return each.repeat_interleave(torch.tensor(sizes, device=like.device), output_size=sum(sizes))


def are_same(a: Sequence[Tensor], b: Sequence[Tensor]) -> bool:
    """Whether both hold the same parameters in the same order; ``==`` would compare their entries."""
    return a is b or (len(a) == len(b) and all(map(operator.is_, a, b)))


def compute_rows(
    losses: Losses,
    params: Sequence[Tensor],
    passes: Mapping[int, Mapping[int, float]],
    kinds: Kinds | None = None,
    *,
    scale: float = 1.0,
    retain_graph: bool = False,
) -> list[Rows]:
    """One backward pass for each entry of ``passes``: its key, and the coefficients of the losses to differentiate.

    Parameters that no pass reaches are in no block; those of different ``kinds`` are never in one. The last pass frees
    the graph. ``scale`` multiplies the losses during the pass only (a GradScaler's, against underflow).
    """
    found = differentiate(losses, params, passes, scale=scale, retain_graph=retain_graph)
    return pack(dict(zip(params, found, strict=True)), kinds)


def differentiate(
    losses: Losses,
    inputs: Sequence[Tensor],
    passes: Mapping[int, Mapping[int, float]],
    *,
    scale: float = 1.0,
    retain_graph: bool = False,
) -> list[dict[int, Tensor]]:
    """The gradients of each input, by the key of the pass; see :func:`compute_rows`."""
    found: list[dict[int, Tensor]] = [{} for _ in inputs]  # by place: hashing a tensor takes as long as small sums
    last = list(passes)[-1]
    for key, coefficients in passes.items():
        outputs, seeds = losses.seeds({i: scale * c for i, c in coefficients.items()})
        try:
            row = torch.autograd.grad(
                outputs,  # type: ignore[arg-type]
                inputs,
                seeds,
                retain_graph=retain_graph or key != last,
                allow_unused=True,
            )
        except RuntimeError as error:
            if "donated buffer" not in str(error):
                raise
            raise RuntimeError(f"{_DONATED}\n{error}") from error
        for mine, gradient in zip(found, row, strict=True):
            if gradient is None:
                continue
            if gradient.layout is not torch.strided:
                raise TypeError("sparse gradients are not supported: build the embedding with sparse=False")
            mine[key] = gradient if scale == 1.0 else gradient / scale
        del row
    return found


def pack(found: Gradients, kinds: Kinds | None = None) -> list[Rows]:
    """Lay the gradients of parameters of one kind end to end, by default of those that the same objectives reach.

    Large parameters stay alone: nothing is copied then, and the peak of memory grows by one of them only; ``found`` is
    used up.
    """
    blocks: dict[Hashable, list[tuple[Tensor, dict[int, Tensor]]]] = {}
    for param, rows in found.items():
        if rows:
            keys = tuple(rows)
            kind = keys if kinds is None else kinds(param, keys)
            alone = id(param) if param.numel() >= ALONE else None
            blocks.setdefault((kind, alone, param.dtype, param.device), []).append((param, rows))
    return [_lay(block) for block in blocks.values()]


def _lay(block: list[tuple[Tensor, dict[int, Tensor]]]) -> Rows:
    keys = tuple(block[0][1])
    owners: tuple[int, ...] = ()
    if any(tuple(rows) != keys for _, rows in block):
        block.sort(key=lambda entry: entry[0].shape)  # what is done shape by shape is then done for many heads at once
        keys, owners = (OWN,), tuple(key for _, rows in block for key in rows)
    params, each = zip(*block, strict=True)
    sizes = sizes_of(params)
    if len(each) == 1:
        rows = list(each[0].values())
        one = rows[0].unsqueeze(0) if len(rows) == 1 else torch.stack(rows)
        stack = one.reshape(len(keys), sizes[0])
    else:
        stack = next(iter(each[0].values())).new_empty(len(keys), sum(sizes))
        for row, parts in zip(stack, zip(*(mine.values() for mine in each), strict=True), strict=True):
            torch.cat([part.reshape(-1) for part in parts], out=row)
    for mine in each:
        mine.clear()
    return Rows(params, keys, stack, owners)


def by_param(rows: Iterable[Rows]) -> Iterator[tuple[Tensor, tuple[int, ...], Tensor]]:
    """Each parameter, the keys of its rows, and the rows in its shape: a view."""
    for r in rows:
        parts = r.stack.split(sizes_of(r.params), dim=1)
        for param, keys, part in zip(r.params, r.keys_by_param(), parts, strict=True):
            yield param, keys, part.view(len(keys), *param.shape)


def unpack(rows: Iterable[Rows]) -> Gradients:
    """What :func:`pack` takes."""
    return {param: dict(zip(keys, stack, strict=True)) for param, keys, stack in by_param(rows)}


def add_rows(a: Sequence[Rows], b: Sequence[Rows], kinds: Kinds | None = None) -> list[Rows]:
    """Sum two micro-batches. Never in place: autograd may hand out one tensor for several parameters."""
    pairs = list(zip(a, b, strict=False))
    if len(a) == len(b) and all(
        (r.keys, r.owners) == (s.keys, s.owners) and are_same(r.params, s.params) for r, s in pairs
    ):
        return [replace(r, stack=r.stack + s.stack) for r, s in pairs]
    found = unpack(a)
    for param, rows in unpack(b).items():
        mine = found.setdefault(param, {})
        mine.update({key: mine[key] + row if key in mine else row for key, row in rows.items()})
    return pack(found, kinds)


def drop_zero_rows(
    rows: Sequence[Rows],
    reach: Mapping[Tensor, frozenset[int]],
    missing: bool = False,
    kinds: Kinds | None = None,
) -> list[Rows]:
    """Drop the rows that are zero for one parameter while the same objective has a gradient elsewhere.

    Behind an opaque graph that is what an objective that does not reach a parameter looks like. Rows of objectives
    that are known to reach the parameter (``reach``) stay. If ``missing``, some objective is not in the batch, and a
    parameter whose rows all vanish is taken to be its head, which the batch does not reach.
    """
    sizes: dict[Tensor, dict[int, float]] = {}
    for param, keys, stack in by_param(rows):
        largest = [float(row.abs().amax()) if row.numel() else 0.0 for row in stack]
        sizes[param] = dict(zip(keys, largest, strict=True))
    alive = {key for size in sizes.values() for key, s in size.items() if s != 0}
    dropped: dict[Tensor, set[int]] = {}
    for param, size in sizes.items():
        known = reach.get(param, frozenset())
        if missing and not any(size.values()):
            dropped[param] = set(size)
        elif gone := {key for key, s in size.items() if s == 0 and key not in known and key in alive}:
            dropped[param] = gone
    if not dropped:
        return list(rows)
    found = unpack(rows)
    for param, gone in dropped.items():
        for key in gone:
            del found[param][key]
    return pack(found, kinds)


def largest_entry(rows: Sequence[Rows], limit: float) -> float:
    """A bound on the largest absolute entry of all rows, sharp above ``limit``; NaN or infinite if an entry is."""
    stacks = [r.stack for r in rows if r.stack.numel()]
    if not stacks:
        return 0.0
    bound = float(torch.nn.utils.get_total_norm(stacks))  # many times faster than the maximum norm
    return bound if bound <= limit else float(torch.nn.utils.get_total_norm(stacks, norm_type=torch.inf))


def gram_matrix(rows: Sequence[Rows], count: int) -> Tensor:
    """K_ij = g_i . g_j over the given parameters, [count, count] in float64 on the CPU.

    The products are made in the rows' own precision (at least float32), without a copy of the rows; only where
    squares could overflow or vanish there are they made again in float64.
    """
    with np.errstate(invalid="ignore"):  # what is not finite may come out as any such number
        K = _gram(rows, count, torch.float32)
        if not np.isfinite(K).all() or (K.diagonal() < 1e-24).any():
            K = _gram(rows, count, torch.float64)
    return torch.from_numpy(K)


def _gram(rows: Sequence[Rows], count: int, dtype: torch.dtype) -> NDArray[np.float64]:
    K = np.zeros((count, count))
    for r in rows:
        G = r.stack.to(torch.promote_types(r.stack.dtype, dtype))
        if r.owners:
            squares = torch.stack([part @ part for part in G[0].split(sizes_of(r.params))])
            np.add.at(K, (r.owners, r.owners), squares.to("cpu", torch.float64).numpy())
        else:
            K[np.ix_(r.keys, r.keys)] += _products(G).to("cpu", torch.float64).numpy()
    return K


def _products(G: Tensor) -> Tensor:
    """G G'. A matrix product of few and long rows uses neither cache nor cores well; a batch of short ones does."""
    pieces = G.shape[1] // PIECE
    whole = pieces * PIECE
    H = G[:, :whole].view(len(G), pieces, PIECE).transpose(0, 1)
    return torch.bmm(H, H.transpose(1, 2)).sum(0) + G[:, whole:] @ G[:, whole:].T
