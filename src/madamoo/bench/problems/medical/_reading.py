"""What both kinds of medical benchmark share: batches that are read ahead."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from madamoo.medical import Sample, Samples

from .. import Batches

WORKERS_VARIABLE = "MADAMOO_DATA_WORKERS"  # processes that read ahead; what a run computes does not depend on it


def say(text: str) -> None:
    print(f"madamoo: {text}", file=sys.stderr)


def workers() -> int:
    """How many processes read ahead, as the user's environment says."""
    text = os.environ.get(WORKERS_VARIABLE, "").strip() or "0"
    if not text.isdecimal():
        raise ValueError(f"{WORKERS_VARIABLE} must be a whole number, 0 or more, got {text!r}")
    return int(text)


class Planned(Batches):
    """Batches of samples that are read as an epoch's plan says, ahead of time if there are processes for it.

    Args:
        plan: from the generator to the samples of each batch of an epoch, [steps, samples].
        make: from samples and the generator to the batch.
    """

    def __init__(
        self,
        samples: Samples,
        steps: int,
        plan: Callable[[torch.Generator], Tensor],
        make: Callable[[list[Sample], torch.Generator], Any],
    ) -> None:
        if not len(samples):
            raise ValueError("there are no training samples")
        self.samples, self.steps, self.make_plan, self.make = samples, steps, plan, make
        self.plan = Tensor()
        self.stream: Iterator[list[Sample]] | None = None
        self.next = 0

    def draw(self, position: int, generator: torch.Generator) -> Any:
        if position == 0:
            self.plan = self.make_plan(generator)
            self.stream = None
        if self.stream is None or self.next != position:
            self.stream = self.samples.batches(self.plan[position:].tolist(), workers())
        self.next = position + 1
        return self.make(next(self.stream), generator)

    def state_dict(self) -> dict[str, Any]:
        return {"plan": self.plan, "samples": len(self.samples)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state["samples"] != len(self.samples):
            raise ValueError(f"its plan is of {state['samples']} training samples, now there are {len(self.samples)}")
        self.plan, self.stream = state["plan"], None
