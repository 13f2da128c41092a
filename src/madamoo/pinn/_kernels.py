"""What the solvers NTK and NTKPinnacle need of a problem: how strongly its residuals depend on the parameters."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from madamoo import MultiObjective
from madamoo.solvers import NTK

from ._problem import Problem

CHUNK = 16
"""Points that are evaluated together: each point's gradient is a backward pass through all of them."""
SAMPLE = 64
"""Points per objective from which :func:`observe_kernel` takes traces."""


def kernel_traces(problem: Problem, network: nn.Module, points: int | None = None) -> dict[str, float]:
    """Per objective, the trace of its neural tangent kernel: the sum over its points of |grad of the residual|^2.

    The gradients are by all parameters that are trained, unknown coefficients included. With ``points`` so many of each
    objective's points are taken, evenly spread in their order, and the sum is scaled up to all of them. The gradients
    of different points are alike in size, so this is far less noisy than as many random combinations of the residuals
    (Hutchinson's estimate).

    Example: ``opt.solver.observe_traces(kernel_traces(problem, network))``.
    """
    if points is not None and points < 1:
        raise ValueError(f"points must be at least 1 or None, got {points}")
    params = _trained(problem, network)
    found = dict.fromkeys(problem.objectives, 0.0)

    def add(values: dict[str, Tensor], share: float) -> None:
        for name, residual in values.items():
            found[name] += share * sum(_squared(residual[p], params) for p in range(len(residual)))

    x = problem.points
    chosen = _spread(len(x), points)
    for part in chosen.split(CHUNK):
        add(problem.residuals(network, x[part.to(x.device)]), len(x) / len(chosen))
    for name in problem.constraints:
        count = len(problem.constraint_points(name).x)
        chosen = _spread(count, points)
        for part in chosen.split(CHUNK):
            add({name: problem.constraint_error(network, name, part)}, count / len(chosen))
    return found


def kernel_sums(problem: Problem, network: nn.Module) -> dict[str, float]:
    """Per objective, |grad of the sum of all residuals in its block|^2: equations are one block, conditions the other.

    This is what PINNacle's code takes for the trace; see :class:`madamoo.solvers.NTKPinnacle`.
    """
    params = _trained(problem, network)
    blocks = (problem.residuals(network), problem.constraint_errors(network))
    found: dict[str, float] = {}
    for block in blocks:
        if block:
            size = _squared(torch.stack([residual.sum() for residual in block.values()]).sum(), params)
            found.update(dict.fromkeys(block, size))
    return {name: found[name] for name in problem.objectives}


def observe_kernel(
    problem: Problem, network: nn.Module, opt: MultiObjective, points: int | None = SAMPLE, *, named: bool = True
) -> None:
    """Before ``opt.backward``: give the optimizer's solver the traces that it wants; most solvers want none.

    Args:
        points: that of :func:`kernel_traces`.
        named: whether ``backward`` gets the losses by name; else in the order of ``problem.objectives``.
    """
    solver = opt.solver
    if isinstance(solver, NTK) and solver.wants_traces:
        sums = solver.kernel == "sum"
        found = kernel_sums(problem, network) if sums else kernel_traces(problem, network, points)
        names = opt.objectives or problem.objectives  # the optimizer may have an order of its own
        solver.observe_traces({name: found[name] for name in names} if named else list(found.values()))


def _trained(problem: Problem, network: nn.Module) -> list[nn.Parameter]:
    return [p for p in (*network.parameters(), *problem.parameters()) if p.requires_grad]


def _squared(value: Tensor, params: Sequence[nn.Parameter]) -> float:
    if not value.requires_grad:
        return 0.0
    gradients = torch.autograd.grad(value.sum(), params, retain_graph=True, allow_unused=True)
    return float(sum(g.double().square().sum() for g in gradients if g is not None))


def _spread(count: int, wanted: int | None) -> Tensor:
    """So many of the indices below ``count``, evenly spread; all if ``wanted`` is None or larger."""
    some = count if wanted is None else min(count, wanted)
    return (torch.arange(some) * count + count // 2) // some
