"""Attach a probe to an optimizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.optim import Optimizer

from ..gradients import allow_several_backward_passes
from ..metric import PreferenceMetric
from ..optimizer import MultiObjective, evaluates_again
from ..relatives import PerObjective
from ._plain import PlainProbe
from ._probe import Probe
from ._wrapped import WrappedProbe

EVERY = 250  # a measured step may take ten times as long; see benchmarks/diagnostics_cost.py


def attach(
    optimizer: Optimizer,
    every: int = EVERY,
    sinks: Any = (),
    *,
    exact: bool = False,
    shadow: PreferenceMetric | None = None,
    objectives: Sequence[str] | None = None,
    keep: int = 10_000,
    start: int = 0,
) -> Probe:
    """Measure every ``every``-th step of an optimizer, the first included; training stays the same, bit for bit.

    On a measured step every objective is differentiated by itself, by as many extra backward passes as the optimizer
    does not make anyway; any other step costs next to nothing. Several probes may watch one optimizer; the times of a
    step that two of them measure then hold each other's work.

    Args:
        optimizer: a :class:`~madamoo.MultiObjective` (or :class:`~madamoo.MAdam`), and the training loop stays as it
            is; or a plain torch optimizer, and ``probe.backward(losses, weights)`` takes the place of
            ``(weights * losses).sum().backward()``.
        every: measure one step in so many.
        sinks: where rows go, one or several: a folder (``diagnostics.jsonl`` in it gets one line per row); a tracker,
            which gets every number of a row by name: TensorBoard's ``SummaryWriter("runs/mine")``, a run of Weights &
            Biases, ``wandb.init()``, the module ``mlflow`` within a run, a logger of Lightning, an ``Accelerator``; or
            a function of the row. One that raises is dropped with a warning.
        exact: keep the average of d^2 that Adam would have where the inner optimizer has none: under a metric, or when
            it is not like Adam. One buffer of the model's size, updated each step.
        shadow: for an optimizer without a metric, one that is fed each step but never used, to see what it would do.
            It costs each step what it would cost in use, backward passes included.
        objectives: the names of all objectives, for a plain optimizer and dictionaries whose first may lack some.
        keep: how many rows ``probe.rows`` holds.
        start: number of the first step, for a run that is resumed.

    Example:
        >>> import torch
        >>> from madamoo import MAdam, diagnostics
        >>> x = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
        >>> opt = MAdam([x])
        >>> with diagnostics.attach(opt, every=2) as probe:
        ...     for _ in range(5):
        ...         opt.zero_grad()
        ...         opt.backward([(x - 1).square().sum(), (x + 1).square().sum()])
        ...         opt.step()
        >>> [row["step"] for row in probe.rows]
        [0, 2, 4]
    """
    if not isinstance(optimizer, Optimizer) or isinstance(optimizer, PerObjective):
        raise TypeError(
            "optimizer must be a MultiObjective or a torch optimizer with one direction for all objectives, "
            f"got {type(optimizer).__name__}"
        )
    wrapped = isinstance(optimizer, MultiObjective)
    if evaluates_again(optimizer.optimizer if isinstance(optimizer, MultiObjective) else optimizer):
        raise ValueError(
            "optimizer must evaluate the losses once per step; this one evaluates its closure several times"
        )
    if not wrapped and (exact or shadow is not None):
        raise ValueError("exact and shadow need MultiObjective(optimizer, metric=None), got a plain torch optimizer")
    if wrapped and objectives is not None:
        raise ValueError("objectives are the optimizer's own: give them to MultiObjective, not to attach")
    if isinstance(optimizer, MultiObjective) and (count := optimizer.run.exchange.processes.count) > 1:
        raise ValueError(
            f"optimizer trains on {count} processes, and a probe would see the gradients of one: diagnose a run in one "
            "process, or give the optimizer process_group=, a group of this process alone"
        )
    probe: Probe
    if isinstance(optimizer, MultiObjective):
        probe = WrappedProbe(optimizer, every, sinks, keep, start, exact, shadow)
    else:
        probe = PlainProbe(optimizer, every, sinks, keep, start, objectives)
    allow_several_backward_passes()
    return probe
