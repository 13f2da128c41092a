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
        kept = {*layout.blocks}
        changed = [averages for block, averages in self._of.items() if block not in kept]
        parts = {a.block.params[0]: a for averages in changed for a in averages.split()}
        averages = {block: self._of.get(block) or self._gather(block, parts) for block in layout.blocks}
        return Store(self.make, layout, averages)

    def _gather(self, block: Block, parts: dict[Tensor, Averages]) -> Averages:
        empty = self.make(block)
        if not any(p in parts for p in block.params):
            return empty
        first, *others = (parts.get(single.params[0]) or self.make(single) for single in block.split())
        return first.join(block, empty.owners, others)
