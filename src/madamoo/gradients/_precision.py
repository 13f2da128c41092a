"""Mixed precision: a GradScaler's scale, and regions without autocast."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch


def read_scale(scaler: torch.amp.GradScaler | None, device: torch.device) -> float:
    """The scale of the losses under this scaler; 1 without one."""
    if scaler is None or not scaler.is_enabled():
        return 1.0
    scaler.scale(torch.ones((), device=device))  # makes the scale if nothing was scaled before
    return float(scaler.get_scale())


def full_precision(device: torch.device) -> AbstractContextManager[None]:
    """Products of gradients are not for autocast, in whose region the user may well call us."""
    if not torch.amp.is_autocast_available(device.type) or not torch.is_autocast_enabled(device.type):
        return nullcontext()
    return torch.autocast(device.type, enabled=False)
