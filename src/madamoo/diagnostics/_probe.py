"""A probe: watches an optimizer, measures now and then, hands the rows on."""

from __future__ import annotations

import copy
import time
import warnings
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..direction import Direction
from ..gradients import Collected, Found, Losses, LossesT, Rows, by_param, differentiate, read_losses
from ..metric import Measured, PreferenceMetric
from ..optimizer import Step
from ._adam import second_moment
from ._bytes import state_bytes
from ._measure import Piece, Sums, clean, make_row
from ._sinks import Row, Sink, open_sinks

RowsByParam = dict[Tensor, tuple[tuple[int, ...], tuple[Tensor, ...]]]
"""Of each parameter, objectives and stacks of their gradients."""


class Clock:
    """How long each room takes: the time since the last call is charged to a room."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.seconds: dict[str, float] = {}
        self.last = self._now()

    def _now(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()

    def charge(self, room: str | None) -> None:
        """To no room, if None: the time was the user's own."""
        now = self._now()
        if room is not None:
            self.seconds[room] = self.seconds.get(room, 0.0) + now - self.last
        self.last = now


@dataclass(frozen=True)
class Seen:
    """What a probe needs to know of a step that is pending."""

    params: Sequence[Tensor]
    names: tuple[str, ...] | None
    weights: Tensor  # [C], 0 where an objective is missing
    collected: Collected
    measurement: Measured | None = None
    given: Tensor = field(default_factory=lambda: torch.empty(0))  # the user's weights, of a plain optimizer
    step: Step | None = None  # of an optimizer of ours

    @property
    def values(self) -> Tensor:
        return self.collected.values

    @property
    def present(self) -> tuple[int, ...]:
        return self.collected.present

    @property
    def rows(self) -> Sequence[Rows]:
        return self.collected.rows


@dataclass
class Sample:
    """What a probe has seen of the step in the making."""

    clock: Clock | None  # None: the step is not measured, only the probe's own averages are fed
    pending: Seen | None = None
    extra: Found | None = None  # gradients that the optimizer itself does not compute
    directions: list[tuple[Direction, float]] = field(default_factory=list)  # each with its beta
    before: dict[Tensor, Tensor] = field(default_factory=dict)  # the parameters
    shadow: Measured | None = None
    complete: bool = True  # whether d is made of the objectives' gradients alone, without an extra term

    def charge(self, room: str | None) -> None:
        if self.clock is not None:
            self.clock.charge(room)


