"""What solvers ask of the rows: their Gram matrix, and a few statistics beyond it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ._processes import ONE, Processes
from ._rows import Block, HeadRows, Rows, by_param
from ._shards import is_divided

Key = TypeVar("Key", bound=Hashable)
PIECE = 2048
"""Entries of each row in one of the many small matrix products that make a Gram matrix."""


def gram_matrix(rows: Sequence[Rows], count: int) -> Tensor:
    """K_ij = g_i . g_j over the given parameters, [count, count] in float64 on the CPU.

    The products are made in the rows' own precision (at least float32), without a copy of the rows; only where
    squares could overflow or vanish there are they made again in float64.
    """
    with np.errstate(invalid="ignore"):  # what is not finite may come out as any such number
        K = sum_over_shards(rows, lambda some: torch.from_numpy(_gram(some, count, torch.float32)))
        if not bool(K.isfinite().all()) or bool((K.diagonal() < 1e-24).any()):
            K = sum_over_shards(rows, lambda some: torch.from_numpy(_gram(some, count, torch.float64)))
    return K


def by_shards(rows: Sequence[Rows]) -> list[tuple[Processes, list[Rows]]]:
    """The rows with the processes that have a part of them each; in one process, all of them with itself."""
    if not any(is_divided(r.block.params[0]) for r in rows):
        return [(ONE, [*rows])]
    result: dict[Processes, list[Rows]] = {ONE: []}
    for r in rows:
        result.setdefault(r.block.shards, []).append(r)
    return [*result.items()]


def sum_over_shards(rows: Sequence[Rows], measure: Callable[[Sequence[Rows]], Tensor]) -> Tensor:
    """What ``measure`` finds in all shards of all rows, where it is a sum over entries. It gives a CPU tensor."""
    first, *others = [shards.sum(measure(some)) for shards, some in by_shards(rows)]
    return sum(others, start=first)


def _gram(rows: Sequence[Rows], count: int, dtype: torch.dtype) -> NDArray[np.float64]:
    K = np.zeros((count, count))
    for r in rows:
        block = r.block
        objectives = (() if block.owner is None else (block.owner,)) if isinstance(r, HeadRows) else r.objectives
        stack = r.stack if isinstance(r, HeadRows) else r.single
        G = stack.to(torch.promote_types(stack.dtype, dtype))
        if block.owners and block.owner is None and len(G):
            squares = torch.stack([part @ part for part in G[0].split(block.sizes)])
            np.add.at(K, (block.owners, block.owners), squares.to("cpu", torch.float64).numpy())
        elif len(G):
            K[np.ix_(objectives, objectives)] += _products(G).to("cpu", torch.float64).numpy()
    return K


def _products(G: Tensor) -> Tensor:
    """G G'. A matrix product of few and long rows uses neither cache nor cores well; a batch of short ones does."""
    pieces = G.shape[1] // PIECE
    whole = pieces * PIECE
    H = G[:, :whole].view(len(G), pieces, PIECE).transpose(0, 1)
    return torch.bmm(H, H.transpose(1, 2)).sum(0) + G[:, whole:] @ G[:, whole:].T


def row_statistics(rows: Sequence[Rows], names: Sequence[str], count: int) -> dict[str, Tensor]:
    """The statistics of each objective's gradient that a solver declares, in float64 on the CPU.

    ``max_abs`` [C] is max |g_i| and ``mean_abs`` [C] the mean of |g_i|, over all parameters that the objective reaches;
    ``block_norms`` [C, parameter tensors] are the norms of g_i tensor by tensor, zero where it does not reach.
    """
    return {name: _STATISTICS[name](rows, count) for name in names}


def _max_abs(rows: Sequence[Rows], count: int) -> Tensor:
    found = []
    for shards, some in by_shards(rows):
        result = [0.0] * count
        for r in some:
            for i, g in r.pieces():
                if g.numel():
                    result[i] = max(result[i], float(g.abs().amax()))
        found.append(shards.largest(torch.tensor(result, dtype=torch.float64, device="cpu")))
    return torch.stack(found).amax(0)


def _mean_abs(rows: Sequence[Rows], count: int) -> Tensor:
    def sums(some: Sequence[Rows]) -> Tensor:
        result = [[0.0] * count, [0.0] * count]  # of |g|, and of entries
        for r in some:
            for i, g in r.pieces():
                result[0][i] += float(g.abs().sum(dtype=torch.promote_types(g.dtype, torch.float32)))
                result[1][i] += g.numel()
        return torch.tensor(result, dtype=torch.float64, device="cpu")

    total, entries = sum_over_shards(rows, sums)
    return total / entries.clamp_min(1)


def _block_norms(rows: Sequence[Rows], count: int) -> Tensor:
    found = []
    for shards, some in by_shards(rows):
        columns = []
        for _, objectives, stack in by_param(some):
            norms = [0.0] * count
            for i, g in zip(objectives, stack, strict=True):
                norms[i] = float(torch.linalg.vector_norm(g.double()))
            columns.append(norms)
        squares = torch.tensor(columns, dtype=torch.float64, device="cpu").reshape(len(columns), count).square()
        found.append(shards.sum(squares).sqrt())
    return torch.cat(found).T


_STATISTICS: dict[str, Callable[[Sequence[Rows], int], Tensor]] = {
    "max_abs": _max_abs,
    "mean_abs": _mean_abs,
    "block_norms": _block_norms,
}


def total_norms(parts: Mapping[Key, Sequence[tuple[Block, Tensor]]]) -> dict[Key, float]:
    """The norm of what each key has, in tensors of blocks, with what other processes have of these."""
    every = {block: shards for some in parts.values() for block, _ in some if (shards := block.shards) is not ONE}
    if not every:
        return {key: float(torch.nn.utils.get_total_norm([x for _, x in some])) for key, some in parts.items()}
    total = torch.zeros(len(parts), dtype=torch.float64, device="cpu")
    for shards in (ONE, *dict.fromkeys(every.values())):
        here = [[x.double() for block, x in some if every.get(block, ONE) == shards] for some in parts.values()]
        squares = [float(torch.nn.utils.get_total_norm(some)) ** 2 for some in here]
        total += shards.sum(torch.tensor(squares, dtype=torch.float64, device="cpu"))
    return dict(zip(parts, total.sqrt().tolist(), strict=True))


def largest_entry(rows: Sequence[Rows], limit: float) -> float:
    """A bound on the largest absolute entry of all rows, sharp above ``limit``; NaN or infinite if an entry is."""
    found = [
        shards.largest(torch.tensor(_largest_here(some, limit), dtype=torch.float64, device="cpu"))
        for shards, some in by_shards(rows)
    ]
    return float(torch.stack(found).amax())


def _largest_here(rows: Sequence[Rows], limit: float) -> float:
    stacks = [r.stack for r in rows if r.stack.numel()]
    stacks += [r.rest for r in rows if isinstance(r, HeadRows) and r.rest is not None and r.rest.numel()]
    if not stacks:
        return 0.0
    # Many times faster than the maximum norm.
    bound = float(torch.linalg.vector_norm(stacks[0]) if len(stacks) == 1 else torch.nn.utils.get_total_norm(stacks))
    return bound if bound <= limit else float(torch.nn.utils.get_total_norm(stacks, norm_type=torch.inf))
