"""What was written to ``.grad``, and whether it still stands there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from torch import Tensor

from ._processes import ONE, Processes
from ._shards import local

_MARK = "_madamoo_wrote"
"""On a gradient: its version when we wrote it or a step used it up, a number that torch raises with every change."""


@dataclass
class Written:
    """The gradients that one ``backward`` has written."""

    begun: bool = False  # whether there are any
    vanishes: bool = False  # whether all of them are zero
    among: Processes = ONE  # who has a part of them each

    def write(self, param: Tensor, gradient: Tensor) -> None:
        param.grad = gradient
        _mark(gradient)
        self.begun = True

    def was_cleared(self, params: Sequence[Tensor]) -> bool:
        """Whether the gradients were cleared behind our back (model.zero_grad()), and with them what is pending."""
        if not self.begun:
            return False
        gradients = [p.grad for p in params if p.grad is not None]
        if not gradients:
            return True
        if self.vanishes or not self.was_touched(gradients):  # zeros of our own making are no sign
            return False
        return not self.among.any(any(bool(local(g).any()) for g in gradients))

    def was_touched(self, gradients: Iterable[Tensor]) -> bool:
        return any(getattr(g, _MARK, None) != local(g)._version for g in gradients)


def used_up(params: Iterable[Tensor]) -> None:
    """A step was taken: whatever stands in ``.grad``, whoever made or changed it, is of no further use."""
    for param in params:
        if param.grad is not None:
            _mark(param.grad)


def foreign(params: Iterable[Tensor]) -> bool:
    """Whether some gradient is not zero, and neither of our making nor used up: made or added to since."""
    found = [(p.grad, local(p.grad)) for p in params if p.grad is not None]
    return any(getattr(g, _MARK, None) != here._version and bool(here.any()) for g, here in found)


def _mark(gradient: Tensor) -> None:
    setattr(gradient, _MARK, local(gradient)._version)  # that of a DTensor itself stays the same
