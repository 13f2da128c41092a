"""Saving and loading a MultiObjective optimizer: all of it, or an error that names what does not fit."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    from ._multi_objective import MultiObjective

KEY = "multi_objective"
_PIECES = (
    "objectives",
    "n_objectives",
    "skipped",
    "opaque",
    "shapes",
    "reach",
    "blocks",
    "solver_name",
    "solver",
    "metric",
)


def save_state(opt: MultiObjective) -> dict[str, Any]:
    run, params = opt.run, _all_params(opt)
    index = {p: i for i, p in enumerate(params)}
    blocks = {id(block): block for p, block in run.blocks.items() if p in index}.values()
    state = opt.optimizer.state_dict()
    state[KEY] = {
        "objectives": None if run.names is None else list(run.names),
        "n_objectives": run.count,
        "skipped": run.skipped,
        "opaque": run.opaque,
        "shapes": [list(p.shape) for p in params],
        "reach": {i: sorted(run.reach[p]) for i, p in enumerate(params) if p in run.reach},
        "blocks": [[index[p] for p in block if p in index and run.blocks[p] is block] for block in blocks],
        "solver_name": type(opt.solver).__name__,
        "solver": opt.solver.state_dict(),
        "metric": None if opt.metric is None else opt.metric.state_dict(params),
    }
    return state


def load_state(opt: MultiObjective, state: dict[str, Any]) -> None:
    """Make everything first, on copies, then take it on: after an error the optimizer is what it was."""
    params = _all_params(opt)
    with _reading("a piece"):
        own = _check(opt, state, params)
        names = None if own["objectives"] is None else tuple(own["objectives"])
        skipped = int(own["skipped"])
    with _reading("'reach'"):
        reach = {params[i]: frozenset(keys) for i, keys in own["reach"].items()}
    with _reading("'blocks'"):
        blocks = [tuple(params[i] for i in numbers) for numbers in own["blocks"]]
    with _reading("the solver's state"):
        copy.deepcopy(opt.solver).load_state_dict(own["solver"])
    metric = copy.copy(opt.metric)
    if metric is not None:
        with _reading("the metric's state"):
            metric.load_state_dict(own["metric"], params, blocks)

    opt.optimizer.load_state_dict({key: value for key, value in state.items() if key != KEY})
    opt.solver.load_state_dict(own["solver"])
    if opt.metric is not None:
        vars(opt.metric).update(vars(metric))
    run = opt.run
    run.pending = None
    run.count, run.names = own["n_objectives"], names
    run.skipped, run.opaque = skipped, own["opaque"]
    run.reach.clear()
    run.reach.update(reach)
    run.blocks.clear()
    for block in blocks:
        run.blocks.update(dict.fromkeys(block, block))


@contextmanager
def _reading(what: str) -> Iterator[None]:
    """Whatever fails on a state that is not what it should be is an error of the checkpoint."""
    try:
        yield
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError) as error:
        raise ValueError(f"{what} of the checkpoint is damaged or does not fit: {error}") from error


def _check(opt: MultiObjective, state: dict[str, Any], params: list[Tensor]) -> dict[str, Any]:
    for key in ("state", "param_groups", KEY):
        if key not in state:
            raise ValueError(f"the checkpoint lacks {key!r}: it is not the state_dict() of a madamoo optimizer")
    own = state[KEY]
    for key in _PIECES:
        if key not in own:
            raise ValueError(f"the checkpoint lacks {key!r}")
    groups, saved = [len(g["params"]) for g in opt.param_groups], [len(g["params"]) for g in state["param_groups"]]
    if groups != saved:
        raise ValueError(f"the checkpoint's groups hold {saved} parameters, the optimizer's {groups}")
    for i, (param, shape) in enumerate(zip(params, own["shapes"], strict=True)):
        if list(param.shape) != list(shape):
            raise ValueError(
                f"the checkpoint's parameter {i} has shape {tuple(shape)}, the optimizer's {tuple(param.shape)}"
            )
    if own["solver_name"] != type(opt.solver).__name__:
        raise ValueError(f"the checkpoint's solver is {own['solver_name']}, this one is {type(opt.solver).__name__}")
    counts = (opt.run.count, opt.solver.n_objectives)
    for count in counts:
        if None not in (count, own["n_objectives"]) and count != own["n_objectives"]:
            raise ValueError(f"the checkpoint has {own['n_objectives']} objectives, the optimizer has {count}")
    if opt.run.names is not None and own["objectives"] is not None and set(opt.run.names) != set(own["objectives"]):
        raise ValueError(f"the checkpoint's objectives are {own['objectives']}, not {list(opt.run.names)}")
    if (opt.metric is None) != (own["metric"] is None):
        here, there = ("no metric", "one") if opt.metric is None else ("a metric", "none")
        raise ValueError(f"the optimizer has {here}, the checkpoint has {there}")
    if opt.metric is not None:
        estimator = None
        if own["n_objectives"] is not None:
            estimator = opt.metric.resolve(static=opt.solver.static, count=own["n_objectives"])
        opt.metric.check_state_dict(own["metric"], params, estimator)
    return own


def _all_params(opt: MultiObjective) -> list[Tensor]:
    return [p for group in opt.param_groups for p in group["params"]]
