"""A probe on a plain torch optimizer: the diagnosis alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..direction import combine
from ..gradients import (
    Collector,
    Layout,
    Losses,
    LossesT,
    check_names,
    read_losses,
    read_scale,
)
from ._probe import Clock, Probe, Sample, Seen


class PlainProbe(Probe):
    """See :func:`attach`."""

    def __init__(
        self, inner: Optimizer, every: int, sinks: Any, keep: int, start: int, objectives: Sequence[str] | None
    ) -> None:
        super().__init__(inner, every, sinks, keep, start)
        if objectives is not None:
            self.names = check_names(objectives)
            self.count = len(self.names)

    def backward(
        self,
        losses: LossesT,
        weights: Any = None,
        retain_graph: bool = False,
        scaler: torch.amp.GradScaler | None = None,
    ) -> None:
        """In place of ``(weights * losses).sum().backward()``: ``.grad`` gets the same, bit for bit.

        Args:
            losses: a 1-D tensor, a sequence or a dict of scalar tensors; None for an objective the batch lacks.
            weights: one constant per objective, in their order or by name; 1 / C each if None.
            retain_graph: keep the graph.
            scaler: a GradScaler, in place of ``scaler.scale(...).backward()``.
        """
        self._hand_over()
        params = [p for group in self.inner.param_groups for p in group["params"] if p.requires_grad]
        if self._sample is not None and _is_cleared(params):
            self._sample = None
        before = None if self._sample is None else self._sample.pending
        names, count = (self.names, self.count) if before is None else (before.names, len(before.values))
        batch = read_losses(losses, names, count)
        vector = _read_weights(weights, batch)
        if before is not None and not torch.equal(vector, before.given):
            raise ValueError("weights must be the same in every micro-batch of a step")
        sample = self._sample
        if sample is None and self._due:
            sample = Sample(Clock(params[0].device))
        if sample is not None:
            sample.charge(None)
            scale = read_scale(scaler, params[0].device)
            with torch.no_grad():
                self._see(sample, batch, vector, params, scale)
            sample.charge("probe")
        total = _weighted_sum(losses, batch, vector)
        (total if scaler is None else scaler.scale(total)).backward(retain_graph=retain_graph)
        if sample is not None:
            sample.charge("gradients")
        self._sample = sample

    def _see(self, sample: Sample, batch: Losses, vector: Tensor, params: list[Tensor], scale: float) -> None:
        """One more batch in the sample."""
        batch.check_graph()  # raises for a checkpoint that hides its parameters
        found = self._differentiate(batch, params, batch.present, scale)
        collector, before = Collector(params, lambda _: 0), sample.pending
        opened = collector.open(None if before is None else before.collected, batch, Layout())
        collected = collector.add(opened, found, opaque=False, missing=False)
        weights = torch.where(collected.values.isnan(), 0.0, vector)
        sample.pending = Seen(params, batch.names, weights, collected, given=vector)
        sample.before = sample.before or {p: p.detach().clone() for p in params}
        sample.directions = [
            (combine(r, vector.tolist(), torch.promote_types(r.stack.dtype, torch.float32)), 0.0)
            for r in collected.rows
        ]

    def _is_taken(self, sample: Sample) -> bool:
        assert sample.pending is not None
        return not _is_cleared(sample.pending.params)


def _is_cleared(params: Sequence[Tensor]) -> bool:
    """Whether the gradients were cleared, and with them what earlier calls of backward left."""
    return not any(p.grad is not None and bool(p.grad.any()) for p in params)


def _read_weights(weights: Any, batch: Losses) -> Tensor:
    count = len(batch.roots)
    if weights is None:
        return torch.full((count,), 1.0 / count, dtype=torch.float64, device="cpu")
    if isinstance(weights, Mapping):
        if batch.names is None or set(weights) != set(batch.names):
            raise ValueError(f"weights must name the objectives {batch.names}, got {sorted(weights)}")
        weights = [weights[name] for name in batch.names]
    result = torch.as_tensor(weights, dtype=torch.float64, device="cpu").detach()
    if result.shape != (count,):
        raise ValueError(f"weights must have {count} entries, one for each objective, got {result.tolist()}")
    return result


def _weighted_sum(losses: LossesT, batch: Losses, vector: Tensor) -> Tensor:
    """(weights * losses).sum(), over the objectives that are there."""
    if not isinstance(losses, Tensor):
        given = [losses.get(n) for n in batch.names or ()] if isinstance(losses, Mapping) else losses
        losses = torch.stack([loss.reshape(()) for loss in given if loss is not None])
        vector = vector[list(batch.present)]
    return (vector.to(losses) * losses).sum()
