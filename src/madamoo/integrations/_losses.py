"""What a framework does to one loss, done to several."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from torch import Tensor

LossesT: TypeAlias = Tensor | Sequence[Tensor | None] | Mapping[str, Tensor | None]


def divide(losses: LossesT, count: int) -> LossesT:
    """The share of one of ``count`` micro-batches. One batch is left as it is: its graph then shows more."""
    return losses if count == 1 else _each(losses, lambda loss: loss / count)


def detach(losses: LossesT) -> LossesT:
    return _each(losses, Tensor.detach)


def total(losses: LossesT) -> Tensor:
    """The sum of the losses: the one number that progress bars and evaluation show."""
    if isinstance(losses, Tensor):
        return losses.sum()
    given = losses.values() if isinstance(losses, Mapping) else losses
    first, *others = [loss.reshape(()) for loss in given if loss is not None]
    return sum(others, start=first)


def _each(losses: LossesT, function: Callable[[Tensor], Tensor]) -> LossesT:
    if isinstance(losses, Tensor):
        return function(losses)
    if isinstance(losses, Mapping):
        return {name: None if loss is None else function(loss) for name, loss in losses.items()}
    return [None if loss is None else function(loss) for loss in losses]
