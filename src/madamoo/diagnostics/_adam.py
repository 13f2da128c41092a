"""Adam's second moment, as a torch optimizer keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor


def second_moment(state: Mapping[str, Any], group: Mapping[str, Any]) -> Tensor | None:
    """The bias-corrected second moment with which the last step was taken; None if the optimizer is not like Adam."""
    v = state.get("max_exp_avg_sq" if group.get("amsgrad") else "exp_avg_sq")
    if not isinstance(v, Tensor) or "step" not in state or "betas" not in group:
        return None
    filled: float = 1.0 - float(group["betas"][1]) ** float(state["step"])
    return v.to(torch.promote_types(v.dtype, torch.float32)) / filled
