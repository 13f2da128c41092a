"""One batch on its way through the rooms: losses, rows, weights, direction, metric, ``.grad``."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..checks import check_vector
from ..direction import clip_factor, combine
from ..gradients import (
    REST,
    Cut,
    Kinds,
    Losses,
    Rows,
    add_rows,
    compute_rows,
    compute_rows_at_features,
    compute_rows_together,
    compute_trunk_row,
    drop_zero_rows,
    gram_matrix,
    largest_entry,
    sizes_of,
)
from ..metric import Measurement
from ._run import Pending

if TYPE_CHECKING:
    from ._multi_objective import MultiObjective


def trainable(opt: MultiObjective) -> list[Tensor]:
    params = [p for group in opt.param_groups for p in group["params"] if p.requires_grad]
    if not params:
        raise ValueError("no parameter of the optimizer requires a gradient")
    if any(p.is_complex() for p in params):
        raise TypeError("complex parameters are not supported: train their torch.view_as_real")
    return params


def was_cleared(pending: Pending, params: list[Tensor]) -> bool:
    """Whether the gradients were cleared behind our back (model.zero_grad()), and with them what is pending."""
    gradients = [p.grad for p in params if p.grad is not None]
    touched = any(g._version != pending.versions.get(g) for g in gradients)  # zeros of our own making are no sign
    return not gradients or (touched and not pending.vanishes and not any(bool(g.any()) for g in gradients))


def full_precision(device: torch.device) -> AbstractContextManager[None]:
    """Products of gradients are not for autocast, in whose region the user may well call us."""
    if not torch.amp.is_autocast_available(device.type):
        return nullcontext()
    return torch.autocast(device.type, enabled=False)


def read_preference(opt: MultiObjective, preference: Any, batch: Losses, pending: Pending | None) -> Tensor | None:
    if preference is None:
        return None if pending is None else pending.preference
    if not opt.solver.uses_preference:
        raise ValueError(f"{type(opt.solver).__name__} takes no preference; use solvers.Preference, for one")
    if isinstance(preference, Mapping):
        if batch.names is None or set(preference) != set(batch.names):
            raise ValueError(f"preference must name the objectives {batch.names}, got {sorted(preference)}")
        preference = [preference[name] for name in batch.names]
    vector = check_vector("preference", preference, len(batch.roots))
    if pending is not None and (pending.preference is None or not torch.equal(vector, pending.preference)):
        raise ValueError("preference must be the same in every micro-batch of a step")
    return vector


def advance(
    opt: MultiObjective,
    before: Pending | None,
    batch: Losses,
    preference: Tensor | None,
    params: list[Tensor],
    scale: float,
    retain_graph: bool,
    cut: Cut | None = None,
) -> Pending:
    """The pending step with one more batch in it; ``before`` and the run stay as they are."""
    opt.run.tell("begin", before)
    values = batch.values if before is None else _sum_present(before.values, batch.values)
    measurement = _measure(opt, batch) if before is None else before.measurement
    opaque = opt.run.opaque
    if opaque is None:  # one loss alone does not show that it was picked from a vector: doubt counts as opaque
        opaque = batch.is_opaque() or len(batch.present) == 1 < len(batch.values)
    after = Pending(params, batch.names, values, preference, measurement, opaque)
    if not bool(torch.isfinite(batch.values[list(batch.present)]).all()):
        return replace(after, failed=True)

    if opt.gram == "features":
        assert cut is not None
        return _advance_at_features(opt, batch, after, cut, scale, retain_graph)
    if not opt.solver.needs_gram:
        _solve(opt, after, None)
        if before is not None and not _keeps_every_row(opt, measurement):
            _check_same_weights(opt, before, after)
    passes = _passes(opt, batch, after)
    opt.run.tell("passes", batch, params, passes, scale)
    kinds = _kinds(opt, measurement)
    if cut is None or len(passes) == 1:
        rows = compute_rows(batch, params, passes, kinds, scale=scale, retain_graph=retain_graph)
    else:
        rows = compute_rows_together(batch, cut, passes, kinds, scale=scale, retain_graph=retain_graph)
    _check_reach(batch, rows, passes)
    after.rows = rows if before is None else add_rows(before.rows, rows, kinds)

    opt.run.tell("room", "gradients")
    limit = _limit(opt, params)
    if not opt.solver.needs_gram:
        largest = largest_entry(after.rows, limit)
        if not largest <= limit:  # NaN compares false
            return replace(after, failed=True)
        _tell_heads(opt, after, kinds)
        sizes = torch.full_like(values, largest)
    else:
        _tell_heads(opt, after, kinds)
        everywhere = opt.solver.family == "preference"  # its weights hold for heads too, so heads count
        weighed = [r for r in after.rows if everywhere or _is_shared(opt, r, after)]
        others = [] if everywhere else [r for r in after.rows if not _is_shared(opt, r, after)]
        gram = gram_matrix(weighed, len(values))
        sizes = gram.diagonal().clamp_min(0).sqrt()  # no entry is larger: that spares a look at every row
        fits = float(sizes.max()) <= limit or largest_entry(weighed, limit) <= limit
        if not (fits and largest_entry(others, limit) <= limit):
            return replace(after, failed=True)
        opt.run.tell("room", "gradients")
        _solve(opt, after, gram)
    assert after.weights is not None
    largest = float((after.weights.abs() * sizes).sum())  # no entry of d is larger
    return after if largest <= limit else replace(after, failed=True)


def _advance_at_features(
    opt: MultiObjective, batch: Losses, after: Pending, cut: Cut, scale: float, retain_graph: bool
) -> Pending:
    """The same with the Gram matrix of the features: one pass a head, and one through the trunk."""
    opt.run.tell("passes", batch, after.params, {REST: {}}, scale)
    kinds, limit = _kinds(opt, after.measurement), _limit(opt, after.params)
    features, heads = compute_rows_at_features(batch, cut, kinds, scale=scale, retain_graph=retain_graph)
    for i in set(batch.present) - {key for r in features for key in r.keys}:
        raise ValueError(f"loss {batch.label(i)} does not depend on the features; gram='features' needs each loss to")
    gram = gram_matrix(features, len(after.values))
    if not bool(torch.isfinite(gram).all()):
        return replace(after, failed=True)
    opt.run.tell("room", "gradients")
    _solve(opt, after, gram)
    assert after.weights is not None
    weights = after.weights.tolist()
    trunk = compute_trunk_row(batch, cut, features, weights, kinds, scale=scale, retain_graph=retain_graph)
    after.rows = [*trunk, *heads]
    _tell_heads(opt, after, kinds)
    after.reach.update(dict.fromkeys(cut.trunk, frozenset(batch.present)))
    opt.run.tell("room", "gradients")
    return after if largest_entry(after.rows, limit) <= limit else replace(after, failed=True)


def _kinds(opt: MultiObjective, measurement: Measurement | None) -> Kinds:
    """Parameters that may share a block: alike in all that the later rooms ask for, and never in different ones.

    Heads that only one objective has ever reached are alike, whichever it is, if all that is done with them in a step
    is done with all of them: a mask, or a draw, is for the rows of some objectives.
    """
    run = opt.run
    alike = {
        p: (g, opt.shared is not None and p in opt.shared, id(run.blocks.get(p)))
        for g, group in enumerate(opt.param_groups)
        for p in group["params"]
    }
    together = not opt.solver.per_coordinate
    if opt.metric is not None and measurement is not None:
        together = together and opt.metric.takes_heads_together(measurement)

    def kinds(param: Tensor, keys: tuple[int, ...]) -> Hashable:
        is_head = together and len(keys) == 1 and REST not in keys and run.reach.get(param, frozenset()) <= {*keys}
        return (*alike[param], "head" if is_head else keys)

    return kinds


def _check_reach(batch: Losses, rows: Sequence[Rows], passes: Mapping[int, Any]) -> None:
    """A loss that reaches no parameter looks like one that has converged; a solver would take it for that."""
    reached = {key for r in rows for key in r.owners or r.keys}
    if not reached:
        raise ValueError("no loss reaches a parameter of the optimizer: was it built on another model?")
    for i in set(passes) - reached - {REST}:
        warnings.warn(f"loss {batch.label(i)} reaches no parameter of the optimizer", stacklevel=4)


def _measure(opt: MultiObjective, batch: Losses) -> Measurement | None:
    if opt.metric is None:
        return None
    estimator = opt.metric.resolve(static=opt.solver.static, count=len(batch.roots))
    return opt.metric.measure(estimator, range(len(batch.roots)))  # later micro-batches may hold what this one lacks


def _keeps_every_row(opt: MultiObjective, measurement: Measurement | None) -> bool:
    """Whether every objective has a row of its own until the step, so that lambda may still change."""
    wanted = measurement is not None and measurement.takes_every_row
    return wanted or opt.solver.needs_rows or opt.rows == "all"


def _solve(opt: MultiObjective, after: Pending, gram: Tensor | None) -> None:
    """lambda of this step, from a copy of the solver where the call would change it."""
    solver = copy.deepcopy(opt.solver) if opt.solver.has_state else opt.solver
    after.weights = solver.solve(after.values, gram, after.preference, after.present)
    after.solver = solver
    opt.run.tell("room", "solver")


def _passes(opt: MultiObjective, batch: Losses, after: Pending) -> dict[int, dict[int, float]]:
    """The backward passes of this batch: one for each row that is needed, one for the sum of the rest."""
    needed: Sequence[int] = batch.present
    if not _keeps_every_row(opt, after.measurement):
        needed = after.measurement.needed(batch.present) if after.measurement is not None else ()
    passes = {i: {i: 1.0} for i in needed}
    rest = [i for i in batch.present if i not in needed]
    if rest:
        assert after.weights is not None
        passes[REST] = {i: float(after.weights[i]) for i in rest}
    return passes


def _check_same_weights(opt: MultiObjective, before: Pending, after: Pending) -> None:
    assert before.weights is not None and after.weights is not None
    known = list(before.present)
    if not torch.equal(before.weights[known], after.weights[known]):
        raise ValueError(
            f"{type(opt.solver).__name__} gave other weights for a later micro-batch of the same step, after the "
            "earlier one was differentiated with the old ones: build the optimizer with rows='all' to keep the "
            "gradient of every objective until the step"
        )


def _tell_heads(opt: MultiObjective, after: Pending, kinds: Kinds) -> None:
    """Note which objectives reach which parameter, in this step or an earlier one."""
    missing = len(after.present) < len(after.values)
    if after.opaque and (missing or any(key != REST for r in after.rows for key in r.keys)):
        after.rows = drop_zero_rows(after.rows, opt.run.reach, missing, kinds)
    for rows in after.rows:
        for param, keys in zip(rows.params, rows.keys_by_param(), strict=True):
            known = opt.run.reach.get(param, frozenset())
            after.reach[param] = known.union(key for key in keys if key != REST)


def _is_shared(opt: MultiObjective, rows: Rows, after: Pending) -> bool:
    """Whether a block is shared; its parameters are alike in this."""
    if opt.head_weights == "lambda" or len(after.values) == 1:
        return True
    if opt.shared is not None:
        return rows.params[0] in opt.shared
    return len(after.reach[rows.params[0]]) > 1


def _limit(opt: MultiObjective, params: list[Tensor]) -> float:
    """The largest gradient entry that can be handled: with a metric, one whose square is finite."""
    each = {p.dtype: p for p in params}
    if opt.metric is None:
        return max(torch.finfo(dtype).max for dtype in each)
    return min(torch.finfo(opt.metric.compute_dtype(p)).max ** 0.5 / 8 for p in each.values())


def write(opt: MultiObjective, after: Pending, params: list[Tensor], scale: float) -> None:
    """From rows and weights to .grad: the direction, clipped if asked for, divided by the metric."""
    assert after.weights is not None
    weights = after.weights.tolist()
    ones = [float(i in after.present) for i in range(len(weights))]
    betas = _betas(opt)
    metric, measurement = opt.metric, after.measurement
    directions = []
    for rows in after.rows:
        follows = opt.solver.family != "gradient" or _is_shared(opt, rows, after)
        dtype = torch.promote_types(rows.stack.dtype, torch.float32)
        dtype = dtype if metric is None else metric.compute_dtype(rows.params[0])
        assert after.solver is not None
        mask = None
        if after.solver.per_coordinate and follows:
            mask = after.solver.masks(rows.stack.to(dtype), rows.keys)
        directions.append(combine(rows, weights if follows else ones, dtype, mask))
    after.vanishes = not any(bool(x.d[:64].any()) or bool(x.d.any()) for x in directions)  # rarely more than one look
    factor = clip_factor(directions, opt.max_norm)
    directions = [x.scaled(factor) for x in directions]
    if metric is not None and measurement is not None:
        measurement = after.measurement = metric.settle(measurement, weights, after.present, directions)
    after.directions = [(x, betas[x.params[0]]) for x in directions]
    results: list[tuple[Tensor, Tensor]] = []
    for x, beta in after.directions:
        if metric is None or measurement is None:
            out = x.d * scale
        else:
            out = metric.precondition(x, beta, measurement)
            out = out if scale == 1.0 else out.mul_(scale)
        parts = out.split(sizes_of(x.params))
        results.extend((p, _like(p, part.view(p.shape))) for p, part in zip(x.params, parts, strict=True))
    for param in (p for group in opt.param_groups for p in group["params"]):  # also what was frozen since
        param.grad = None
    for param, gradient in results:
        param.grad = gradient
        after.versions[gradient] = gradient._version
    opt.run.tell("direction", after)
    if metric is None:
        after.directions = []  # nothing of them is needed in the step: let the rows go


def _betas(opt: MultiObjective) -> dict[Tensor, float]:
    given = None if opt.metric is None else opt.metric.beta
    return {p: beta_of(group) if given is None else given for group in opt.param_groups for p in group["params"]}


def beta_of(group: dict[str, Any]) -> float:
    """The decay of an optimizer's second moment; Adam's usual one, if it has none."""
    return float(group.get("betas", (0.9, 0.999))[1])


def refuse(opt: MultiObjective, after: Pending, params: list[Tensor], scaler: torch.amp.GradScaler | None) -> None:
    """A loss or a gradient is not finite: no step. A scaler is told so in the way it understands."""
    opt.run.skipped += 1
    after.rows, after.directions, after.solver = [], [], None
    scaled = scaler is not None and scaler.is_enabled()
    for param in params:
        param.grad = torch.full_like(param, torch.inf if scaled else 0.0)
        after.versions[param.grad] = param.grad._version
    if not scaled and not opt.run.warned:
        opt.run.warned = True
        warnings.warn(
            "a loss, a gradient or a weight is not finite, or too large to square: such steps are skipped, and "
            "opt.skipped counts them",
            stacklevel=3,
        )


def _sum_present(a: Tensor, b: Tensor) -> Tensor:
    return torch.where(torch.isnan(a), b, torch.where(torch.isnan(b), a, a + b))


def read_scale(scaler: torch.amp.GradScaler | None, device: torch.device) -> float:
    if scaler is None or not scaler.is_enabled():
        return 1.0
    scaler.scale(torch.ones((), device=device))  # makes the scale if nothing was scaled before
    return float(scaler.get_scale())


def _like(param: Tensor, out: Tensor) -> Tensor:
    """``out`` with the dtype and memory layout of the parameter, which fused optimizers rely on."""
    if out.dtype == param.dtype and out.stride() == param.stride():
        return out
    return torch.empty_like(param, requires_grad=False).copy_(out)
