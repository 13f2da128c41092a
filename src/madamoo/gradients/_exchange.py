"""The one place that talks to other processes. Today there is one process, so it says when there are more."""

from __future__ import annotations

import warnings

import torch

from ._collected import Collected


class Exchange:
    """Owns every exchange between processes: no other code calls a collective."""

    def __init__(self) -> None:
        started = torch.distributed.is_available() and torch.distributed.is_initialized()
        if started and (processes := torch.distributed.get_world_size()) > 1:
            warnings.warn(
                f"torch.distributed has {processes} processes, and gradients are not averaged between them: replicas "
                "of a model (DistributedDataParallel, FSDP) drift apart",
                stacklevel=4,
            )

    def agree(self, collected: Collected) -> Collected:
        """What all processes have collected together, before any room looks at it."""
        return collected
