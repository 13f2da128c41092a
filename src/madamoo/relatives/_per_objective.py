"""What MTAdam and AdaTask share: losses in, one row per objective kept until the step, skipped steps, checkpoints."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..checks import check_betas, check_positive
from ..gradients import (
    Batch,
    Collected,
    Collector,
    Exchange,
    Found,
    Layout,
    LossesT,
    Written,
    allow_several_backward_passes,
    by_param,
    check_names,
    differentiate,
    foreign,
    is_divided,
    largest_entry,
    read_losses,
    used_up,
)
from ._loading import load_as_saved
from ._moments import moment_dtype

KEY = "per_objective"


@dataclass
class PerObjectiveRun:
    """What outlives a step, and what waits for one."""

    count: int | None = None
    names: tuple[str, ...] | None = None
    skipped: int = 0
    warned: set[str] = field(default_factory=set)  # what the user was warned of
    pending: Pending | None = None
    exchange: Exchange = field(default_factory=Exchange)


@dataclass
class Pending:
    """What ``backward`` has computed since the last step."""

    names: tuple[str, ...] | None
    collected: Collected
    written: Written = field(default_factory=Written)


class PerObjective(Optimizer):
    """An optimizer that keeps moments for each objective; a subclass moves one parameter, in ``move``.

    ``backward(losses)`` differentiates every loss, ``step()`` updates the moments and moves the parameters. ``.grad``
    gets the plain sum of the gradients, to look at; ``step()`` does not read it, but gradients that were cleared since
    discard the ``backward``. An objective that a batch lacks adds nothing to the step, and its moments rest.

    Example:
        >>> from madamoo.relatives import AdaTask, MTAdam
        >>> issubclass(AdaTask, PerObjective), issubclass(MTAdam, PerObjective)
        (True, True)
    """

    run: PerObjectiveRun

    def __init__(
        self, params: Iterable[Any], defaults: dict[str, Any], names: Sequence[str] | None, count: int | None = None
    ) -> None:
        for name in ("lr", "weight_decay"):
            check_positive(name, float(defaults[name]), zero=True)
        check_positive("eps", defaults["eps"])
        check_betas(defaults["betas"])
        super().__init__(params, defaults)
        self.run = PerObjectiveRun(count)
        if names is not None:
            self.run = PerObjectiveRun(len(names), check_names(names))
        allow_several_backward_passes()

    def move(self, param: Tensor, keys: tuple[int, ...], rows: Tensor, group: dict[str, Any]) -> Tensor:
        """Take the rows ``[K, *shape]`` of the objectives ``keys`` into ``self.state[param]``.

        The result is what to subtract from the parameter, for a rate of 1.
        """
        raise NotImplementedError

    @property
    def weights(self) -> Tensor | None:
        """None: no single number weighs an objective here, each parameter or coordinate has its own."""
        return None

    @property
    def objectives(self) -> tuple[str, ...] | None:
        """The names of the objectives, if the losses came as a dictionary."""
        pending = self.run.pending
        return self.run.names if pending is None else pending.names

    @property
    def skipped(self) -> int:
        """How many steps were refused because a loss or a gradient was not finite."""
        return self.run.skipped

    @torch.no_grad()
    def backward(
        self, losses: LossesT, preference: None = None, retain_graph: bool = False, scaler: None = None
    ) -> None:
        """Differentiate the losses, in any form that :class:`MultiObjective` takes; calls before a step are summed.

        The arguments are those of :meth:`MultiObjective.backward`; a preference or a scaler is refused.
        """
        if preference is not None or scaler is not None:
            raise ValueError(f"{type(self).__name__} takes neither a preference nor a scaler")
        run, params = self.run, self._params()
        if run.pending is not None and run.pending.written.was_cleared(params):
            run.pending = None
        before = run.pending
        if before is None and foreign(params):
            self._warn(
                "the gradients that are in .grad before opt.backward(losses) are overwritten: give what they are of as "
                "one more objective"
            )
        if any(map(is_divided, params)):
            raise ValueError(f"{type(self).__name__} trains replicas, not shards of parameters")
        names, count = (run.names, run.count) if before is None else (before.names, len(before.collected.values))

        def read(names: tuple[str, ...] | None) -> Batch:
            batch = read_losses(losses, names, count)
            if batch.scaled_by() is not None:
                raise ValueError(f"the losses look scaled by a GradScaler, which {type(self).__name__} cannot use")
            batch.check_graph()  # raises for a checkpoint that hides its parameters
            return Batch(batch)

        batch = run.exchange.losses(read, (names, count), params, lambda: {"optimizer": repr(self)}).losses
        if before is not None and not before.collected.finite:
            return
        collector = Collector(params, lambda _: 0)
        collected = collector.open(None if before is None else before.collected, batch, Layout())
        if collected.finite:
            size = len(batch.values) + 1, len(params)

            def find() -> tuple[Found, Tensor]:
                found = differentiate(batch, params, batch.here, retain_graph=retain_graph)
                return found, found.signs(len(batch.values), len(params), opaque=False)

            found, signs = run.exchange.meet(find, size[0] * size[1], torch.uint8)
            collected = collector.add(
                collected, found, opaque=False, missing=False, signs=signs.view(size), send=run.exchange.rows
            )
            # Squares must be finite, also that of a whole tensor's norm.
            limit = min((torch.finfo(moment_dtype(p)).max ** 0.375 for p in params), default=0.0)
            if not largest_entry(collected.rows, limit) <= limit:  # NaN compares false
                collected = replace(collected, finite=False)
        run.pending = Pending(batch.names, collected)
        if collected.finite:
            self._show(run.pending)
            return
        run.skipped += 1
        for param in params:
            run.pending.written.write(param, torch.zeros_like(param))
        self._warn("a loss or a gradient is not finite or too large: such steps are skipped")

    def _warn(self, text: str) -> None:
        """Once, with the user's line: beyond this, backward and its no_grad."""
        if text not in self.run.warned:
            self.run.warned.add(text)
            warnings.warn(text, stacklevel=4)

    def _show(self, pending: Pending) -> None:
        for param in self._params():
            param.grad = None
        sums = [(param, stack.sum(0).to(param.dtype)) for param, _, stack in by_param(pending.collected.rows)]
        for param, gradient in sums:
            pending.written.write(param, gradient)
        pending.written.vanishes = not any(bool(gradient.any()) for _, gradient in sums)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the moments and move the parameters; a step that ``backward`` refused does nothing."""
        result = None
        if closure is not None:
            with torch.enable_grad():
                result = closure()
        run, pending, params = self.run, self.run.pending, self._params()
        run.pending = None
        if pending is None and foreign(params):
            raise RuntimeError(f"{type(self).__name__} does not read .grad: call opt.backward(losses) before step()")
        if pending is None or not pending.collected.finite or pending.written.was_cleared(params):
            return result
        run.count, run.names = len(pending.collected.values), pending.names
        groups = {p: group for group in self.param_groups for p in group["params"]}
        used_up(params)
        for param, keys, stack in by_param(pending.collected.rows):
            lr, decay = groups[param]["lr"], groups[param]["weight_decay"]
            param.mul_(1 - lr * decay).sub_(lr * self.move(param, keys, stack, groups[param]))
        return result

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget every ``backward`` since the last step, and clear ``.grad``."""
        self.run.pending = None
        super().zero_grad(set_to_none)

    def state_dict(self) -> dict[str, Any]:
        """As of any torch optimizer, and under ``"per_objective"`` what else a resumed run needs."""
        names = None if self.run.names is None else list(self.run.names)
        own = {"objectives": names, "n_objectives": self.run.count, "skipped": self.run.skipped}
        state = super().state_dict()
        state["param_groups"][0][KEY] = (own,)  # torch.distributed.checkpoint carries "state" and "param_groups" only
        return {**state, KEY: own}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load what :meth:`state_dict` gave; one for other objectives is refused, with the reason."""
        carried = [group[KEY][0] for group in state_dict["param_groups"] if KEY in group]
        if KEY not in state_dict and not carried:
            raise ValueError(f"the checkpoint lacks {KEY!r}: it is not the state_dict() of {type(self).__name__}")
        groups = [{key: value for key, value in group.items() if key != KEY} for group in state_dict["param_groups"]]
        run, own, state_dict = self.run, state_dict.get(KEY, *carried[:1]), {**state_dict, "param_groups": groups}
        count, names = own["n_objectives"], own["objectives"]
        if None not in (run.count, count) and run.count != count:
            raise ValueError(f"the checkpoint has {count} objectives, the optimizer has {run.count}")
        if run.names is not None and names is not None and set(run.names) != set(names):
            raise ValueError(f"the checkpoint's objectives are {names}, not {list(run.names)}")
        load_as_saved(self, state_dict)
        run.count, run.names = count, None if names is None else tuple(names)
        run.skipped, run.pending = own["skipped"], None

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "run": replace(self.run, pending=None)}

    def _params(self) -> list[Tensor]:
        return [p for group in self.param_groups for p in group["params"] if p.requires_grad]
