"""From losses to gradients, parameter by parameter, as autograd gives them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ._losses import Losses
from ._rows import HeadRows, Rows
from ._shards import division_of, is_divided, local

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

    def signs(self, count: int, width: int, *, opaque: bool) -> Tensor:
        """Who reaches what, [count + 1, width], the rest last: 0 not at all, 1 with a gradient of zero, 2 otherwise.

        Only an ``opaque`` graph is asked for zeros: elsewhere a gradient is there or not.
        """
        rows = [(i, row) for i, row in (*self.rows.items(), (count, self.rest)) if row is not None]
        result = torch.zeros(count + 1, width, dtype=torch.uint8, device="cpu")
        for i, row in rows:
            found = [0 if g is None else 1 if opaque and not bool(g.any()) else 2 for g in row]
            result[i] = torch.tensor(found, dtype=torch.uint8, device="cpu")
        return result

    def drop_zeros(
        self,
        params: Sequence[Tensor],
        reach: Mapping[Tensor, frozenset[int]],
        present: Collection[int],
        missing: bool,
        signs: Tensor | None = None,
    ) -> Found:
        """Without the gradients that are zero for one parameter while the same pass has found some elsewhere.

        Behind an opaque graph that is what an objective that does not reach a parameter looks like. Gradients of
        objectives that are known to ``reach`` the parameter stay. If ``missing``, some objective is not in the batch,
        and a parameter whose gradients all vanish is taken to be its head, unless one that is ``present`` is known to
        reach it, with a row of its own or in the rest. ``signs`` are those of all processes: what only others have
        found is zero here.
        """
        if signs is None:
            signs = self.signs(1 + max(self.rows, default=-1), len(params), opaque=True)
        given: list[Row | None] = [self.rows.get(i) for i in range(len(signs) - 1)] + [self.rest]
        listed, last = signs.tolist(), len(signs) - 1
        keys = [k for k, row in enumerate(listed) if given[k] is not None or any(row)]
        alive = {k: 2 in listed[k] for k in keys}
        rows: dict[int, Row] = {k: [None] * len(params) for k in keys}
        for p, param in enumerate(params):
            known = reach.get(param, frozenset())
            is_absent = missing and known.isdisjoint(present) and all(listed[k][p] < 2 for k in keys)
            for k in keys:
                sign, row = listed[k][p], given[k]
                dropped = sign == 1 and (is_absent or (alive[k] and (k == last or k not in known)))
                if sign and not dropped:
                    g = None if row is None else row[p]
                    rows[k][p] = torch.zeros_like(local(param), requires_grad=False) if g is None else g
        rest = rows.pop(last, None)
        return Found(rows, rest)


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
    backward = _through_engine if any(map(is_divided, inputs)) else _through_graph
    passes = [losses.seeds({i: scale}) for i in objectives]
    if rest or losses.extra is not None:
        passes.append(losses.seeds({i: scale * c for i, c in (rest or {}).items()}, extra=scale))
    found: list[Row] = []
    for number, (outputs, seeds) in enumerate(passes, start=1):
        try:
            row = backward(outputs, inputs, seeds, retain_graph or number < len(passes))
        except RuntimeError as error:
            if "donated buffer" not in str(error):
                raise
            raise RuntimeError(f"{_DONATED}\n{error}") from error
        if any(g is not None and g.layout is not torch.strided for g in row):
            raise TypeError("sparse gradients are not supported: build the embedding with sparse=False")
        found.append([*row] if scale == 1.0 else [None if g is None else g / scale for g in row])
    return Found(dict(zip(objectives, found, strict=False)), found[-1] if len(found) > len(objectives) else None)


def _through_graph(outputs: Any, inputs: Sequence[Tensor], seeds: Sequence[Tensor], retain_graph: bool) -> Row:
    return [*torch.autograd.grad(outputs, inputs, seeds, retain_graph=retain_graph, allow_unused=True)]


def _through_engine(outputs: Any, inputs: Sequence[Tensor], seeds: Sequence[Tensor], retain_graph: bool) -> Row:
    """By ``.grad``: that is where fully_shard puts the reduced gradients of sharded parameters, which no graph has."""
    for param in inputs:
        param.grad = None
    torch.autograd.backward(outputs, seeds, retain_graph=retain_graph)
    gradients = [param.grad for param in inputs]
    for param, gradient in zip(inputs, gradients, strict=True):
        param.grad = None
        if gradient is not None and division_of(gradient) != division_of(param):
            raise ValueError(
                f"the gradient of a parameter of shape {tuple(param.shape)} is divided over processes in another way "
                "than the parameter: parameters that fully_shard has sharded are supported, others are not"
            )
    return [None if g is None else local(g) for g in gradients]


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
                found.rest[place[param]] = summed[part].view(local(param).shape)
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
