"""Saving and loading a MultiObjective optimizer: all of it, or an error that names what does not fit."""

from __future__ import annotations

import copy
import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..checks import check_integer
from ..gradients import Layout, check_names, is_divided

if TYPE_CHECKING:
    from ._multi_objective import MultiObjective

KEY = "multi_objective"
_PIECES = (
    "objectives",
    "n_objectives",
    "skipped",
    "shapes",
    "layout",
    "solver_name",
    "solver",
    "metric",
)


def save_state(opt: MultiObjective) -> dict[str, Any]:
    run, params = opt.run, _all_params(opt)
    state = opt.optimizer.state_dict()
    own = {
        "objectives": None if run.names is None else list(run.names),
        "n_objectives": run.count,
        "skipped": run.skipped,
        "shapes": [list(p.shape) for p in params],
        "layout": run.layout.state_dict(params),
        "solver_name": type(opt.solver).__name__,
        "solver": opt.solver.state_dict(),
        "metric": None if opt.metric is None else opt.metric.state_dict(params),
        "options": _options(opt),
    }
    # Once more, not a copy: torch.distributed.checkpoint carries "state" and "param_groups" only, a tuple as one piece.
    # Its full state of sharded parameters takes nothing but numbers, tensors and bytes for one piece.
    state["param_groups"][0][KEY] = _as_bytes(own) if any(map(is_divided, params)) else (own,)
    state[KEY] = own
    return state


def _as_bytes(own: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    torch.save(own, file)
    return file.getvalue()


def _carried(piece: tuple[dict[str, Any]] | bytes) -> dict[str, Any]:
    if isinstance(piece, bytes):
        with _reading("the piece that torch.distributed.checkpoint has carried,"):
            return dict(torch.load(io.BytesIO(piece), weights_only=True))
    return piece[0]


def _options(opt: MultiObjective) -> dict[str, dict[str, Any]]:
    """All options on which the next step depends; not the seeds, since the generators come with the checkpoint."""
    shared, params = opt.options.shared, _all_params(opt)
    numbers = None if shared is None else [i for i, p in enumerate(params) if p in shared]
    return {
        "optimizer": {**opt.options.saved(), "shared": numbers},
        "solver": {name: value for name, value in opt.solver.options().items() if name != "seed"},
        "metric": {} if opt.metric is None else opt.metric.options(),
    }


def load_state(opt: MultiObjective, state: dict[str, Any]) -> None:
    """Make everything first, on copies, then take it on: after an error the optimizer is what it was."""
    params, state = _all_params(opt), _with_own_part(state)
    static = opt.solver.static
    with _reading("a piece"):
        own = _check(opt, state, params)
        count, names = own["n_objectives"], own["objectives"]
        names = None if names is None else check_names(names)
        if count is not None:
            check_integer("n_objectives", count, minimum=1)
        if names is not None and count is not None and len(names) != count:
            raise ValueError(f"the checkpoint has {count} objectives and the names {list(names)}")
        skipped = int(own["skipped"])
    with _reading("'layout'"):
        layout = Layout.load(own["layout"], params)
    with _reading("the solver's state"):
        solver = copy.deepcopy(opt.solver)
        solver.load_state_dict(own["solver"])
        if count is not None and solver.n_objectives not in (None, count):
            raise ValueError(f"the checkpoint has {count} objectives, its solver {solver.n_objectives!r}")
    metric = copy.copy(opt.metric)
    if metric is not None:
        with _reading("the metric's state"):
            metric.load_state_dict(own["metric"], params, layout, count, static=static)

    opt.optimizer.load_state_dict({key: value for key, value in state.items() if key != KEY})
    opt.solver.load_state_dict(own["solver"])
    if opt.metric is not None:
        vars(opt.metric).update(vars(metric))
    run = opt.run
    run.pending, run.skipped, run.layout = None, skipped, layout
    run.count, run.names, run.ordered = count, names, names is not None


@contextmanager
def _reading(what: str) -> Iterator[None]:
    """Whatever fails on a state that is not what it should be is an error of the checkpoint."""
    try:
        yield
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError) as error:
        raise ValueError(f"{what} of the checkpoint is damaged or does not fit: {error}") from error


def _with_own_part(state: dict[str, Any]) -> dict[str, Any]:
    """The checkpoint with our part in its own place alone, wherever it came."""
    state = dict(state)
    groups = state.get("param_groups") or []
    carried = [_carried(group[KEY]) for group in groups if KEY in group]
    if groups:
        state["param_groups"] = [{key: value for key, value in group.items() if key != KEY} for group in groups]
    if KEY not in state and carried:
        state[KEY] = carried[0]
    return state


def _check(opt: MultiObjective, state: dict[str, Any], params: list[Tensor]) -> dict[str, Any]:
    for key in ("state", "param_groups", KEY):
        if key not in state:
            raise ValueError(
                f"the checkpoint lacks {key!r}: it is not the state_dict() of a madamoo optimizer. One of a plain "
                "torch optimizer goes to the inner one: opt.optimizer.load_state_dict(state)"
            )
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
    _check_options(own.get("options", {}), _options(opt))
    if opt.metric is not None:
        opt.metric.check_state_dict(own["metric"], params, own["n_objectives"], static=opt.solver.static)
    return own


def _check_options(saved: dict[str, Any], here: dict[str, dict[str, Any]]) -> None:
    """Averages and weights depend on the options that they were made with."""
    others = [
        f"{part} {name}={saved[part][name]!r} (here {value!r})"
        for part, options in here.items()
        for name, value in options.items()
        if part in saved and name in saved[part] and saved[part][name] != value
    ]
    if others:
        raise ValueError(
            f"the checkpoint was made with other options: {', '.join(others)}. Build the optimizer with those; or, to "
            "go on with others on purpose, delete the 'options' of the checkpoint's 'multi_objective' first"
        )


def _all_params(opt: MultiObjective) -> list[Tensor]:
    return [p for group in opt.param_groups for p in group["params"]]
