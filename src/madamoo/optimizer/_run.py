"""What an optimizer remembers from step to step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from ..gradients import Exchange, Layout
from ._step import Step


@dataclass
class RunState:
    """What outlives a step. One object, changed in place: wrappers of the optimizer copy its attributes."""

    count: int | None = None
    names: tuple[str, ...] | None = None
    ordered: bool = False  # whether the order of the names was chosen, by the user or by an earlier run
    layout: Layout = field(default_factory=Layout)
    weights: Tensor | None = None
    losses: Tensor | None = None
    skipped: int = 0
    warned: set[str] = field(default_factory=set)  # what the user has been warned of
    pending: Step | None = None
    probes: tuple[Any, ...] = ()  # diagnostics that watch the run; they change nothing
    exchange: Exchange = field(default_factory=Exchange)
    holds: bool = False  # whether a ``backward`` keeps its gradients for a later one to send

    def tell(self, event: str, *facts: Any) -> None:
        """Tell the probes how far the step has come."""
        for probe in self.probes:
            getattr(probe, f"on_{event}")(*facts)

    def once(self, what: str) -> bool:
        """Whether it is the first time; for warnings."""
        first = what not in self.warned
        self.warned.add(what)
        return first

    def commit(self, step: Step) -> None:
        self.count, self.names = len(step.values), step.names
        self.layout = step.collected.layout
        step.commit()
        self.tell("commit")
