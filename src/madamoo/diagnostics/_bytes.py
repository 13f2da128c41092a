"""How large a state is."""

from __future__ import annotations

from typing import Any

from torch import Tensor


def state_bytes(state: Any) -> int:
    """The bytes of all tensors in a nested state."""
    if isinstance(state, Tensor):
        return state.numel() * state.element_size()
    if isinstance(state, dict):
        state = state.values()
    elif not isinstance(state, (list, tuple)):
        return 0
    return sum(map(state_bytes, state))
