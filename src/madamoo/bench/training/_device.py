"""The device of a run."""

from __future__ import annotations

import torch

from ..runs import BadValue


def choose_device(name: str | None) -> torch.device:
    """The device called ``name``: cpu, cuda, cuda:1 or mps; None is a GPU if torch finds one, else the CPU."""
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise BadValue("device", name, "it must be cpu, cuda, cuda:<number> or mps") from None
    if device.type == "cuda":
        count = torch.cuda.device_count()
        if (device.index or 0) >= count:
            raise BadValue("device", name, f"torch finds {count} such devices here")
    elif device.type == "mps":
        if not torch.backends.mps.is_available():
            raise BadValue("device", name, "torch finds no such device here")
    elif device.type != "cpu":
        raise BadValue("device", name, "it must be cpu, cuda, cuda:<number> or mps")
    return device
