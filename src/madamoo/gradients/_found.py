"""From losses to gradients, parameter by parameter, as autograd gives them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ._losses import Losses
from ._rows import HeadRows, Rows

Row = list[Tensor | None]
"""The gradient of each parameter; None where it is not reached."""

_DONATED = (
    "This model was compiled before the optimizer was built, for one backward pass only. Build the optimizer first, or "
    "set torch._functorch.config.donated_buffer = False before the first forward."
)


@dataclass
class Found:
    """What the backward passes of a batch have found: a row per objective, and the row of the weighted rest."""

    rows: dict[int, Row]
    rest: Row | None = None

    def reached(self) -> set[int]:
        """The objectives that reach a parameter."""
        return {i for i, row in self.rows.items() if any(g is not None for g in row)}

    def drop_zeros(
        self, params: Sequence[Tensor], reach: Mapping[Tensor, frozenset[int]], present: Collection[int], missing: bool
    ) -> Found:
        """Without the gradients that are zero for one parameter while the same pass has found some elsewhere.

        Behind an opaque graph that is what an objective that does not reach a parameter looks like. Gradients of
        objectives that are known to ``reach`` the parameter stay. If ``missing``, some objective is not in the batch,
        and a parameter whose gradients all vanish is taken to be its head, unless one that is ``present`` is known to
        reach it, with a row of its own or in the rest.
        """
        rows = [[*row] for row in (*self.rows.values(), *(() if self.rest is None else (self.rest,)))]
        keys: list[int | None] = [*self.rows, *(() if self.rest is None else (None,))]
        zero = [[g is not None and not bool(g.any()) for g in row] for row in rows]
        reached = [sum(g is not None for g in row) for row in rows]
        alive = [sum(zeros) < number for zeros, number in zip(zero, reached, strict=True)]
        for p, param in enumerate(params):
            known = reach.get(param, frozenset())
            there = [k for k, row in enumerate(rows) if row[p] is not None]
            is_absent = missing and known.isdisjoint(present) and all(zero[k][p] for k in there)
            for k in there:
                if zero[k][p] and (is_absent or (alive[k] and keys[k] not in known)):
                    rows[k][p] = None
        return Found(dict(zip(self.rows, rows, strict=False)), None if self.rest is None else rows[-1])


def differentiate(
    losses: Losses,
    inputs: Sequence[Tensor],
    objectives: Sequence[int],
    rest: Mapping[int, float] | None = None,
    *,
    scale: float = 1.0,
    retain_graph: bool = False,
) -> Found:
    """One backward pass per objective, and one for the sum of the ``rest``, given as coefficients of the losses.

    The losses' extra term, if there is one, is part of the rest. The last pass frees the graph. ``scale`` multiplies
    the losses during the pass only (a GradScaler's, against underflow).
    """
    passes = [losses.seeds({i: scale}) for i in objectives]
    if rest or losses.extra is not None:
        passes.append(losses.seeds({i: scale * c for i, c in (rest or {}).items()}, extra=scale))
    found: list[Row] = []
    for number, (outputs, seeds) in enumerate(passes, start=1):
        try:
            row = torch.autograd.grad(
                outputs,  # type: ignore[arg-type]
                inputs,
                seeds,
                retain_graph=retain_graph or number < len(passes),
                allow_unused=True,
            )
        except RuntimeError as error:
            if "donated buffer" not in str(error):
                raise
            raise RuntimeError(f"{_DONATED}\n{error}") from error
        if any(g is not None and g.layout is not torch.strided for g in row):
            raise TypeError("sparse gradients are not supported: build the embedding with sparse=False")
        found.append([*row] if scale == 1.0 else [None if g is None else g / scale for g in row])
    return Found(dict(zip(objectives, found, strict=False)), found[-1] if len(found) > len(objectives) else None)


def unpack(rows: Iterable[Rows], params: Sequence[Tensor]) -> Found:
    """The gradients in ``rows``, parameter by parameter."""
    place = {p: k for k, p in enumerate(params)}
    found = Found({})
    for r in rows:
        for param, objectives, stack in r.by_param():
            for i, g in zip(objectives, stack, strict=True):
                found.rows.setdefault(i, [None] * len(params))[place[param]] = g
        summed = r.rest if isinstance(r, HeadRows) else r.stack[-1] if r.has_rest else None
        if summed is not None:
            found.rest = found.rest or [None] * len(params)
            for param, part in r.block.parts():
                found.rest[place[param]] = summed[part].view(param.shape)
    found.rows = dict(sorted(found.rows.items()))
    return found


def add_found(a: Found, b: Found) -> Found:
    """The sum of two micro-batches. Never in place: autograd may hand out one tensor for several parameters."""
    rows = {i: _add(a.rows.get(i), b.rows.get(i)) for i in sorted({*a.rows, *b.rows})}
    rest = None if a.rest is None and b.rest is None else _add(a.rest, b.rest)
    return Found(rows, rest)


def _add(a: Row | None, b: Row | None) -> Row:
    if a is None or b is None:
        return [*(a or b or ())]
    return [h if g is None else g if h is None else g + h for g, h in zip(a, b, strict=True)]


def allow_several_backward_passes() -> None:
    """Models compiled from now on keep what a second backward pass needs; by default they give it away in the first."""
    import torch._functorch.config

    torch._functorch.config.donated_buffer = False