class Probe:
    """Measures every ``every``-th step of an optimizer; made by :func:`attach`.

    ``rows`` holds what was measured, newest last. A row goes to the sinks when the next step begins, with
    :meth:`observe`, or with :meth:`close`. It can be used in a ``with`` statement.

    Example:
        >>> import torch
        >>> from madamoo import MAdam, diagnostics
        >>> model = torch.nn.Linear(3, 2)
        >>> opt = MAdam(model.parameters())
        >>> with diagnostics.attach(opt, every=2) as probe:
        ...     for _ in range(4):
        ...         y = model(torch.ones(4, 3))
        ...         opt.zero_grad()
        ...         opt.backward([y[:, 0].square().mean(), (y[:, 1] - 1).square().mean()])
        ...         opt.step()
        >>> [row["step"] for row in probe.rows]
        [0, 2]
    """

    def __init__(self, inner: Optimizer, every: int, sinks: Any, keep: int, start: int) -> None:
        for name, value, least in (("every", every, 1), ("keep", keep, 1), ("start", start, 0)):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"{name} must be a whole number, at least {least}, got {value!r}")
        self.inner = inner
        self.every = every
        self.start = start
        self.steps = 0  # taken since the probe was attached
        self.rows: deque[Row] = deque(maxlen=keep)
        self.sinks = open_sinks(sinks)
        self.names: tuple[str, ...] | None = None
        self.count: int | None = None
        self._next = 0  # the step to be measured; a later one, if that one cannot be
        self._first = 0  # it and every so many after it are measured
        self._sample: Sample | None = None
        self._row: Row | None = None  # of the last step, not yet handed over
        self._clock: Clock | None = None
        self._handles = [
            inner.register_step_pre_hook(self._before_step),
            inner.register_step_post_hook(self._after_step),
        ]

    def backward(
        self,
        losses: LossesT,
        weights: Any = None,
        retain_graph: bool = False,
        scaler: torch.amp.GradScaler | None = None,
    ) -> None:
        """In place of ``(weights * losses).sum().backward()``, for a probe on a plain torch optimizer."""
        raise TypeError("this probe watches a MultiObjective optimizer: call opt.backward(losses) as without it")

    def observe(self, losses: LossesT) -> None:
        """The losses of the same batch after a measured step, to compare their change with the predicted one.

        They need no graph: compute them under ``torch.no_grad()``. After a step that was not measured (see
        :attr:`measured`) this does nothing.
        """
        if self._row is None:
            return
        after = read_losses(losses, self.names, self.count, graph=False).values.tolist()
        before = self._row["losses"]
        self._row["observed"] = {
            name: None if before[name] is None else clean(x - before[name])
            for name, x in zip(self._row["objectives"], after, strict=True)
        }
        self._hand_over()

    @property
    def measured(self) -> bool:
        """Whether the last step was measured, and its row still waits for :meth:`observe`."""
        return self._row is not None

    def close(self) -> None:
        """Hand over the last row and leave the optimizer alone."""
        self._hand_over()
        self._sample = None
        for handle in self._handles:
            handle.remove()

    def __enter__(self) -> Probe:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def state_dict(self) -> dict[str, Any]:
        """What a probe on the resumed run needs to go on as if nothing had happened; the row that waits is handed over.

        The rows are not in it: of those in a file, drop what the checkpoint does not know yet.
        """
        self._hand_over()
        return {"step": self.start + self.steps, "next": self.start + self._next}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.start, self.steps = state["step"], 0
        self._next = state["next"] - self.start
        self._first = self._next % self.every

    # What the two kinds of probe differ in.

    def _is_taken(self, sample: Sample) -> bool:
        """Whether the step that was just taken is the one in the sample."""
        raise NotImplementedError

    def _feed(self, sample: Sample, pending: Seen) -> None:
        """Before the measurement: take the step into averages of the probe's own."""

    def _finish(self, sample: Sample, pending: Seen) -> None:
        """After the measurement."""

    def _metric(self, sample: Sample, pending: Seen) -> tuple[PreferenceMetric, Measured] | None:
        """The metric in use, or the shadow."""
        return None

    def _second_moment(self, param: Tensor, group: dict[str, Any]) -> Tensor | None:
        return second_moment(self.inner.state.get(param, {}), group)

    def _bytes(self) -> dict[str, int]:
        return {"optimizer": state_bytes(self.inner.state)}

    # What they share.

    @property
    def _due(self) -> bool:
        return self.steps >= self._next

    def _differentiate(self, batch: Losses, params: Sequence[Tensor], objectives: Sequence[int], scale: float) -> Found:
        """The gradients of some objectives, one pass each; the graph stays."""
        with fork_rng(params):
            batch = replace(batch, extra=None)
            return differentiate(batch, params, objectives, scale=scale, retain_graph=True)

    def _before_step(self, *_: Any) -> None:
        self._hand_over()
        if self._sample is not None:
            self._sample.charge(None)

    def _after_step(self, optimizer: Optimizer, *_: Any) -> None:
        sample, self._sample = self._sample, None
        overflow = getattr(optimizer, "found_inf", None)  # set by a GradScaler for optimizers that skip by themselves
        if overflow is not None and bool(overflow):
            return
        if sample is not None and sample.pending is not None and self._is_taken(sample):
            sample.charge("optimizer")
            with torch.no_grad():
                self._feed(sample, sample.pending)
                if sample.clock is not None:
                    self._measure(sample, sample.pending)
                self._finish(sample, sample.pending)
            sample.charge("probe")
            self._clock = sample.clock
            self._note_cost()
        self.steps += 1

    def _measure(self, sample: Sample, pending: Seen) -> None:
        self.count, self.names = len(pending.values), pending.names
        names = pending.names or tuple(str(i) for i in range(self.count))
        sums = Sums(self.count, sum(x.d.numel() for x, _ in sample.directions))
        for piece in self._pieces(sample, pending):
            sums.add(piece)
        facts = make_row(sums, names, pending.values, pending.weights, pending.present)
        self._row = {"step": self.start + self.steps, **facts}
        self.rows.append(self._row)
        self._next = self.steps + self.every - (self.steps - self._first) % self.every

    def _pieces(self, sample: Sample, pending: Seen) -> Iterator[Piece]:
        groups = {p: group for group in self.inner.param_groups for p in group["params"]}
        rows = rows_by_param(sample, pending)
        used = self._metric(sample, pending)
        for x, beta in sample.directions:
            C, image, turned, eps = None, None, None, 0.0
            if used is not None:
                metric, measurement = used
                C, eps = metric.curvature(x, beta, measurement), metric.eps
                C = torch.zeros_like(x.d) if C is None else C
                image = metric.precondition(x, beta, measurement)
                if metric.basis is not None:
                    turned = torch.stack([metric.in_basis(x.block, row, measurement) for row in (x.d, image)])
            for param, part in x.block.parts():
                d = x.d[part]
                images: dict[str, Tensor] = {} if image is None else {"preference": image[part]}
                v = self._second_moment(param, groups[param])
                if v is not None:
                    v = v.reshape(-1)
                    images["adam"] = d / (v.sqrt() + float(groups[param].get("eps", 1e-8)))
                curvature = None if C is None else C[part]
                pair = None if turned is None else (turned[0, part], turned[1, part])
                before = sample.before[param]
                yield Piece(*rows[param], d, before, param, images, v, curvature, pair, 1.0 - beta, eps)

    def _note_cost(self) -> None:
        if self._row is not None and self._clock is not None:
            self._row["seconds"] = dict(self._clock.seconds)
            self._row["bytes"] = self._bytes()

    def _hand_over(self) -> None:
        row, self._row, self._clock = self._row, None, None
        if row is not None:
            self.sinks = [sink for sink in self.sinks if _takes(sink, copy.deepcopy(row))]


