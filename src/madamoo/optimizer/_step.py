"""One step in the making, on its way through the rooms: losses, rows, weights, direction, metric, ``.grad``."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ..direction import Direction, clip_factor, combine
from ..gradients import (
    Block,
    Collected,
    Collector,
    Cut,
    Exchange,
    Found,
    HeadRows,
    Layout,
    Losses,
    Rows,
    Written,
    differentiate,
    differentiate_heads,
    differentiate_trunk,
    full_precision,
    gram_matrix,
    is_divided,
    join_sides,
    largest_entry,
    row_statistics,
)
from ..metric import Metric
from ..solvers import Solver
from ._options import Options


class NotFinite(Exception):
    """A loss, a gradient or a weight is not finite, or too large to square: the step is not taken."""


@dataclass(frozen=True)
class Rooms:
    """What a step passes through; none of it changes before the step is taken."""

    solver: Solver
    metric: Metric | None
    options: Options
    groups: list[dict[str, Any]]
    exchange: Exchange
    tell: Callable[..., None]  # tells the probes how far the step has come

    @property
    def solver_looks(self) -> bool:
        """Whether the solver looks at the gradients in this step before it weighs the objectives."""
        return self.solver.wants_rows and (self.solver.needs_gram or bool(self.solver.row_statistics))

    def keeps_every_row(self, measurement: Any) -> bool:
        """Whether every objective has a row of its own until the step, so that lambda may still change."""
        wanted = measurement is not None and measurement.every_row
        return wanted or self.solver.wants_rows or self.options.rows == "all"

    def beta(self, x: Direction) -> float:
        """The decay of the averages of a block."""
        given = None if self.metric is None else self.metric.beta
        return self._decays[x.block.params[0]] if given is None else given

    @cached_property
    def _decays(self) -> dict[Tensor, float]:
        """By parameter: a group that is added to the first of several optimizers moves the numbers of the others'."""
        return {p: second_moment_decay(group) for group in self.groups for p in group["params"]}


