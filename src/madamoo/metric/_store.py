"""Where the averages of all blocks are kept, and what happens when the blocks change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from torch import Tensor

from ..gradients import are_same
from ._averages import Averages, Make


class Store:
    """The averages of every parameter, kept block by block.

    Blocks may become smaller in the course of a run, when a batch shows that fewer objectives reach some of their
    parameters than others; after a checkpoint was loaded, they grow together again.
    """

    def __init__(self, averages: Iterable[Averages] = ()) -> None:
        self._of: dict[Tensor, Averages] = {}
        for block in averages:
            self._keep(block)

    def __iter__(self) -> Iterator[Averages]:
        """Each block once."""
        return iter({id(block): block for block in self._of.values()}.values())

    def __contains__(self, param: Tensor) -> bool:
        return param in self._of

    def __getitem__(self, param: Tensor) -> Averages:
        """Those of one parameter."""
        return next(part for part in self._of[param].split() if part.params[0] is param)

    def find(self, params: tuple[Tensor, ...], make: Make) -> Averages:
        """The averages of these parameters, to read; empty ones, by ``make``, if there are none."""
        block = self._of.get(params[0])
        if block is not None and are_same(block.params, params):
            return block
        parts = {a.params[0]: a for old in self._touched(params) for a in old.split()}
        if not parts:
            return make(params)
        first, *others = (parts.get(p) or make((p,)) for p in params)
        return first.join(others)

    def take(self, params: tuple[Tensor, ...], make: Make) -> Averages:
        """The same, to change: from now on these parameters are a block."""
        block = self.find(params, make)
        if block is not self._of.get(params[0]):
            chosen = set(params)
            for old in self._touched(params):
                rest = [a for a in old.split() if a.params[0] not in chosen]
                if rest:
                    self._keep(rest[0].join(rest[1:]).owned())
            self._keep(block := block.owned())
        return block

    def _touched(self, params: tuple[Tensor, ...]) -> list[Averages]:
        found = (self._of.get(p) for p in params)
        return list({id(block): block for block in found if block is not None}.values())

    def _keep(self, block: Averages) -> None:
        self._of.update(dict.fromkeys(block.params, block))
