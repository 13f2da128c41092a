"""Where the averages of all blocks are kept, and what happens when the blocks change."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from ..gradients import Block, Layout
from ._averages import Averages, Make


class Store:
    """The averages of every parameter, block by block, as a layout has them."""

    def __init__(self, make: Make, layout: Layout | None = None, averages: dict[Block, Averages] | None = None) -> None:
        self.make = make
        self.layout = layout
        self._of = averages or {}

    def __iter__(self) -> Iterator[Averages]:
        return iter(self._of.values())

    def __contains__(self, param: Tensor) -> bool:
        return any(param is p for block, averages in self._of.items() if averages.pairs for p in block.params)

    def __getitem__(self, param: Tensor) -> Averages:
        """Those of one parameter."""
        return next(a for block in self for a in block.split() if a.block.params[0] is param)

    def at(self, block: Block) -> Averages:
        """Those of one block of the layout, to read."""
        return self._of[block]

    def put(self, averages: Averages) -> None:
        """Keep these as those of their block."""
        self._of[averages.block] = averages

    def repacked(self, layout: Layout) -> Store:
        """The same averages in the blocks of another layout; this store stays as it is."""
        if layout is self.layout:
            return self
        changed = [averages for block, averages in self._of.items() if block not in {*layout.blocks}]
        parts = {a.block.params[0]: a for averages in changed for a in averages.split()}
        return Store(self.make, layout, {block: self._of.get(block) or self._gather(block, parts) for block in layout.blocks})

    def _gather(self, block: Block, parts: dict[Tensor, Averages]) -> Averages:
        empty = self.make(block)
        if not any(p in parts for p in block.params):
            return empty
        first, *others = (parts.get(p) or self.make(single) for p, single in zip(block.params, block.split(), strict=True))
        return first.join(block, empty.owners, others)