@dataclass
class Step:
    """What ``backward`` has computed since the last step. It becomes part of the run by ``commit``, or never."""

    rooms: Rooms
    params: list[Tensor]
    names: tuple[str, ...] | None
    preference: Tensor | None
    measurement: Any
    collected: Collected
    before: tuple[tuple[int, ...], Tensor] | None = None  # objectives and weights of the micro-batches before
    solver: Solver | None = None  # the solver as it will be after the step
    weights: Tensor | None = None
    directions: list[tuple[Direction, float]] = field(default_factory=list)  # each with its beta
    written: Written = field(default_factory=Written)
    failed: bool = False

    @classmethod
    def begin(
        cls,
        rooms: Rooms,
        before: Step | None,
        batch: Losses,
        preference: Tensor | None,
        params: list[Tensor],
        layout: Layout,
    ) -> Step:
        """A step with the losses of one more batch; ``before`` stays as it is."""
        rooms.tell("begin", before)
        if before is not None:
            measurement = before.measurement
        else:  # later micro-batches may hold what this one lacks, so it is of all objectives
            count, static = len(batch.roots), rooms.solver.static
            rows = rooms.solver.needs_rows or rooms.options.rows == "all"
            measurement = None if rooms.metric is None else rooms.metric.measure(count, static=static, rows=rows)
        step = cls(rooms, params, batch.names, preference, measurement, Collected(batch.values, batch.present, layout))
        if any(map(is_divided, params)):
            step.written.among = rooms.exchange.processes
        step.collected = step._collector().open(None if before is None else before.collected, batch, layout)
        if before is not None and before.weights is not None:
            step.before = before.present, before.weights
        return step

    @property
    def values(self) -> Tensor:
        """The losses [C], summed over micro-batches; NaN where an objective is missing from all of them."""
        return self.collected.values

    @property
    def present(self) -> tuple[int, ...]:
        return self.collected.present

    @property
    def rows(self) -> tuple[Rows, ...]:
        return self.collected.rows

    @cached_property
    def limit(self) -> float:
        """The largest gradient entry that can be handled: with a metric, one whose square is finite."""
        metric, each = self.rooms.metric, {p.dtype: p for p in sorted(self.params, key=Tensor.numel)}  # the largest
        if metric is None:
            return max(torch.finfo(dtype).max for dtype in each)
        return min(map(metric.largest_gradient, each.values()))

    @cached_property
    def largest_weight(self) -> float:
        """The largest weight that the precision of the direction holds."""
        return min(
            torch.finfo(torch.promote_types(dtype, torch.float32)).max for dtype in {p.dtype for p in self.params}
        )

    def advance(self, batch: Losses, scale: float, retain_graph: bool, cut: Cut | None, *, hold: bool = False) -> None:
        """Through all rooms; what is not finite ends the step on the way. With ``hold``, no further than the first."""
        if not self.collected.finite:
            raise NotFinite
        if cut is not None:
            self._collect_at_features(batch, cut, scale, retain_graph)
        elif self.rooms.solver_looks:
            self.collect(batch, scale, retain_graph, hold)
        else:
            self.solve()
            self.collect(batch, scale, retain_graph, hold)
        if hold:
            return
        self.rooms.exchange.meet(self._decide, 0, torch.uint8)
        self.precondition(scale)

    def _decide(self) -> tuple[None, Tensor]:
        """All that may still fail: once every process is through, none of them will."""
        if self.weights is None:
            self.solve()
        self.direct()
        self.settle()
        return None, torch.empty(0, dtype=torch.uint8)

    # Room one.

    def _collector(self) -> Collector:
        options, groups = self.rooms.options, self.rooms.groups
        together = not self.rooms.solver.per_coordinate
        if self.measurement is not None:
            together = together and self.measurement.heads_together

        def group_of(param: Tensor) -> int:
            return next(g for g, group in enumerate(groups) if any(param is p for p in group["params"]))

        return Collector(self.params, group_of, options.shared or (), together)

    def collect(self, batch: Losses, scale: float, retain_graph: bool, hold: bool = False) -> None:
        """The gradients of one more batch: a pass for each row that is needed, one for the sum of the rest."""
        rooms = self.rooms
        needed: Sequence[int] = batch.present
        if not (rooms.keeps_every_row(self.measurement) or self._heads_weigh_one):
            needed = () if self.measurement is None else self.measurement.needed(batch.present)
            self._check_same_weights()
        rest = None
        if len(needed) < len(batch.present):
            assert self.weights is not None
            weights = self.weights.tolist()
            rest = {i: weights[i] for i in batch.here if i not in needed}
        here = [i for i in needed if i in batch.here]
        rooms.tell("passes", batch, self.params, here, scale)

        def differentiated() -> Found:
            found = differentiate(batch, self.params, here, rest, scale=scale, retain_graph=retain_graph)
            if (here or rest) and not found.reached() and not any(g is not None for g in found.rest or ()):
                raise ValueError("no loss reaches a parameter of the optimizer: was it built on another model?")
            return found

        reached = self._take(batch, differentiated, hold)
        for i in set(here) - reached:  # it looks like one that has converged; a solver would take it for that
            warnings.warn(f"loss {batch.label(i)} reaches no parameter of the optimizer", stacklevel=4)
        if not (rooms.solver_looks or hold):
            largest = largest_entry(self.rows, self.limit)
            self._check([largest] * len(self.values))

    def _take(self, batch: Losses, differentiated: Callable[[], Found], hold: bool = False) -> set[int]:
        """Add what is found; from here on, rows, losses and presence are those of the whole step, in all processes.

        With ``hold``, other processes see it with a later micro-batch. Returns the objectives that were found.
        """
        exchange, count = self.rooms.exchange, len(self.values)
        missing, alone = len(self.present) < count, exchange.processes.count == 1
        size = 0 if hold or alone else (count + 1) * len(self.params)

        def find() -> tuple[tuple[set[int], Collected], Tensor]:
            found, opaque = differentiated(), False
            if found.rows or missing:  # one loss alone does not show that it was picked from a vector: doubt is opaque
                opaque = batch.is_opaque() or len(batch.here) == 1 < count
            else:
                batch.check_graph()
            reached, kept = found.reached(), self.collected.keep(found, opaque)
            assert kept.unsent is not None
            if not size:
                return (reached, kept), torch.empty(0, dtype=torch.uint8)
            zeros = kept.opaque and bool(kept.unsent.rows or missing)
            return (reached, kept), kept.unsent.signs(count, len(self.params), opaque=zeros)

        (reached, kept), told = exchange.meet(find, size, torch.uint8)
        self.collected = kept
        if not hold:
            assert kept.unsent is not None
            signs = None if alone else told.view(count + 1, len(self.params))
            self.collected = self._collector().add(
                kept, kept.unsent, opaque=kept.opaque, missing=missing, signs=signs, send=exchange.rows
            )
        self.rooms.tell("room", "gradients")
        return reached

    def _collect_at_features(self, batch: Losses, cut: Cut, scale: float, retain_graph: bool) -> None:
        """The same with the Gram matrix of the features: one pass per head, and one through the trunk."""
        rooms = self.rooms
        rooms.tell("passes", batch, self.params, (), scale)
        processes, count = rooms.exchange.processes, len(self.values)

        def find() -> tuple[tuple[list[Rows], Found], Tensor]:
            found = differentiate_heads(batch, cut, scale=scale, retain_graph=retain_graph)
            return found, gram_matrix(found[0], count).flatten()

        # Each process has features of other samples: parts of rows, of a mean over the processes.
        (features, heads), gram = rooms.exchange.meet(find, count * count, torch.float64)
        gram = gram.view(count, count) / processes.count**2
        if not bool(torch.isfinite(gram).all()):
            raise NotFinite
        rooms.tell("room", "gradients")
        self._solve(gram)
        assert self.weights is not None
        weights = self.weights.tolist()

        def joined() -> Found:
            trunk = differentiate_trunk(batch, cut, features, weights, scale=scale, retain_graph=retain_graph)
            return join_sides(cut, heads, trunk, self.params)

        self._take(batch, joined)
        self._check([largest_entry(self.rows, self.limit)] * len(weights))

    def _check_same_weights(self) -> None:
        if self.before is None or self.weights is None:
            return
        known, weights = list(self.before[0]), self.before[1]
        if not torch.equal(weights[known], self.weights[known]):
            raise ValueError(
                f"{type(self.rooms.solver).__name__} gave other weights for a later micro-batch of the same step, "
                "after the earlier one was differentiated with the old ones: build the optimizer with rows='all' to "
                "keep the gradient of every objective until the step"
            )

    # Room two.

    def solve(self) -> None:
        """lambda, from the losses and, where the solver wants it, what it asks of the gradients."""
        solver = self.rooms.solver
        if not self.rooms.solver_looks:
            self._solve(None)
            return
        limit, rows = self.limit, self.rows
        everywhere = solver.family == "preference"  # its weights hold for heads too, so heads count
        weighed = [r for r in rows if everywhere or self._follows_lambda(r.block)]
        # What the Gram matrix does not show: an extra term has no part in it.
        others = [r for r in rows if r.has_rest or not (everywhere or self._follows_lambda(r.block))]
        gram = gram_matrix(weighed, len(self.values))
        # No entry is larger than these: that spares a look at every row.
        sizes = gram.diagonal().clamp_min(0).sqrt().tolist()
        fits = all(size <= limit for size in sizes) or largest_entry(weighed, limit) <= limit
        if not (fits and largest_entry(others, limit) <= limit):
            raise NotFinite
        self.rooms.tell("room", "gradients")
        statistics = None
        if solver.row_statistics:
            statistics = row_statistics(weighed, solver.row_statistics, len(self.values))
        self._solve(gram if solver.needs_gram else None, statistics)
        self._check(sizes)

    def _solve(self, gram: Tensor | None, statistics: Mapping[str, Tensor] | None = None) -> None:
        """From a copy of the solver where the call would change it."""
        solver = copy.deepcopy(self.rooms.solver) if self.rooms.solver.has_state else self.rooms.solver
        self.weights = solver.solve(self.values, gram, self.preference, self.present, statistics)
        self.solver = solver
        self.rooms.tell("room", "solver")

    def _check(self, sizes: Sequence[float]) -> None:
        """Refuse weights with which an entry of d may be larger than the precision allows, or that it cannot hold."""
        assert self.weights is not None
        weights = [abs(w) for w in self.weights.tolist()]
        largest = sum(w * size for w, size in zip(weights, sizes, strict=True))
        if not (largest <= self.limit and max(weights) <= self.largest_weight):  # NaN compares false
            raise NotFinite

    # Room three.

    @property
    def _heads_weigh_one(self) -> bool:
        """Whether some parameters do not follow a solver that looks at gradients now and then: a sum would."""
        blocks = self.collected.layout.blocks
        return self.rooms.solver.family == "gradient" and not all(map(self._follows_lambda, blocks))

    def _follows_lambda(self, block: Block) -> bool:
        """Whether a gradient-balancing solver's weights hold for a block; else it follows its own objective."""
        options = self.rooms.options
        if options.head_weights == "lambda" or len(self.values) == 1:
            return True
        if options.shared is not None:
            return block.params[0] in options.shared
        return not block.owners

    def direct(self) -> None:
        """d = sum_i lambda_i g_i, block by block, clipped if asked for."""
        assert self.weights is not None and self.solver is not None
        solver, metric = self.solver, self.rooms.metric
        weights = self.weights.tolist()
        ones = [float(i in self.present) for i in range(len(weights))]
        directions: list[Direction] = []
        for rows in self.rows:
            follows = solver.family != "gradient" or self._follows_lambda(rows.block)
            dtype = torch.promote_types(rows.stack.dtype, torch.float32)
            dtype = dtype if metric is None else metric.compute_dtype(rows.block.params[0])
            mask = None
            if solver.per_coordinate and follows:
                single = rows.stack if isinstance(rows, HeadRows) else rows.single
                objectives = rows.block.owners[:1] if isinstance(rows, HeadRows) else rows.objectives
                mask = rows.block.own(solver.masks(rows.block.among_zeros(single.to(dtype)), objectives))
            directions.append(combine(rows, weights if follows else ones, dtype, mask))
        # Rarely more than one look.
        here = any(bool(x.d[:64].any()) or bool(x.d.any()) for x in directions)
        self.written.vanishes = not self.written.among.any(here)
        factor = clip_factor(directions, self.rooms.options.max_norm)
        if factor < 1.0:
            directions = [x.scaled(factor) for x in directions]
        self.directions = [(x, self.rooms.beta(x)) for x in directions]

    # Room four.

    def settle(self) -> None:
        """What the metric will do with d; it may find that it has not the memory."""
        assert self.weights is not None
        metric = self.rooms.metric
        if metric is not None:
            self.measurement = metric.settle(
                self.measurement,
                self.weights.tolist(),
                self.present,
                [x for x, _ in self.directions],
                self.collected.layout,
            )

    def precondition(self, scale: float) -> None:
        """d / M, multiplied by a GradScaler's ``scale``, to ``.grad``."""
        metric = self.rooms.metric
        results: list[tuple[Tensor, Tensor]] = []
        for x, beta in self.directions:
            out = x.d if metric is None else metric.precondition(x, beta, self.measurement)
            out = out if scale == 1.0 else out * scale
            if not x.block.holds(out):
                raise NotFinite
            results.extend(zip(x.block.params, x.block.unflatten(out), strict=True))
        for group in self.rooms.groups:
            for param in group["params"]:  # also where a parameter is not reached, or was frozen since
                param.grad = None
        for param, gradient in results:
            self.written.write(param, gradient)
        self.rooms.tell("direction", self)
        if metric is None:
            self.directions = []  # nothing of them is needed in the step: let the rows go

    def refuse(self, scaled: bool) -> None:
        """The step is not taken; a scaler sees that by infinite gradients."""
        self.failed = True
        self.directions, self.solver = [], None
        self.collected = replace(self.collected, rows=(), finite=False)
        for param in self.params:
            self.written.write(param, torch.full_like(param, torch.inf if scaled else 0.0))

    # Room five, once the optimizer has moved the parameters.

    def commit(self) -> None:
        """The step is taken: solver and metric keep what it has changed."""
        rooms = self.rooms
        assert self.weights is not None
        if self.solver is not None and self.solver is not rooms.solver:
            rooms.solver.load_state_dict(self.solver.state_dict())
        if rooms.metric is not None:
            with torch.no_grad(), full_precision(self.params[0].device):
                rooms.metric.commit(self.measurement, self.directions, self.weights.tolist(), self.present)


def second_moment_decay(group: Mapping[str, Any]) -> float:
    """The decay of an optimizer's second moment; Adam's usual one, if it has none."""
    return float(group.get("betas", (0.9, 0.999))[1])


def trainable(groups: Sequence[Mapping[str, Any]]) -> list[Tensor]:
    """The parameters that require a gradient."""
    params = [p for group in groups for p in group["params"] if p.requires_grad]
    if not params:
        raise ValueError("no parameter of the optimizer requires a gradient")
    if any(p.is_complex() for p in params):
        raise TypeError("complex parameters are not supported: train their torch.view_as_real")
    return params
