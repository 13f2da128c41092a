"""How large a state is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor


def state_bytes(state: Any) -> int:
    """The bytes of all tensors in a nested state; one that stands in several places counts once."""
    return sum(tensor.numel() * tensor.element_size() for tensor in {id(t): t for t in _tensors(state)}.values())


def _tensors(state: Any) -> Iterator[Tensor]:
    if isinstance(state, Tensor):
        yield state
    elif isinstance(state, dict | list | tuple):
        for inner in state.values() if isinstance(state, dict) else state:
            yield from _tensors(inner)
