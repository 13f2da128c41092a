"""One run on several processes: each has a part of every batch, and the first one writes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout
from typing import Any

import torch
from torch import nn

from madamoo.gradients import Processes

from ..runs import Config
from ._contenders import balances_alone
from ._methods import is_conditioned, is_of_all_rays, is_of_one_ray


@contextmanager
def together() -> Iterator[Processes]:
    """The processes that ``torchrun`` has started, as a group; all but the first keep silent. Else, one process."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or not torch.distributed.is_available():
        yield Processes()
        return
    torch.distributed.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
    try:
        processes = Processes.of(None)
        with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere) if processes.rank else nullcontext():
            yield processes
    finally:
        torch.distributed.destroy_process_group()


def check(config: Config, processes: Processes) -> None:
    """Raise ValueError unless several processes can do the run."""
    if processes.count == 1:
        return
    if balances_alone(config.optimizer):
        raise ValueError(f"{config.optimizer} trains in one process, not in {processes.count}")
    if is_conditioned(config.solver) or is_of_one_ray(config.solver) or is_of_all_rays(config.solver):
        raise ValueError(f"a method that learns a front trains in one process, not in {processes.count}")


def even_buffers(model: nn.Module, processes: Processes) -> None:
    """Running statistics are those of each process' samples; evaluated are their means."""
    if processes.count == 1:
        return
    buffers = [b for b in model.buffers() if b.is_floating_point()]
    for buffer, mean in zip(buffers, processes.means(buffers), strict=True):
        buffer.copy_(mean)


class Onlooker:
    """The run folder of a process that does not write: it finds nothing there, and leaves nothing behind."""

    @contextmanager
    def locked(self) -> Iterator[None]:
        yield

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None
