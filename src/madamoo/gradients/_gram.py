"""What solvers ask of the rows: their Gram matrix, and a few statistics beyond it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ._rows import HeadRows, Rows

PIECE = 2048
"""Entries of each row in one of the many small matrix products that make a Gram matrix."""


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
    result = [0.0] * count
    for r in rows:
        for i, g in r.pieces():
            if g.numel():
                result[i] = max(result[i], float(g.abs().amax()))
    return torch.tensor(result, dtype=torch.float64, device="cpu")


def _mean_abs(rows: Sequence[Rows], count: int) -> Tensor:
    total, entries = [0.0] * count, [0] * count
    for r in rows:
        for i, g in r.pieces():
            total[i] += float(g.abs().sum(dtype=torch.promote_types(g.dtype, torch.float32)))
            entries[i] += g.numel()
    means = [t / max(n, 1) for t, n in zip(total, entries, strict=True)]
    return torch.tensor(means, dtype=torch.float64, device="cpu")


def _block_norms(rows: Sequence[Rows], count: int) -> Tensor:
    columns = []
    for r in rows:
        for _, objectives, stack in r.by_param():
            norms = [0.0] * count
            for i, g in zip(objectives, stack, strict=True):
                norms[i] = float(torch.linalg.vector_norm(g.double()))
            columns.append(norms)
    return torch.tensor(columns, dtype=torch.float64, device="cpu").reshape(len(columns), count).T


_STATISTICS: dict[str, Callable[[Sequence[Rows], int], Tensor]] = {
    "max_abs": _max_abs,
    "mean_abs": _mean_abs,
    "block_norms": _block_norms,
}


def largest_entry(rows: Sequence[Rows], limit: float) -> float:
    """A bound on the largest absolute entry of all rows, sharp above ``limit``; NaN or infinite if an entry is."""
    stacks = [r.stack for r in rows if r.stack.numel()]
    stacks += [r.rest for r in rows if isinstance(r, HeadRows) and r.rest is not None and r.rest.numel()]
    if not stacks:
        return 0.0
    # Many times faster than the maximum norm.
    bound = float(torch.linalg.vector_norm(stacks[0]) if len(stacks) == 1 else torch.nn.utils.get_total_norm(stacks))
    return bound if bound <= limit else float(torch.nn.utils.get_total_norm(stacks, norm_type=torch.inf))
