"""Accelerate: one changed line of a loop, ``backward(accelerator, opt, losses)``.

Example::

    accelerator = Accelerator(gradient_accumulation_steps=4, mixed_precision="bf16")
    model, opt, loader = accelerator.prepare(model, MAdam(model.parameters(), solver="cagrad"), loader)
    for batch in loader:
        with accelerator.accumulate(model):
            losses = objectives(model, batch)
            backward(accelerator, opt, losses)  # was: accelerator.backward(sum(losses.values()))
            opt.step()
            opt.zero_grad()

``accelerator.save_state`` and ``load_state`` carry all of it; ``accelerator.clip_grad_norm_`` clips ``.grad`` as usual.
"""

from __future__ import annotations

from typing import Any

from torch.optim import Optimizer

from ..optimizer import MultiObjective
from ..relatives import PerObjective
from ._losses import LossesT, divide

__all__ = ["backward", "check_backend", "prepared"]

UNSUPPORTED = {
    "DEEPSPEED": "DeepSpeed runs the backward pass of one loss itself, and its own optimizer",
    "FSDP": "FSDP shards parameters by hooks on the backward pass of one loss",
    "MEGATRON_LM": "Megatron-LM runs the whole training step itself",
}


def backward(accelerator: Any, optimizer: Optimizer, losses: LossesT, **options: Any) -> None:
    """In place of ``accelerator.backward(loss)``: all losses, accumulation and loss scaling as set there.

    Args:
        accelerator: an ``Accelerator``. Its ``gradient_accumulation_steps`` divide the losses, its scaler scales them.
        optimizer: a madamoo optimizer, as ``accelerator.prepare`` returned it.
        losses: a 1-D tensor, a sequence or a dict of scalars.
        options: those of :meth:`~madamoo.MultiObjective.backward`: preference, retain_graph, features, extra.
    """
    check_backend(accelerator)
    losses = divide(losses, accelerator.gradient_accumulation_steps)
    prepared(optimizer).backward(losses, scaler=accelerator.scaler, **options)


def check_backend(accelerator: Any) -> None:
    """Refuse what takes the backward pass out of our hands."""
    name = str(getattr(accelerator.distributed_type, "value", accelerator.distributed_type))
    if name in UNSUPPORTED:
        raise ValueError(f"{name} is not supported: {UNSUPPORTED[name]}, and several losses need passes of their own")


def prepared(optimizer: Optimizer) -> MultiObjective | PerObjective:
    """Our optimizer in what ``accelerator.prepare`` made of it."""
    inner = optimizer if isinstance(optimizer, MultiObjective | PerObjective) else getattr(optimizer, "optimizer", None)
    if not isinstance(inner, MultiObjective | PerObjective):
        raise TypeError(f"optimizer must be a MAdam or MultiObjective, got {type(inner or optimizer).__name__}")
    return inner
