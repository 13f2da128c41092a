"""A training loop for any optimizer of the library, L-BFGS after it, and points where the residual is large."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from madamoo import MultiObjective

from ._kernels import observe_kernel
from ._problem import Problem

Callback = Callable[[int, dict[str, Tensor]], None]


class RAR:
    """Residual-based adaptive refinement: from time to time, add the points of largest residual among fresh ones.

    `Lu et al.: DeepXDE (2021) <https://doi.org/10.1137/19M1274067>`_; `Wu et al. (2023)
    <https://doi.org/10.1016/j.cma.2022.115671>`_ compare it with others.

    Args:
        every: Steps between two refinements.
        count: Points added each time.
        candidates: Fresh points of the domain among which they are chosen.

    Example:
        >>> from madamoo import MAdam, pinn
        >>> problem = pinn.Problem(pinn.Interval(0, 1), lambda f: f.u_xx + 1, {}, num_domain=20)
        >>> network = pinn.FNN([1, 8, 1])
        >>> rar = pinn.RAR(every=2, count=3, candidates=50)
        >>> list(pinn.train(problem, network, MAdam(network.parameters()), 4, rar=rar))
        ['pde']
    """

    def __init__(self, every: int = 1000, count: int = 10, candidates: int = 10_000, seed: int = 0) -> None:
        if every < 1 or count < 1 or candidates < count:
            raise ValueError(
                f"every and count must be at least 1 and candidates at least count, got {every}, {count}, {candidates}"
            )
        self.every, self.count, self.candidates = every, count, candidates
        self.generator = torch.Generator().manual_seed(seed)

    def pool(self, problem: Problem) -> Tensor:
        return problem.domain.random_points(self.candidates, "pseudo", self.generator)

    def refine(self, problem: Problem, network: nn.Module) -> Tensor:
        """Add points to the problem, and return them."""
        pool = self.pool(problem)
        residuals = problem.residuals(network, pool).values()
        size = torch.cat([r.detach().abs() for r in residuals], 1).sum(1)
        chosen = pool[size.cpu().topk(min(self.count, len(pool))).indices]
        problem.add_anchors(chosen)
        return chosen


class RARPinnacle(RAR):
    """The form in PINNacle's code: the candidates are the training points themselves, so chosen ones count twice.

    Example:
        >>> from madamoo import MAdam, pinn
        >>> problem = pinn.Problem(pinn.Interval(0, 1), lambda f: f.u_xx + 1, {}, num_domain=20)
        >>> network = pinn.FNN([1, 8, 1])
        >>> rar = pinn.RARPinnacle(every=2, count=3)
        >>> list(pinn.train(problem, network, MAdam(network.parameters()), 4, rar=rar))
        ['pde']
    """

    def pool(self, problem: Problem) -> Tensor:
        return problem.points.detach().double().cpu()


def train(
    problem: Problem,
    network: nn.Module,
    opt: MultiObjective,
    steps: int,
    *,
    resample_every: int | None = None,
    rar: RAR | None = None,
    generator: torch.Generator | None = None,
    callback: Callback | None = None,
) -> dict[str, Tensor]:
    """Take ``steps`` steps; returns the last losses, before the last step.

    Args:
        resample_every: Draw all points again each so many steps, from ``generator``; None is full batch.
        rar: Adds points where the residual is large.
        callback: Called with the number of steps taken and the losses before the last of them.
    """
    if not hasattr(opt, "backward"):
        kind = type(opt).__name__
        raise TypeError(f"opt must have backward(losses), as MAdam has, got {kind}: take MultiObjective({kind}(...))")
    if resample_every is not None and resample_every < 1:
        raise ValueError(f"resample_every must be at least 1 or None, got {resample_every}")
    if resample_every is not None and generator is None:
        generator = torch.Generator().manual_seed(0)
    losses: dict[str, Tensor] = {}
    for step in range(1, steps + 1):
        opt.zero_grad()
        losses = problem.losses(network)
        if isinstance(opt, MultiObjective):
            observe_kernel(problem, network, opt)
        opt.backward(losses)
        opt.step()
        if callback is not None:
            callback(step, losses)
        if step < steps:
            if resample_every is not None and step % resample_every == 0:
                problem.sample(generator)
            if rar is not None and step % rar.every == 0:
                rar.refine(problem, network)
    return {name: loss.detach() for name, loss in losses.items()}


def polish(problem: Problem, network: nn.Module, steps: int = 500, weights: Mapping[str, float] | None = None) -> float:
    """Minimise the weighted sum of the losses by L-BFGS, after any optimizer; returns the last sum.

    The points stay as they are: L-BFGS needs a function that does not change. ``weights`` are 1 unless given.
    """
    unknown = set(weights or {}) - set(problem.objectives)
    if unknown:
        raise ValueError(f"weights must be of {', '.join(problem.objectives)}, got {', '.join(sorted(unknown))}")
    params = [p for p in (*network.parameters(), *problem.parameters()) if p.requires_grad]
    lbfgs = torch.optim.LBFGS(
        params, max_iter=steps, history_size=50, tolerance_grad=0.0, tolerance_change=0.0, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        lbfgs.zero_grad()
        losses = problem.losses(network)
        total = torch.stack([loss * (weights or {}).get(name, 1.0) for name, loss in losses.items()]).sum()
        total.backward()
        return total

    lbfgs.step(closure)
    return float(closure().detach())