def _takes(sink: Sink, row: Row) -> bool:
    """Give a row to a sink; whether that worked. Training does not stop for a full disk."""
    try:
        sink(row)
    except Exception as error:
        text = f"the sink {sink!r} gets no more rows, since it raised {type(error).__name__}: {error}"
        warnings.warn(text, stacklevel=4)
        return False
    return True


def rows_by_param(sample: Sample, pending: Seen) -> RowsByParam:
    """The gradient of every objective that is known by itself, for each parameter: objectives and stacks of rows."""
    result: RowsByParam = {param: ((), ()) for param in pending.params}
    for param, objectives, stack in by_param(pending.rows):
        if objectives:
            known, stacks = result[param]
            result[param] = ((*known, *objectives), (*stacks, stack))
    for i, row in (sample.extra.rows if sample.extra is not None else {}).items():
        for param, g in zip(pending.params, row, strict=True):
            if g is not None:
                known, stacks = result[param]
                result[param] = ((*known, i), (*stacks, g.unsqueeze(0)))
    return result


def fork_rng(params: Sequence[Tensor]) -> AbstractContextManager[None]:
    """Whatever is drawn inside is not drawn from the run's generators."""
    devices = sorted({p.device.index for p in params if p.device.type == "cuda"})
    return torch.random.fork_rng(devices=devices)
