"""What an optimizer refuses or warns of when it is built or used in a way that cannot be meant."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..gradients import is_divided
from ..metric import Metric
from ..solvers import Solver
from ._chain import Chain
from ._options import Options
from ._run import RunState
from ._wrapper import evaluates_again


def claim(thing: Solver | Metric, run: RunState) -> None:
    """Solver and metric belong to one optimizer: in two, each would have half of the steps, and the other's."""
    owner = getattr(thing, "_owner", None)
    user = None if owner is None else owner()
    if user is not None and user is not run:
        raise ValueError(f"this {type(thing).__name__} is in use by another optimizer: build one for each")
    if user is None:
        object.__setattr__(thing, "_owner", Owner(run))


class Owner:
    """A weak reference to who uses a solver or a metric; a copy of either is free."""

    def __init__(self, owner: object) -> None:
        self.owner = weakref.ref(owner)

    def __call__(self) -> object:
        return self.owner()

    def __reduce__(self) -> Any:
        return _nobody, ()


def _nobody() -> None:
    return None


def _is_plain_sgd(inner: Optimizer, group: dict[str, Any]) -> bool:
    """Without momentum the decay acts on the parameters alone."""
    return isinstance(inner, torch.optim.SGD) and not group["momentum"]


def warn_of_coupled_decay(optimizer: Optimizer) -> None:
    for inner in optimizer.optimizers if isinstance(optimizer, Chain) else (optimizer,):
        coupled = [
            group for group in inner.param_groups if group.get("weight_decay") and not _is_plain_sgd(inner, group)
        ]
        decoupled = isinstance(inner, torch.optim.AdamW) or inner.defaults.get("decoupled_weight_decay")
        ours = type(inner).__module__.startswith("torch.optim")
        if coupled and ours and not decoupled and not isinstance(inner, _DECOUPLED):
            warnings.warn(
                f"{type(inner).__name__} adds weight_decay={coupled[0]['weight_decay']} times the parameter to the "
                "gradient, which the metric has made of order 1: use decoupled decay, as in AdamW",
                stacklevel=3,
            )


_DECOUPLED = tuple(getattr(torch.optim, name) for name in ("Adafactor", "Muon") if hasattr(torch.optim, name))


def check_gram_of_features(solver: Solver, metric: Metric | None, options: Options) -> None:
    """Refuse what needs the trunk's gradient of each objective; ``metric`` is one that does."""
    name = type(solver).__name__
    if not solver.needs_gram or solver.per_coordinate:
        raise ValueError(f"gram='features' is for solvers that use the Gram matrix and nothing else, got {name}")
    if metric is not None:
        raise ValueError(
            f"gram='features' has no gradients of the trunk by objective, which {metric!r} needs: use metric=None, "
            "PreferenceMetric('marginal'), or gram='parameters'"
        )
    if options.rows == "all":
        raise ValueError("gram='features' has no gradients of the trunk by objective: rows must be 'needed', got 'all'")


def check_engine(optimizer: Optimizer, options: Options, params: Sequence[Tensor], processes: int) -> None:
    """Refuse what several processes, or sharded parameters, cannot do; the same in all of them."""
    if processes > 1 and evaluates_again(optimizer):
        raise ValueError(
            f"{type(optimizer).__name__} evaluates its closure as often as the loss of its own process says: several "
            "processes cannot do that together"
        )
    if options.gram == "features" and any(map(is_divided, params)):
        raise ValueError(
            "gram='features' differentiates trunk and heads by themselves, which sharded parameters do not allow: use "
            "gram='parameters'"
        )
