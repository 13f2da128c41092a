"""The layout of the parameters: which objectives reach each of them, and which are handled together as a block."""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ._found import Found
from ._rows import Block, HeadRows, Rows, SharedRows, are_same
from ._shards import division_of

ALONE = 1 << 17
"""Entries from which a parameter is a block by itself: handling one more block is then cheaper than copying it."""
MOST_PLANS = 64
"""How many patterns of present objectives are remembered."""

GroupOf = Callable[[Tensor], int]
"""The parameter group of the optimizer that a parameter is in: a block is in one of them."""


@dataclass(frozen=True)
class Part:
    """Where the rows of a block are found: the places of its parameters, and the objectives that reach it now."""

    block: Block
    places: tuple[int, ...]
    objectives: tuple[int, ...]
    has_rest: bool


class Layout:
    """What reaches what, in this step or an earlier one, and the blocks that follow from it. It never changes.

    :meth:`pack` lays the gradients of a batch out in blocks. Where the batch shows something new (an objective reaches
    a parameter that it did not reach before, or only some parameters of a block) it returns another layout as well,
    whose blocks are divided further. Blocks are divided, never joined, so that averages can follow.
    """

    def __init__(self, reach: Mapping[Tensor, frozenset[int]] | None = None, blocks: Sequence[Block] = ()) -> None:
        self.reach = dict(reach or {})
        self.blocks = tuple(blocks)
        self._params: Sequence[Tensor] = ()
        self._plans: dict[Hashable, list[Part]] = {}

    def pack(
        self,
        found: Found,
        params: Sequence[Tensor],
        group_of: GroupOf = lambda _: 0,
        *,
        apart: Container[Tensor] = (),
        heads_together: bool = True,
    ) -> tuple[list[Rows], Layout]:
        """The gradients, block by block, and the layout that holds with them: mostly this one. ``found`` is used up.

        Parameters in ``apart`` are in no block with others. With ``heads_together``, heads of different objectives may
        be in one block.
        """
        reached = {i: [g is not None for g in row] for i, row in found.rows.items()}
        rest = None if found.rest is None else [g is not None for g in found.rest]
        pattern = tuple((i, *row) for i, row in reached.items()), None if rest is None else tuple(rest)
        if not are_same(self._params, params):
            self._params, self._plans = tuple(params), {}
        layout, plan = self, self._plans.get(pattern)
        if plan is None:

            def kind(param: Tensor, ever: frozenset[int], objectives: tuple[int, ...]) -> Hashable:
                # Heads that become shared together have the averages of different objectives.
                what: Hashable = objectives, ever, self.reach.get(param)
                if len(ever) == 1:
                    what = "head", bool(objectives), None if heads_together else ever
                alone = id(param) if param.numel() >= ALONE else None
                return group_of(param), param in apart, what, alone, param.dtype, param.device, division_of(param)

            layout, plan = self._divide(reached, rest, params, kind)
            if len(layout._plans) < MOST_PLANS:
                layout._plans[pattern] = plan
        rows = []
        for part in plan:
            rows.append(_lay(part, found))
            for row in (*found.rows.values(), *([] if found.rest is None else [found.rest])):
                for place in part.places:
                    row[place] = None  # used up, so that the peak of memory grows by one block only
        return rows, layout

    def _divide(
        self,
        reached: Mapping[int, Sequence[bool]],
        rest: Sequence[bool] | None,
        params: Sequence[Tensor],
        kind: Callable[[Tensor, frozenset[int], tuple[int, ...]], Hashable],
    ) -> tuple[Layout, list[Part]]:
        """The layout once this batch is in it, and where in it the gradients go."""
        reach = dict(self.reach)
        block_of = {p: block for block in self.blocks for p in block.params}
        kinds: dict[Hashable, list[tuple[int, tuple[int, ...], bool]]] = {}
        for place, param in enumerate(params):
            objectives = tuple(i for i, row in reached.items() if row[place])
            has_rest = rest is not None and rest[place]
            if objectives or has_rest:
                ever = reach[param] = reach.get(param, frozenset()).union(objectives)
                alike = kind(param, ever, objectives), id(block_of.get(param)), has_rest
                kinds.setdefault(alike, []).append((place, objectives, has_rest))
        plan = []
        divided: dict[Tensor, Block] = {}
        for members in kinds.values():
            _, objectives, has_rest = members[0]
            owners = [next(iter(reach[params[place]])) for place, _, _ in members if len(reach[params[place]]) == 1]
            places = [place for place, _, _ in members]
            if len(set(owners)) > 1:  # what is done shape by shape is then done for many heads at once
                order = sorted(range(len(places)), key=lambda k: params[places[k]].shape)
                places, owners = [places[k] for k in order], [owners[k] for k in order]
            chosen = [params[place] for place in places]
            block = block_of.get(chosen[0])
            if block is None or not are_same(block.params, chosen) or block.owners != tuple(owners):
                block = Block(tuple(chosen), tuple(owners))
            divided.update(dict.fromkeys(chosen, block))
            plan.append(Part(block, tuple(places), () if owners else objectives, has_rest))
        if reach == self.reach and all(block_of.get(p) is block for p, block in divided.items()):
            return self, plan
        blocks: dict[int, Block] = {id(block): block for block in divided.values()}
        for old in self.blocks:
            left = [k for k, p in enumerate(old.params) if p not in divided]
            kept = old
            if 0 < len(left) < len(old.params):
                owners = [old.owners[k] for k in left if old.owners]
                kept = Block(tuple(old.params[k] for k in left), tuple(owners))
            if left:
                blocks[id(kept)] = kept
        layout = Layout(reach, tuple(blocks.values()))
        layout._params = tuple(params)
        return layout, plan

    def state_dict(self, params: Sequence[Tensor]) -> dict[str, Any]:
        """The layout with the parameters numbered as they are in ``params``."""
        index = {p: k for k, p in enumerate(params)}
        blocks = [[index[p] for p in block.params if p in index] for block in self.blocks]
        return {
            "reach": {index[p]: sorted(reach) for p, reach in self.reach.items() if p in index},
            "blocks": [numbers for numbers in blocks if numbers],
        }

    @classmethod
    def load(cls, state: Mapping[str, Any], params: Sequence[Tensor]) -> Layout:
        """The layout that :meth:`state_dict` was made of."""
        reach = {params[k]: frozenset(int(i) for i in objectives) for k, objectives in state["reach"].items()}
        for objectives in reach.values():
            if any(i < 0 for i in objectives):
                raise ValueError(f"the layout has the objectives {sorted(objectives)}")
        blocks = []
        for numbers in state["blocks"]:
            alike: dict[Hashable, list[Tensor]] = {}  # it may come from a run that had them divided in another way
            for k in numbers:
                alike.setdefault(division_of(params[k]), []).append(params[k])
            for members in alike.values():
                owners = tuple(next(iter(reach[p])) for p in members if len(reach[p]) == 1)
                if owners and len(owners) < len(members):
                    raise ValueError("a block of the layout holds heads and shared parameters")
                blocks.append(Block(tuple(members), owners))
        return cls(reach, blocks)


