"""What was written to ``.grad``, and whether it still stands there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from torch import Tensor

_MARK = "_madamoo_wrote"
"""On a gradient: its version when we wrote it or a step used it up, a number that torch raises with every change."""


@dataclass
class Written:
    """The gradients that one ``backward`` has written."""

    vanishes: bool = False  # whether all of them are zero

    def write(self, param: Tensor, gradient: Tensor) -> None:
        param.grad = gradient
        setattr(gradient, _MARK, gradient._version)

    def was_cleared(self, params: Sequence[Tensor]) -> bool:
        """Whether the gradients were cleared behind our back (model.zero_grad()), and with them what is pending."""
        gradients = [p.grad for p in params if p.grad is not None]
        if not gradients:
            return True
        if self.vanishes or not self.was_touched(gradients):  # zeros of our own making are no sign
            return False
        return not any(bool(g.any()) for g in gradients)

    def was_touched(self, gradients: Iterable[Tensor]) -> bool:
        return any(getattr(g, _MARK, None) != g._version for g in gradients)


def used_up(params: Iterable[Tensor]) -> None:
    """A step was taken: whatever stands in ``.grad``, whoever made or changed it, is of no further use."""
    for param in params:
        if (gradient := param.grad) is not None:
            setattr(gradient, _MARK, gradient._version)


def foreign(params: Iterable[Tensor]) -> bool:
    """Whether some gradient is not zero, and neither of our making nor used up: made or added to since."""
    found = [p.grad for p in params if p.grad is not None]
    return any(getattr(g, _MARK, None) != g._version and bool(g.any()) for g in found)
