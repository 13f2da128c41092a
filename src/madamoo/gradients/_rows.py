"""From losses to rows: the gradients g_i of the objectives, parameter by parameter, and their Gram matrix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ._losses import Losses

REST = -1
"""Key of the row that holds a sum of several objectives, their weights already in it."""


_DONATED = (
    "This model was compiled before the optimizer was built, for one backward pass only. Build the optimizer first, or "
    "set torch._functorch.config.donated_buffer = False before the first forward."
)


@dataclass(frozen=True)
class Rows:
    """The gradients of one parameter: ``stack[k]`` is the row of objective ``keys[k]``, or of REST."""

    keys: tuple[int, ...]
    stack: Tensor  # [len(keys), *shape of the parameter]


def as_matrix(stack: Tensor) -> Tensor:
    """[R, *shape] as [R, n]; no rows and parameters without dimensions are fine."""
    return stack.reshape(len(stack), stack.shape[1:].numel())


def compute_rows(
    losses: Losses,
    params: Sequence[Tensor],
    passes: Mapping[int, Mapping[int, float]],
    *,
    scale: float = 1.0,
    retain_graph: bool = False,
) -> list[Rows | None]:
    """One backward pass for each entry of ``passes``: its key, and the coefficients of the losses to differentiate.

    The result has one entry a parameter, None where no pass reaches it. The last pass frees the graph. ``scale``
    multiplies the losses during the pass only (a GradScaler's, against underflow).
    """
    found: list[dict[int, Tensor]] = [{} for _ in params]
    last = list(passes)[-1]
    for key, coefficients in passes.items():
        outputs, seeds = losses.seeds({i: scale * c for i, c in coefficients.items()})
        try:
            row = torch.autograd.grad(
                outputs,  # type: ignore[arg-type]
                params,
                seeds,
                retain_graph=retain_graph or key != last,
                allow_unused=True,
            )
        except RuntimeError as error:
            if "donated buffer" not in str(error):
                raise
            raise RuntimeError(f"{_DONATED}\n{error}") from error
        for rows, gradient in zip(found, row, strict=True):
            if gradient is None:
                continue
            if gradient.layout is not torch.strided:
                raise TypeError("sparse gradients are not supported: build the embedding with sparse=False")
            rows[key] = gradient if scale == 1.0 else gradient / scale
        del row
    return [_collect(rows) for rows in found]


def _collect(rows: dict[int, Tensor]) -> Rows | None:
    """Stack the rows of one parameter, and let go of the parts at once: the peak grows by one parameter only."""
    if not rows:
        return None
    keys = tuple(rows)
    stack = next(iter(rows.values())).unsqueeze(0) if len(rows) == 1 else torch.stack(list(rows.values()))
    rows.clear()
    return Rows(keys, stack)


def add_rows(a: Rows | None, b: Rows | None) -> Rows | None:
    """Sum two micro-batches. Never in place: autograd may hand out one tensor for several parameters."""
    if a is None or b is None:
        return a if b is None else b
    if a.keys == b.keys:
        return Rows(a.keys, a.stack + b.stack)
    parts = dict(zip(a.keys, a.stack.unbind(), strict=True))
    for key, row in zip(b.keys, b.stack.unbind(), strict=True):
        parts[key] = parts[key] + row if key in parts else row
    return _collect(parts)


def drop_zero_rows(
    rows: Sequence[Rows | None], reach: Sequence[frozenset[int]], missing: bool = False
) -> list[Rows | None]:
    """Drop the rows that are zero for one parameter while the same objective has a gradient elsewhere.

    Behind an opaque graph that is what an objective that does not reach a parameter looks like. Rows of objectives
    that are known to reach the parameter (``reach``) stay. If ``missing``, some objective is not in the batch, and a
    parameter whose rows all vanish is taken to be its head, which the batch does not reach.
    """
    sizes = [
        {}
        if r is None
        else dict(zip(r.keys, torch.linalg.vector_norm(as_matrix(r.stack), torch.inf, dim=1).tolist(), strict=True))
        for r in rows
    ]
    alive = {key for size in sizes for key, s in size.items() if s != 0}
    result: list[Rows | None] = []
    for r, size, known in zip(rows, sizes, reach, strict=True):
        if r is None or (missing and not any(size.values())):
            result.append(None)
            continue
        kept = [k for k, key in enumerate(r.keys) if size[key] != 0 or key in known or key not in alive]
        result.append(r if len(kept) == len(r.keys) else Rows(tuple(r.keys[k] for k in kept), r.stack[kept]))
    return result


def largest_entry(rows: Sequence[Rows | None], limit: float) -> float:
    """A bound on the largest absolute entry of all rows, sharp above ``limit``; NaN or infinite if an entry is."""
    stacks = [r.stack for r in rows if r is not None and r.stack.numel()]
    if not stacks:
        return 0.0
    bound = float(torch.nn.utils.get_total_norm(stacks))  # many times faster than the maximum norm
    return bound if bound <= limit else float(torch.nn.utils.get_total_norm(stacks, norm_type=torch.inf))


def gram_matrix(rows: Sequence[Rows | None], count: int) -> Tensor:
    """K_ij = g_i . g_j over the given parameters, [count, count] in float64 on the CPU.

    The products are made in the rows' own precision (at least float32), without a copy of the rows; only where
    squares could overflow or vanish there are they made again in float64.
    """
    K = _gram(rows, count, torch.float32)
    diagonal = K.diagonal()
    reached = diagonal[diagonal != 0]
    if not bool(torch.isfinite(K).all()) or bool((reached < 1e-24).any()) or len(reached) < count:
        K = _gram(rows, count, torch.float64)
    return K


def _gram(rows: Sequence[Rows | None], count: int, dtype: torch.dtype) -> Tensor:
    K = torch.zeros(count, count, dtype=torch.float64)
    for r in rows:
        if r is None:
            continue
        G = as_matrix(r.stack)
        G = G.to(torch.promote_types(G.dtype, dtype))
        index = torch.tensor(r.keys)
        K[index[:, None], index] += (G @ G.T).to("cpu", torch.float64)
    return K
