"""A probe on a MultiObjective optimizer, which tells it how far each step has come."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ..direction import Direction
from ..gradients import Block, Found, Layout, Losses, add_found
from ..metric import Measured, Metric, PreferenceMetric
from ..optimizer import MultiObjective, Step, second_moment_decay, trainable
from ._bytes import state_bytes
from ._probe import Clock, Probe, RowsByParam, Sample, Seen, rows_by_param


class WrappedProbe(Probe):
    """See :func:`attach`."""

    def __init__(
        self,
        opt: MultiObjective,
        every: int,
        sinks: Any,
        keep: int,
        start: int,
        exact: bool,
        shadow: PreferenceMetric | None,
    ) -> None:
        if shadow is not None:
            if opt.metric is not None or opt.options.max_norm is not None:
                raise ValueError("shadow is for an optimizer without a metric and without max_norm of its own")
            shadow.resolve(static=opt.solver.static, count=2)  # raises if it does not fit the solver
        super().__init__(opt.optimizer, every, sinks, keep, start)
        self.opt = opt
        self.exact = exact
        self.shadow = shadow
        self.moments: dict[Tensor, tuple[Tensor, int]] = {}  # the average of d^2, and the number of its updates
        self._draft: Found | None = None
        self._layout = Layout()  # of the shadow: each parameter by itself
        opt.run.probes = (*opt.run.probes, self)

    def close(self) -> None:
        super().close()
        self.opt.run.probes = tuple(probe for probe in self.opt.run.probes if probe is not self)

    def state_dict(self) -> dict[str, Any]:
        params = self._params()
        return {
            **super().state_dict(),
            "moments": {i: list(self.moments[p]) for i, p in enumerate(params) if p in self.moments},
            "shadow": None if self.shadow is None else self.shadow.state_dict(params),
            "count": self.count,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        params = self._params()
        if self.exact:
            self.moments = {params[i]: (v.to(params[i].device, copy=True), n) for i, (v, n) in state["moments"].items()}
        if self.shadow is not None and state["shadow"] is not None:
            static = self.opt.solver.static
            self.shadow.load_state_dict(state["shadow"], params, self._blocks()[1], state["count"], static=static)

    def _params(self) -> list[Tensor]:
        return [p for group in self.opt.param_groups for p in group["params"]]

    # What the optimizer tells: the begin of a backward, its passes, the end of each room, the direction, the step.

    def on_begin(self, before: Step | None) -> None:
        self._hand_over()
        if before is None:
            clock = Clock(trainable(self.opt.param_groups)[0].device) if self._due else None
            fed = self.exact or self.shadow is not None
            self._sample = Sample(clock) if clock is not None or fed else None
        elif self._sample is not None and (self._sample.pending is None or self._sample.pending.step is not before):
            self._sample = None  # micro-batches that the probe has not seen
        if self._sample is not None:
            self._sample.charge(None)

    def on_passes(self, batch: Losses, params: Sequence[Tensor], passes: Sequence[int], scale: float) -> None:
        """Differentiate what is wanted and not among the optimizer's own passes, before these free the graph."""
        sample = self._sample
        if sample is None:
            return
        if self.shadow is not None and sample.shadow is None:
            sample.shadow = self.shadow.measure(len(batch.values), static=self.opt.solver.static)
        sample.complete = sample.complete and batch.extra is None
        wanted: Sequence[int] = batch.present
        if sample.clock is None:
            wanted = () if sample.shadow is None else sample.shadow.needed(batch.present)
        missing = [i for i in wanted if i not in passes]
        self._draft = sample.extra
        if missing:
            found = self._differentiate(batch, params, missing, scale)
            self._draft = found if sample.extra is None else add_found(sample.extra, found)
        sample.charge("probe")

    def on_room(self, room: str) -> None:
        if self._sample is not None:
            self._sample.charge(room)

    def on_direction(self, after: Step) -> None:
        sample = self._sample
        if sample is None:
            return
        sample.charge("metric")
        assert after.weights is not None
        measurement = after.measurement if isinstance(self.opt.metric, PreferenceMetric) else None
        sample.pending = Seen(after.params, after.names, after.weights, after.collected, measurement, step=after)
        sample.directions, sample.extra = after.directions, self._draft
        if self.shadow is not None and self.shadow.beta is not None:
            sample.directions = [(x, self.shadow.beta) for x, _ in after.directions]
        if sample.clock is not None and not sample.before:
            sample.before = {p: p.detach().clone() for p in after.params}
        sample.charge("probe")

    def on_commit(self) -> None:
        if self._clock is not None:
            self._clock.charge("metric")  # its averages
            self._note_cost()

    # What the measurement asks for.

    def _is_taken(self, sample: Sample) -> bool:
        return sample.pending is not None and self.opt.run.pending is sample.pending.step

    def _feed(self, sample: Sample, pending: Seen) -> None:
        if self.exact:
            groups = {p: group for group in self.opt.param_groups for p in group["params"]}
            for param, d in ((p, x.d[part].view(p.shape)) for x, _ in sample.directions for p, part in x.block.parts()):
                if not self._keeps_moment(param, groups[param]):
                    continue
                beta = second_moment_decay(groups[param])
                v, n = self.moments.get(param, (torch.zeros_like(d), 0))
                self.moments[param] = (v.mul_(beta).addcmul_(d, d, value=1.0 - beta), n + 1)

        if self.shadow is None or sample.shadow is None:
            return
        rows, (blocks, layout) = rows_by_param(sample, pending), self._blocks()
        sample.directions = [
            (view, beta) for x, beta in sample.directions for view in self._views(x, rows, blocks, sample)
        ]
        views = [view for view, _ in sample.directions]
        sample.shadow = self.shadow.settle(sample.shadow, pending.weights.tolist(), pending.present, views, layout)

    def _blocks(self) -> tuple[dict[Tensor, Block], Layout]:
        """A block for each parameter, and the layout of them all."""
        blocks = {block.params[0]: block for block in self._layout.blocks}
        new = [Block((p,)) for p in self._params() if p not in blocks]
        if new:
            self._layout = Layout(blocks=(*self._layout.blocks, *new))
            blocks.update({block.params[0]: block for block in new})
        return blocks, self._layout

    def _keeps_moment(self, param: Tensor, group: dict[str, Any]) -> bool:
        """Whether the inner optimizer lacks the average of d^2: it sees d / M, or is not like Adam."""
        return self.opt.metric is not None or super()._second_moment(param, group) is None

    def _second_moment(self, param: Tensor, group: dict[str, Any]) -> Tensor | None:
        if not self._keeps_moment(param, group):
            return super()._second_moment(param, group)
        if param not in self.moments:
            return None
        v, n = self.moments[param]
        return v / (1.0 - second_moment_decay(group) ** n)

    def _metric(self, sample: Sample, pending: Seen) -> tuple[PreferenceMetric, Measured] | None:
        if isinstance(self.opt.metric, PreferenceMetric) and pending.measurement is not None:
            return self.opt.metric, pending.measurement
        if self.shadow is not None and sample.shadow is not None:
            return self.shadow, sample.shadow
        return None

    def _views(
        self, x: Direction, rows: RowsByParam, blocks: Mapping[Tensor, Block], sample: Sample
    ) -> Iterable[Direction]:
        """The direction as the shadow sees it, parameter by parameter."""
        assert self.shadow is not None
        for param, part in x.block.parts():
            keys, stacks = rows[param]
            d = x.d[part].to(self.shadow.compute_dtype(param))
            if not stacks:  # a step that is not measured, and averages that take d alone
                yield Direction(blocks[param], d, x.weights, (), d.new_empty(0, len(d)), complete=False)
                continue
            # Complete wherever that matters: a measured step has every row, and an update of the averages does not ask.
            stack = torch.cat(stacks).to(d.dtype).reshape(len(keys), len(d))
            mask = None if x.mask is None else x.mask[:, part]
            yield Direction(blocks[param], d, x.weights, keys, stack, complete=sample.complete, mask=mask)

    def _finish(self, sample: Sample, pending: Seen) -> None:
        if self.shadow is not None and sample.shadow is not None:
            self.shadow.commit(sample.shadow, sample.directions, pending.weights.tolist(), pending.present)

    def _bytes(self) -> dict[str, int]:
        solver = self.opt.solver
        return {
            **super()._bytes(),
            "averages": _average_bytes(self.opt.metric),
            "solver": state_bytes([*solver.parameters(), *solver.buffers()]),
            "probe": state_bytes([v for v, _ in self.moments.values()]) + _average_bytes(self.shadow),
        }


def _average_bytes(metric: Metric | None) -> int:
    return state_bytes([a.tensors() for a in metric.averages]) if isinstance(metric, PreferenceMetric) else 0
