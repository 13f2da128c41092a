"""Loading an optimizer's state in the precision in which it was saved."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.optim import Optimizer


def load_as_saved(optimizer: Optimizer, state_dict: dict[str, Any]) -> None:
    """torch's ``load_state_dict`` casts what it loads to the parameter's dtype and does not copy it else: once more."""
    Optimizer.load_state_dict(optimizer, state_dict)
    params = [param for group in optimizer.param_groups for param in group["params"]]
    keys = [key for group in state_dict["param_groups"] for key in group["params"]]
    for param, key in zip(params, keys, strict=True):
        for name, value in state_dict["state"].get(key, {}).items():
            if isinstance(value, Tensor):
                optimizer.state[param][name] = value.detach().to(param.device, copy=True)