def _lay(part: Part, found: Found) -> Rows:
    """The rows of one block, laid end to end."""
    block, places = part.block, part.places
    rest = found.rest if part.has_rest else None
    if not block.owners:
        rows = [found.rows[i] for i in part.objectives]
        if rest is not None:
            rows.append(rest)
        return SharedRows(block, part.objectives, _stack(rows, places, block), part.has_rest)
    own = [found.rows[i][place] if i in found.rows else None for i, place in zip(block.owners, places, strict=True)]
    parts = [g for g in own if g is not None]
    summed = None if rest is None else _flat([g for g in (rest[place] for place in places) if g is not None])
    if parts:
        return HeadRows(block, _flat(parts).unsqueeze(0), summed)
    assert summed is not None
    return HeadRows(block, summed.new_empty(0, block.entries), summed)


def _flat(parts: list[Tensor]) -> Tensor:
    return parts[0].reshape(-1) if len(parts) == 1 else torch.cat([g.reshape(-1) for g in parts])


def _stack(rows: Sequence[Sequence[Tensor | None]], places: Sequence[int], block: Block) -> Tensor:
    """[len(rows), entries]; nothing is copied where there is one row of one parameter."""
    each = [[g for g in (row[place] for place in places) if g is not None] for row in rows]
    if len(places) == 1 or len(each) == 1:
        flat = [_flat(parts) for parts in each]
        return flat[0].unsqueeze(0) if len(flat) == 1 else torch.stack(flat)
    stack = each[0][0].new_empty(len(each), block.entries)
    for row, parts in zip(stack, each, strict=True):
        torch.cat([g.reshape(-1) for g in parts], out=row)
    return stack
