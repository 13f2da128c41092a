"""How fast the weights move: whether averages have to know the preference, or that of d^2 alone will do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

JUMPS = 0.02
"""The part of the total weight that changes hands from one step to the next, from which weights count as jumping.

Measured on six benchmarks: 0.001 to 0.003 with solvers whose weights drift (UW, DWA), where the average of d^2 does as
well as one per pair of objectives, and 0.1 to 0.5 with weights that are drawn or solved for in each step.
"""
DECAY, LEAST = 0.9, 5  # memory of the average, and the steps that it takes to say anything


@dataclass(frozen=True)
class Movement:
    """The part of the total weight that changes hands from one step to the next, as a running average."""

    average: float = 0.0
    n: int = 0
    last: Mapping[int, float] = field(default_factory=dict)  # the part of each objective in the last step
    jumps: bool = False  # whether it has ever been above ``JUMPS``

    def after(self, weights: Sequence[float], present: Sequence[int]) -> Movement:
        """This with one more step in it; a step that other objectives are in than in the last one says nothing."""
        total = sum(abs(weights[i]) for i in present)
        parts = {i: abs(weights[i]) / total if total > 0 else 0.0 for i in present}
        if parts.keys() != self.last.keys():
            return Movement(self.average, self.n, parts, self.jumps)
        moved = sum(abs(parts[i] - self.last[i]) for i in parts) / 2
        average, n = DECAY * self.average + (1.0 - DECAY) * moved, self.n + 1
        jumps = self.jumps or (n >= LEAST and average / (1.0 - DECAY**n) > JUMPS)
        return Movement(average, n, parts, jumps)

    def state_dict(self) -> dict[str, Any]:
        return {**asdict(self), "last": dict(self.last)}

    @classmethod
    def load(cls, state: Mapping[str, Any]) -> Movement:
        last = {int(i): float(part) for i, part in state["last"].items()}
        return cls(float(state["average"]), int(state["n"]), last, bool(state["jumps"]))
