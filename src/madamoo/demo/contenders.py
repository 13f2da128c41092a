"""The optimizers that the demo compares: the same Adam, at the same rate, with three different metrics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from madamoo import MultiObjective, PreferenceMetric
from madamoo.solvers import Solver

ADAM = "Adam"
CONTROL = "Adam twice"  # whitens by the average of d^2, whatever the preference: only what beats it is due to MAdam
MADAM = "MAdam"
CONTENDERS = (ADAM, CONTROL, MADAM)


def build(
    contender: str, params: Iterable[Tensor], *, lr: float, solver: Solver, **metric_options: Any
) -> MultiObjective:
    """One of :data:`CONTENDERS`, ready to train ``params``; ``metric_options`` go to its metric, if it has one."""
    metric = {
        ADAM: lambda: None,
        CONTROL: lambda: PreferenceMetric("marginal", **metric_options),
        MADAM: lambda: PreferenceMetric(**metric_options),
    }[contender]()
    # AdamW without decay is Adam; its own default is not zero.
    return MultiObjective(torch.optim.AdamW(params, lr=lr, weight_decay=0.0, fused=True), solver, metric)
