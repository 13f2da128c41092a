"""Room five: where the rooms meet. Computes in ``backward``, keeps what it computed in ``step``."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor
from torch.optim import Optimizer

from .. import solvers
from ..gradients import (
    Batch,
    Exchange,
    FeaturesT,
    LossesT,
    allow_several_backward_passes,
    foreign,
    full_precision,
    read_counts,
    read_losses,
    read_scale,
    used_up,
)
from ..metric import Metric
from ..solvers import Solver
from ._chain import Chain
from ._checkpoint import load_state, save_state
from ._guards import check_engine, check_gram_of_features, claim, warn_of_coupled_decay
from ._inputs import read_features, read_objectives, read_preference
from ._options import OptionArguments, Options
from ._run import RunState
from ._step import NotFinite, Rooms, Step, trainable
from ._wrapper import Wrapper, evaluates_again

if TYPE_CHECKING:
    from typing_extensions import Unpack


class MultiObjective(Wrapper):
    """Trains on several objectives with any torch optimizer.

    ``backward(losses)`` differentiates the losses, lets the solver weigh them, divides the direction by the metric and
    writes the result to ``.grad``; ``step()`` is the inner optimizer's. In between, clip, log or unscale as usual.
    Several ``backward`` before one ``step`` accumulate: losses and gradients are summed, ``.grad`` is overwritten.
    Solver, averages and generators change in ``step`` only, so a step that is not taken leaves no trace. A step that
    ``backward`` refused does nothing; without a ``backward``, ``step`` is the inner optimizer's.

    ``state_dict()`` is the inner optimizer's, and under ``"multi_objective"`` all else that the next step needs. One
    that does not fit is refused whole, with the reason. Options of solver, metric and optimizer have to be those that
    it was made with, for its averages and weights depend on them; to go on with others on purpose, delete
    ``state_dict["multi_objective"]["options"]``.

    Args:
        optimizer: the optimizer that moves the parameters; its ``param_groups`` are this one's too. Or several, over
            disjoint parameters, which then are one :class:`Chain`: ``[Muon(matrices), AdamW(rest)]``.
        solver: weighs the objectives; :class:`~madamoo.solvers.LS` if None. A name with options works too:
            ``"cagrad:c=0.2"``.
        metric: divides the direction; None leaves it as it is (the baseline).
        objectives: names of all objectives, for dictionaries of losses whose first batch may lack some.
        shared: the parameters that several objectives share, or a module that holds them; the others are heads. If
            None, a parameter is a head as long as one objective only has reached it.
        head_weights: ``"auto"``: a gradient-balancing solver weighs the shared parameters, and heads follow their own
            objective with weight 1; every other solver's weights hold for all parameters. ``"lambda"``: the solver's
            weights hold for all parameters, whatever the solver.
        max_norm: clip the norm of the direction to this before the metric sees it.
        rows: ``"needed"``: differentiate objectives one by one only where solver or metric need it. ``"all"``: always,
            which makes accumulation exact for solvers whose weights depend on the losses of the step.
        gram: of which gradients the solver's Gram matrix is made. ``"parameters"``: those of the shared parameters.
            ``"features"``: those of the tensors where trunk and heads meet, given to :meth:`backward`. That is an
            approximation, the upper bound of `Sener and Koltun <https://arxiv.org/abs/1810.04650>`_, and takes one pass
            through the trunk whatever the number of objectives. There are no rows of the trunk then, so the metric has
            to be None or ``PreferenceMetric("marginal")``.
        process_group: the processes that train the model together, as replicas (DDP) or with shards of it
            (``fully_shard``); all of them, where torch.distributed has started, if None.

    Example:
        >>> from madamoo import MultiObjective, PreferenceMetric
        >>> model = torch.nn.Linear(3, 2)
        >>> inner = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
        >>> opt = MultiObjective(inner, solver="ls", metric=PreferenceMetric())
        >>> y = model(torch.ones(4, 3))
        >>> opt.backward({"small": y[:, 0].square().mean(), "one": (y[:, 1] - 1).square().mean()})
        >>> opt.step()
        >>> opt.weights_by_name
        {'small': 0.5, 'one': 0.5}
    """

    optimizer: Optimizer
    solver: Solver
    metric: Metric | None
    options: Options
    run: RunState

    def __init__(
        self,
        optimizer: Optimizer | Sequence[Optimizer],
        solver: Solver | str | None = None,
        metric: Metric | None = None,
        **options: Unpack[OptionArguments],
    ) -> None:
        if isinstance(optimizer, Sequence):
            optimizer = Chain(optimizer)
        if not isinstance(optimizer, Optimizer) or isinstance(optimizer, MultiObjective):
            raise TypeError(f"optimizer must be a torch optimizer, got {type(optimizer).__name__}")
        solver = solvers.get(solver) if isinstance(solver, str) else solvers.LS() if solver is None else solver
        if not isinstance(solver, Solver):
            raise TypeError(f"solver must be a madamoo.solvers.Solver or its name, got {type(solver).__name__}")
        if metric is not None and not isinstance(metric, Metric):
            raise TypeError(f"metric must be a madamoo.PreferenceMetric, got {type(metric).__name__}")
        chosen = Options.read(options, optimizer)
        averages_need_rows = metric is not None and metric.needs_rows(static=solver.static)
        if chosen.gram == "features":
            check_gram_of_features(solver, metric if averages_need_rows else None, chosen)
        if evaluates_again(optimizer) and (metric is not None or not solver.static):
            raise ValueError(
                f"{type(optimizer).__name__} evaluates its closure several times per step; that needs metric=None and "
                f"a static solver, got {type(solver).__name__} and {metric!r}"
            )
        if metric is not None:
            warn_of_coupled_decay(optimizer)
        names = chosen.objectives
        run = RunState(
            count=None if names is None else len(names),
            names=names,
            ordered=names is not None,
            exchange=Exchange(chosen.process_group),
        )
        super().__init__(optimizer=optimizer, solver=solver, metric=metric, options=chosen, run=run)
        if solver.needs_rows or chosen.rows == "all" or averages_need_rows:
            allow_several_backward_passes()

    def __getattr__(self, name: str) -> Any:
        """The options, by name."""
        if name in _OPTIONS:
            return getattr(self.options, name)
        raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        """An option that is changed later would be changed in vain."""
        if name in _OPTIONS:
            raise AttributeError(
                f"{name} is chosen when the optimizer is built: {type(self).__name__}(..., {name}=...)"
            )
        super().__setattr__(name, value)

    # The groups are the inner optimizer's own list, and its load_state_dict rebinds it: so look it up each time.
    @property
    def param_groups(self) -> list[dict[str, Any]]:  # type: ignore[override]
        return self.optimizer.param_groups

    @property
    def state(self) -> Any:  # type: ignore[override]
        return self.optimizer.state

    @property
    def defaults(self) -> dict[str, Any]:  # type: ignore[override]
        return self.optimizer.defaults

    @property
    def weights(self) -> Tensor | None:
        """The weights lambda [C] of the last ``backward``."""
        return self.run.weights

    @property
    def objectives(self) -> tuple[str, ...] | None:
        """The names of the objectives, if the losses came as a dictionary."""
        pending = self.run.pending
        return self.run.names if pending is None else pending.names

    @property
    def weights_by_name(self) -> dict[str, float]:
        """The weights of the last ``backward``, by the names of the objectives (or their numbers)."""
        return self._by_name(self.run.weights)

    @property
    def losses_by_name(self) -> dict[str, float]:
        """The losses of the last ``backward``, summed over micro-batches; NaN for one that it lacked."""
        return self._by_name(self.run.losses)

    def _by_name(self, vector: Tensor | None) -> dict[str, float]:
        values = [] if vector is None else vector.tolist()
        return dict(zip(self.objectives or map(str, range(len(values))), values, strict=False))

    @property
    def skipped(self) -> int:
        """How many steps were refused because a loss or a gradient was not finite."""
        return self.run.skipped

    def backward(
        self,
        losses: LossesT,
        preference: Sequence[float] | Mapping[str, float] | Tensor | None = None,
        retain_graph: bool = False,
        scaler: torch.amp.GradScaler | None = None,
        features: FeaturesT | None = None,
        *,
        extra: Tensor | None = None,
        counts: Sequence[float] | Mapping[str, float] | Tensor | None = None,
    ) -> None:
        """Differentiate the losses, weigh them, apply the metric, and write the result to ``.grad``.

        Args:
            losses: a 1-D tensor, a sequence or a dict of scalar tensors. An objective that the batch has no labels for
                is left out of the dict, or None; its weight is 0 and its averages rest.
            preference: the preference vector of this step, for solvers that use one.
            retain_graph: keep the graph, as in :meth:`torch.Tensor.backward`.
            scaler: a GradScaler: pass the losses as they are, then call ``scaler.step(opt)`` and ``scaler.update()``.
            features: with ``gram="features"``, the tensor or tensors where trunk and heads meet.
            extra: a scalar that is no objective, a penalty for one: its gradient joins d, with weight 1, before the
                metric.
            counts: the number of samples behind each loss, where processes that train together have different ones:
                the loss of an objective is then the mean over all samples. Without it, it is the mean over the
                processes that have the objective in their batch.
        """
        run = self.run
        if isinstance(preference, Tensor) and preference.requires_grad:
            raise TypeError("backward takes all losses together: backward([loss_1, loss_2]), not backward(l1, l2)")
        params = trainable(self.param_groups)
        before = self._before(params)
        names, count = (run.names, run.count) if before is None else (before.names, len(before.values))

        def read(names: tuple[str, ...] | None) -> Batch:
            read = read_objectives(losses, names, count, extra, scaler, run.once)
            vector = read_preference(preference, self.solver, read, before)
            return Batch(read, read_counts(counts, read), vector)

        check_engine(self.optimizer, self.options, params, run.exchange.processes.count)
        agreed = run.exchange.losses(read, (names, count), params, self._settings)
        batch, vector = agreed.losses, agreed.preference
        claim(self.solver, run)
        if self.metric is not None:
            claim(self.metric, run)
        if batch.names is not None:
            self.solver.name_objectives(batch.names, run.ordered)
        if before is not None and before.failed:
            return
        cut = read_features(features, self.options, batch, before, params)
        scale = read_scale(scaler, params[0].device)
        with torch.no_grad(), full_precision(params[0].device):
            step = Step.begin(self._rooms(), before, batch, vector, params, run.layout)
            try:
                step.advance(batch, scale, retain_graph, cut, hold=run.holds)
            except NotFinite:
                self._refuse(step, scaler)
        run.pending = step
        run.losses = step.values
        if step.weights is not None:
            run.weights = batch.like_losses(step.weights)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Within it, ``backward`` gathers gradients and sends none: for all micro-batches of a step but the last.

        As DistributedDataParallel's: the last ``backward`` before ``step()`` comes outside, sends the sum to the other
        processes and writes ``.grad``. Losses are exchanged all the same, since a step that is not finite in one
        process is skipped in all. Parameters that ``fully_shard`` has divided are reduced in every backward pass.
        """
        before, self.run.holds = self.run.holds, True
        try:
            yield
        finally:
            self.run.holds = before

    def _settings(self) -> dict[str, Any]:
        """What all processes of a run must have alike."""
        return {
            "options": self.options.saved(),
            "solver": repr(self.solver),
            "metric": None if self.metric is None else self.metric.options(),
            "optimizer": type(self.optimizer).__name__,
        }

    def _rooms(self) -> Rooms:
        run = self.run
        return Rooms(self.solver, self.metric, self.options, self.param_groups, run.exchange, run.tell)

    def _before(self, params: list[Tensor]) -> Step | None:
        """The micro-batches before this one; gradients from elsewhere are not lost in silence."""
        pending = self.run.pending
        if pending is not None and pending.written.was_cleared(params):
            self._drop_pending()
            pending = None
        if pending is not None and [*map(id, pending.params)] != [*map(id, params)]:
            raise ValueError("the trainable parameters changed within a step: call zero_grad() first")
        gradients = [p.grad for p in params if p.grad is not None]
        if pending is None or not pending.written.begun:
            lost = foreign(params)
        else:
            lost = not pending.failed and pending.written.was_touched(gradients)
        if lost and self.run.once("foreign gradients"):
            warnings.warn(
                "the gradients that are in .grad before opt.backward(losses) are overwritten: give what they are of as "
                "one more objective, or as opt.backward(losses, extra=penalty)",
                stacklevel=3,
            )
        return pending

    def _refuse(self, step: Step, scaler: torch.amp.GradScaler | None) -> None:
        """A loss, a gradient or a weight is not finite: no step."""
        scaled = scaler is not None and scaler.is_enabled()
        self.run.skipped += 1
        step.refuse(scaled)
        if not scaled and self.run.once("skipped"):
            warnings.warn(
                "a loss, a gradient or a weight is not finite, or too large to square: such steps are skipped, and "
                "opt.skipped counts them",
                stacklevel=3,
            )

    def _step(self, closure: Callable[[], Any] | None = None) -> Any:
        if evaluates_again(self.optimizer):
            if closure is None:
                raise TypeError(
                    f"{type(self.optimizer).__name__} evaluates the losses several times per step: "
                    "opt.step(closure), where the closure calls opt.zero_grad() and opt.backward(losses)"
                )
            result = cast(Any, self.optimizer.step)(closure)
            self._commit()
            return result
        result = None
        if closure is not None:
            with torch.enable_grad():
                result = closure()
        pending = self.run.pending
        if pending is not None and pending.failed:
            self._drop_pending()
            return result
        if pending is not None and pending.collected.unsent is not None:
            raise RuntimeError(
                "step() after a backward() in no_sync(): the last backward() of a step comes outside of it, and brings "
                "the gradients of all processes together"
            )
        if pending is not None and pending.written.was_cleared(pending.params):
            self._drop_pending()
        elif pending is None and foreign(self._all_params()):
            self._warn_of_plain_backward()
        self.optimizer.step()
        self._commit()
        return result

    def _warn_of_plain_backward(self) -> None:
        if self.run.once("plain backward"):
            warnings.warn(
                f"step() without opt.backward(losses): this is plain {type(self.optimizer).__name__}, on gradients "
                "from elsewhere. Replace `loss.backward()` by `opt.backward([loss_1, loss_2, ...])`; where a framework "
                "calls it for you, see madamoo.integrations",
                stacklevel=4,
            )

    def observe(self, losses: LossesT, *, counts: Sequence[float] | Mapping[str, float] | Tensor | None = None) -> None:
        """Show the solver the losses of the same batch after the step; some (FAMO) learn from the change.

        They need no graph: compute them under ``torch.no_grad()``. Objectives may be missing as in :meth:`backward`.
        """
        if self.run.pending is not None:
            raise RuntimeError("observe(losses) comes after step(): a backward() is still waiting for its step")

        def read(names: tuple[str, ...] | None) -> Batch:
            read = read_losses(losses, names, self.run.count, graph=False)
            return Batch(read, read_counts(counts, read))

        batch = self.run.exchange.losses(read, (self.run.names, self.run.count), (), dict).losses
        self.solver.ensure(len(batch.values))
        self.solver.observe(batch.values)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients, and forget every ``backward`` since the last step."""
        self._drop_pending()
        self.optimizer.zero_grad(set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        self.optimizer.add_param_group(param_group)

    def _save(self) -> dict[str, Any]:
        return save_state(self)

    def _load(self, state_dict: dict[str, Any]) -> None:
        load_state(self, state_dict)

    def __getstate__(self) -> dict[str, Any]:
        names = ("optimizer", "solver", "metric", "options")
        return {**{name: self.__dict__[name] for name in names}, "run": replace(self.run, pending=None, probes=())}

    def __repr__(self) -> str:
        return f"{type(self).__name__}(solver={self.solver!r}, metric={self.metric!r}, optimizer={self.optimizer!r})"

    def _all_params(self) -> Iterator[Tensor]:
        return (p for group in self.param_groups for p in group["params"])

    def _drop_pending(self) -> None:
        self.run.pending = None
        self.solver.forget()

    def _commit(self) -> None:
        """The step is taken: what was pending becomes part of the run."""
        pending = self.run.pending
        self._drop_pending()
        used_up(self._all_params())
        if pending is not None and not pending.failed:
            self.run.commit(pending)


_OPTIONS = frozenset(f.name for f in fields(Options))
