"""Room five: where the rooms meet. Computes in ``backward``, keeps what it computed in ``step``."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from .. import solvers
from ..gradients import FeaturesT, LossesT, are_same, check_names, cut_at, read_losses
from ..metric import PreferenceMetric
from ..solvers import Solver
from ._backward import advance, full_precision, read_preference, read_scale, refuse, trainable, was_cleared, write
from ._checkpoint import load_state, save_state
from ._run import Run


class MultiObjective(Optimizer):
    """Trains on several objectives with any torch optimizer.

    ``backward(losses)`` differentiates the losses, lets the solver weigh them, divides the direction by the metric and
    writes the result to ``.grad``; ``step()`` is the inner optimizer's. In between, clip, log or unscale as usual.
    Several ``backward`` before one ``step`` accumulate: losses and gradients are summed, ``.grad`` is written anew.
    Solver, averages and generators change in ``step`` only, so a step that is not taken leaves no trace.

    Args:
        optimizer: the optimizer that moves the parameters; its ``param_groups`` are this one's too.
        solver: weighs the objectives; :class:`~madamoo.solvers.LS` if None.
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
    """

    _step_supports_amp_scaling = False  # a GradScaler divides .grad before step(), as for any optimizer

    optimizer: Optimizer
    solver: Solver
    metric: PreferenceMetric | None
    shared: set[Tensor] | None
    head_weights: str
    max_norm: float | None
    rows: str
    gram: str = "parameters"  # also of what was pickled before there was a choice
    run: Run

    def __init__(
        self,
        optimizer: Optimizer,
        solver: Solver | None = None,
        metric: PreferenceMetric | None = None,
        *,
        objectives: Sequence[str] | None = None,
        shared: nn.Module | Iterable[Tensor] | None = None,
        head_weights: str = "auto",
        max_norm: float | None = None,
        rows: str = "needed",
        gram: str = "parameters",
    ) -> None:
        if not isinstance(optimizer, Optimizer) or isinstance(optimizer, MultiObjective):
            raise TypeError(f"optimizer must be a torch optimizer, got {type(optimizer).__name__}")
        if solver is not None and not isinstance(solver, Solver):
            raise TypeError(f"solver must be a madamoo.solvers.Solver, got {type(solver).__name__}")
        if metric is not None and not isinstance(metric, PreferenceMetric):
            raise TypeError(f"metric must be a madamoo.PreferenceMetric, got {type(metric).__name__}")
        if head_weights not in ("auto", "lambda"):
            raise ValueError(f"head_weights must be 'auto' or 'lambda', got {head_weights!r}")
        if rows not in ("needed", "all"):
            raise ValueError(f"rows must be 'needed' or 'all', got {rows!r}")
        if gram not in ("parameters", "features"):
            raise ValueError(f"gram must be 'parameters' or 'features', got {gram!r}")
        if max_norm is not None and not max_norm > 0:
            raise ValueError(f"max_norm must be positive, got {max_norm!r}")
        solver = solvers.LS() if solver is None else solver
        averages_need_rows = False
        if metric is not None:
            estimator = metric.resolve(static=solver.static, count=2)
            averages_need_rows = estimator not in ("collapsed", "marginal")
        if gram == "features":
            _check_gram_of_features(solver, metric if averages_need_rows else None, rows)
        if _evaluates_again(optimizer) and (metric is not None or not solver.static):
            raise ValueError(
                f"{type(optimizer).__name__} evaluates its closure several times a step; that needs metric=None and a "
                f"static solver, got {type(solver).__name__} and {metric!r}"
            )
        _warn_of_replicas()
        names = None if objectives is None else check_names(objectives)
        # The base class would make parameter groups of its own; its __setstate__ makes all the rest.
        super().__setstate__(
            {
                "optimizer": optimizer,
                "solver": solver,
                "metric": metric,
                "shared": None if shared is None else _shared_parameters(shared, optimizer),
                "head_weights": head_weights,
                "max_norm": max_norm,
                "rows": rows,
                "gram": gram,
                "run": Run(count=None if names is None else len(names), names=names),
            }
        )
        if solver.needs_rows or rows == "all" or averages_need_rows:
            allow_several_backward_passes()

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
    ) -> None:
        """Differentiate the losses, weigh them, apply the metric, and write the result to ``.grad``.

        Args:
            losses: a 1-D tensor, a sequence or a dict of scalar tensors. An objective that the batch has no labels for
                is left out of the dict, or None; its weight is 0 and its averages rest.
            preference: the preference vector of this step, for solvers that use one.
            retain_graph: keep the graph, as in :meth:`torch.Tensor.backward`.
            scaler: a GradScaler: pass the losses as they are, then call ``scaler.step(opt)`` and ``scaler.update()``.
            features: the tensor or tensors where trunk and heads meet. With ``gram="features"`` they are needed. Else
                the heads are differentiated first and the trunk for all objectives together (``torch.vmap``): the same
                gradients to rounding, faster where operations are so small that calling them takes the time.
        """
        run = self.run
        params = trainable(self)
        if run.pending is not None and was_cleared(run.pending, params):
            self._drop_pending()
        pending = run.pending
        if pending is not None and [*map(id, pending.params)] != [*map(id, params)]:
            raise ValueError("the trainable parameters changed within a step: call zero_grad() first")
        if pending is None:
            batch = read_losses(losses, run.names, run.count)
        else:
            batch = read_losses(losses, pending.names, len(pending.values))
        vector = read_preference(self, preference, batch, pending)
        if self.metric is not None:
            self.metric.claim(run)
        if pending is not None and pending.failed:
            return
        if self.gram == "features" and (features is None or pending is not None):
            found = "none" if features is None else "a second backward() before step()"
            raise ValueError(f"gram='features' takes one backward(losses, features=...) a step, got {found}")
        cut = None if features is None else cut_at(features, batch, params)
        scale = read_scale(scaler, params[0].device)
        with torch.no_grad(), full_precision(params[0].device):
            after = advance(self, pending, batch, vector, params, scale, retain_graph, cut)
            if after.failed:
                refuse(self, after, params, scaler)
            else:
                write(self, after, params, scale)
        run.pending = after
        if after.weights is not None:
            run.weights = batch.like_losses(after.weights)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Let the inner optimizer move the parameters, and keep what ``backward`` computed.

        A step that ``backward`` refused does nothing. Without a ``backward``, this is the inner optimizer's step.
        """
        if _evaluates_again(self.optimizer):
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
        if pending is not None and was_cleared(pending, pending.params):
            self._drop_pending()
        self.optimizer.step()
        self._commit()
        return result

    def observe(self, losses: LossesT) -> None:
        """Show the solver the losses of the same batch after the step; some (FAMO) learn from the change.

        They need no graph: compute them under ``torch.no_grad()``. Objectives may be missing as in :meth:`backward`.
        """
        if self.run.pending is not None:
            raise RuntimeError("observe(losses) comes after step(): a backward() is still waiting for its step")
        batch = read_losses(losses, self.run.names, self.run.count, graph=False)
        self.solver.ensure(len(batch.values))
        self.solver.observe(batch.values)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients, and forget every ``backward`` since the last step."""
        self._drop_pending()
        self.optimizer.zero_grad(set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        self.optimizer.add_param_group(param_group)

    def state_dict(self) -> dict[str, Any]:
        """The inner optimizer's state dict, and under ``"multi_objective"`` all else that the next step needs."""
        for before in self._optimizer_state_dict_pre_hooks.values():
            before(self)
        state = save_state(self)
        for hook in self._optimizer_state_dict_post_hooks.values():
            state = hook(self, state) or state
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load what :meth:`state_dict` gave; a state that does not fit is refused whole, with the reason."""
        state_dict = dict(state_dict)
        for before in self._optimizer_load_state_dict_pre_hooks.values():
            state_dict = before(self, state_dict) or state_dict
        load_state(self, state_dict)
        for after in self._optimizer_load_state_dict_post_hooks.values():
            after(self)

    def __getstate__(self) -> dict[str, Any]:
        names = ("optimizer", "solver", "metric", "shared", "head_weights", "max_norm", "rows", "gram")
        return {**{name: self.__dict__[name] for name in names}, "run": replace(self.run, pending=None, probes=())}

    def __repr__(self) -> str:
        return f"{type(self).__name__}(solver={self.solver!r}, metric={self.metric!r}, optimizer={self.optimizer!r})"

    def _drop_pending(self) -> None:
        self.run.pending = None
        self.solver.forget()

    def _commit(self) -> None:
        """The step is taken: what was pending becomes part of the run."""
        run, pending = self.run, self.run.pending
        self._drop_pending()
        if pending is None or pending.failed:
            return
        run.count, run.names = len(pending.values), pending.names
        if len(pending.present) == run.count:
            run.opaque = pending.opaque
        run.reach.update(pending.reach)
        for rows in pending.rows:
            if not are_same(run.blocks.get(rows.params[0], ()), rows.params):
                run.blocks.update(dict.fromkeys(rows.params, rows.params))
        if pending.solver is not None and pending.solver is not self.solver:
            self.solver.load_state_dict(pending.solver.state_dict())
        metric, measurement = self.metric, pending.measurement
        if metric is not None and measurement is not None:
            assert pending.weights is not None
            with torch.no_grad(), full_precision(pending.params[0].device):
                metric.begin_update(measurement)
                for x, beta in pending.directions:
                    metric.update(x, beta, measurement)
                metric.end_update(measurement, pending.weights.tolist(), pending.present)
        run.tell("commit")


def _warn_of_replicas() -> None:
    started = torch.distributed.is_available() and torch.distributed.is_initialized()
    if started and (processes := torch.distributed.get_world_size()) > 1:
        warnings.warn(
            f"torch.distributed has {processes} processes, and gradients are not averaged between them: replicas of a "
            "model (DistributedDataParallel, FSDP) drift apart",
            stacklevel=3,
        )


def _check_gram_of_features(solver: Solver, metric: PreferenceMetric | None, rows: str) -> None:
    """Refuse what needs the trunk's gradient of each objective; ``metric`` is one that does."""
    name = type(solver).__name__
    if not solver.needs_gram or solver.per_coordinate:
        raise ValueError(f"gram='features' is for solvers that use the Gram matrix and nothing else, got {name}")
    if metric is not None:
        raise ValueError(
            f"gram='features' has no gradients of the trunk by objective, which {metric!r} needs: use metric=None, "
            "PreferenceMetric('marginal'), or gram='parameters'"
        )
    if rows == "all":
        raise ValueError("gram='features' has no gradients of the trunk by objective: rows must be 'needed', got 'all'")


def _shared_parameters(shared: nn.Module | Iterable[Tensor], optimizer: Optimizer) -> set[Tensor]:
    if isinstance(shared, Tensor):
        raise TypeError("shared must be a module or an iterable of parameters, got one tensor: give [tensor]")
    result = set(shared.parameters() if isinstance(shared, nn.Module) else shared)
    if not any(p in result for group in optimizer.param_groups for p in group["params"]):
        raise ValueError("shared holds no parameter of the optimizer")
    return result


def _evaluates_again(optimizer: Optimizer) -> bool:
    """Whether the optimizer cannot do without a closure, as L-BFGS, which calls it several times a step."""
    return _needs_closure(type(optimizer).step)


@cache
def _needs_closure(step: Callable[..., Any]) -> bool:
    closure = inspect.signature(step).parameters.get("closure")
    return closure is not None and closure.default is inspect.Parameter.empty


def allow_several_backward_passes() -> None:
    """Models compiled from now on keep what a second backward pass needs; by default they give it away in the first."""
    import torch._functorch.config

    torch._functorch.config.donated_buffer = False
