"""Saving and loading a metric: its averages parameter by parameter, whatever blocks they are in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..gradients import Block, Layout
from ._estimators import Estimator, Marginal
from ._movement import Movement
from ._store import Store

if TYPE_CHECKING:
    from ._preference import PreferenceMetric

PIECES = ("steps", "wait", "generator", "estimator", "constant", "averages", "bases", "movement")


def save_state(metric: PreferenceMetric, params: Sequence[Tensor]) -> dict[str, Any]:
    index = {param: i for i, param in enumerate(params)}
    parts = (part for block in metric.averages for part in block.split())
    averages = {index[a.block.params[0]]: a.state_dict() for a in parts if a.pairs and a.block.params[0] in index}
    return {
        "steps": metric.steps,
        "wait": metric.wait,
        "generator": metric.generator.get_state(),
        "estimator": metric.used,
        "constant": dict(metric.constant),
        "averages": averages,
        "bases": metric._bases.state_dict(params),
        "movement": metric.movement.state_dict(),
        **({"norms": dict(metric.norms)} if metric.normalises(metric._used) else {}),
        **({"momentum": metric._momentum.state_dict(params)} if metric._momentum is not None else {}),
        **({"noise": metric.noise.get_state()} if metric.rounds else {}),
    }


def check_state(
    metric: PreferenceMetric, state: dict[str, Any], params: Sequence[Tensor], count: int | None, *, static: bool
) -> None:
    for key in PIECES:
        if key not in state:
            raise ValueError(f"the checkpoint lacks the metric's {key!r}")
    if ("noise" in state) != metric.rounds:
        raise ValueError(f"the checkpoint's averages were not made with dtype={metric.dtype}")
    metric._bases.loaded(state["bases"], params, metric.compute_dtype)
    if ("momentum" in state) != (metric._momentum is not None):
        raise ValueError(f"the checkpoint was not made with momentum={metric.momentum}")
    if metric._momentum is not None:
        metric._momentum.loaded(state["momentum"], params, metric.compute_dtype)
    estimator = _estimator(metric, state["estimator"], count, static=static)
    if ("norms" in state) != metric.normalises(estimator):
        raise ValueError(f"the checkpoint's averages were not made with normalise={metric.normalises(estimator)}")
    for index, entry in state["averages"].items():
        if index >= len(params):
            raise ValueError(f"the checkpoint has averages of parameter {index}; there are {len(params)}")
        try:
            assert estimator is not None
            metric.make(estimator)(Block((params[index],))).check_state_dict(entry)
        except ValueError as error:
            raise ValueError(f"the checkpoint's averages of parameter {index} {error}") from None


def load_state(
    metric: PreferenceMetric,
    state: dict[str, Any],
    params: Sequence[Tensor],
    layout: Layout,
    count: int | None,
    *,
    static: bool,
) -> None:
    """Make everything first, then take it on."""
    estimator, store = _estimator(metric, state["estimator"], count, static=static), None
    if estimator is not None:
        make, averages = metric.make(estimator), {}
        for index, entry in state["averages"].items():
            block = Block((params[index],))
            averages[block] = make(block)
            averages[block].load_state_dict(entry, metric.compute_dtype(params[index]))
        store = Store(make, None, averages).repacked(layout)
    generator = _generator(state["generator"])
    noise = _generator(state["noise"]) if metric.rounds else metric.noise
    constant, norms = dict(state["constant"]), dict(state.get("norms", {}))
    bases = metric._bases.loaded(state["bases"], params, metric.compute_dtype)
    movement, momentum = Movement.load(state["movement"]), metric._momentum
    if momentum is not None:
        momentum = momentum.loaded(state["momentum"], params, metric.compute_dtype)
    metric.steps, metric.wait, metric._used = int(state["steps"]), int(state["wait"]), estimator
    metric.generator, metric.noise, metric.movement = generator, noise, movement
    metric._store, metric._bases, metric.constant, metric.norms = store, bases, constant, norms
    metric._momentum = momentum


def _estimator(metric: PreferenceMetric, name: str | None, count: int | None, *, static: bool) -> Estimator | None:
    """That of a checkpoint, if it is one that this metric would use."""
    if name is None or count is None:
        return None
    estimator = metric.resolve(static=static, count=count)
    if metric.estimator == "auto" and not static and name == Marginal.name:
        return Marginal()
    if estimator.name != name:
        raise ValueError(f"the checkpoint was made with estimator {name!r}, here it is {estimator.name!r}")
    return estimator


def _generator(state: Tensor) -> torch.Generator:
    result = torch.Generator()
    result.set_state(state.cpu())
    return result
