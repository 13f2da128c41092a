"""The torch optimizers that MAdam and MSOAP are built around."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import torch
from torch.utils._foreach_utils import _get_fused_kernels_supported_devices

from ..gradients import is_divided

OptimizerT = TypeVar("OptimizerT", bound=torch.optim.Optimizer)


def adamw(params: Iterable[Any], **options: Any) -> torch.optim.AdamW:
    """torch's fused one where there is one."""
    optimizer = torch.optim.AdamW(params, fused=True, **options)
    devices = _get_fused_kernels_supported_devices()
    tensors = [p for group in optimizer.param_groups for p in group["params"]]
    if not all(p.device.type in devices and p.is_floating_point() for p in tensors):  # torch would say so in step()
        for settings in (optimizer.defaults, *optimizer.param_groups):
            settings["fused"] = False
    return _one_by_one_where_mixed(optimizer)


def sgd(params: Iterable[Any], **options: Any) -> torch.optim.SGD:
    return _one_by_one_where_mixed(torch.optim.SGD(params, **options))


def _one_by_one_where_mixed(optimizer: OptimizerT) -> OptimizerT:
    """torch has no kernel for sharded and whole tensors together."""
    for settings in optimizer.param_groups:
        if len({is_divided(p) for p in settings["params"]}) > 1:
            settings["fused"], settings["foreach"] = False, False
    return optimizer
