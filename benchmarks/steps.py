"""The arms: one whole training step each, from the forward pass to the moved parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from problems import Physics, Problem, build
from timing import Step, tensor_bytes
from torch import Tensor

from madamoo import MSOAP, MultiObjective, PreferenceMetric, solvers
from madamoo.metric import EigenBasis
from madamoo.relatives import SOAP

SOLVERS = ("ls", "uw", "rlw", "cagrad", "mgda", "pcgrad")
TORCHJD = ("cagrad", "mgda", "pcgrad")


@dataclass
class Arm:
    """One way to train one network; ``held`` lists the tensors that outlive a step."""

    step: Step
    held: Callable[[], list[Tensor]] = field(default=list)

    def held_bytes(self) -> int:
        return tensor_bytes(self.held())


def _adam(problem: Problem | Physics) -> torch.optim.AdamW:
    return torch.optim.AdamW(problem.params, lr=1e-4, weight_decay=0.0, fused=True)


def _state(problem: Problem | Physics, adam: torch.optim.Optimizer) -> list[Tensor]:
    return [*problem.params, *(t for state in adam.state.values() for t in state.values() if isinstance(t, Tensor))]


def plain(problem: Problem | Physics) -> Arm:
    """torch alone: the mean of the losses, one backward pass, fused Adam."""
    adam = _adam(problem)

    def step() -> None:
        losses, _ = problem.losses()
        adam.zero_grad()
        (sum(losses) / len(losses)).backward()  # type: ignore[union-attr]
        adam.step()

    return Arm(step, lambda: _state(problem, adam))


def bare(problem: Problem | Physics) -> Arm:
    """One backward pass per objective and nothing made of them: what no gradient-balancing step can go below."""
    adam, params = _adam(problem), problem.params

    def step() -> None:
        losses, _ = problem.losses()
        for i, loss in enumerate(losses):
            rows = torch.autograd.grad(loss, params, retain_graph=i + 1 < len(losses), allow_unused=True)
            for p, row in zip(params, rows, strict=True):
                p.grad = p.grad if row is None else row
        adam.step()

    return Arm(step, lambda: _state(problem, adam))


def ours(
    problem: Problem | Physics, solver: str, metric: PreferenceMetric | None, features: bool = False, **options: Any
) -> Arm:
    arm = of(problem, MultiObjective(_adam(problem), solvers.get(solver), metric, **options), features)
    if metric is not None and metric.estimator == "pair":
        _draw_every_pair(metric, arm.step, len(problem.losses()[0]))
    return arm


def of(problem: Problem | Physics, opt: MultiObjective, features: bool = False) -> Arm:
    """A step of this optimizer."""

    def step() -> None:
        losses, z = problem.losses()
        opt.zero_grad()
        opt.backward(losses, **({"features": z} if features else {}))
        opt.step()

    def held() -> list[Tensor]:
        kept = _state(problem, opt.optimizer)
        if opt.metric is not None:
            state = opt.state_dict()["multi_objective"]["metric"]
            entries = [*state["bases"].values(), *state.get("momentum", {}).values()]
            kept += [t for a in opt.metric.averages for t in a.tensors()]
            kept += [t for entry in entries for t in entry.values() if isinstance(t, Tensor)]
        return kept

    return Arm(step, held)


def soap(problem: Problem | Physics, solver: str) -> Arm:
    return of(problem, MultiObjective(SOAP(problem.params, lr=1e-4), solver))


def msoap(problem: Problem | Physics, solver: str, every: int = 1) -> Arm:
    estimator = "separable" if solver == "rlw" else "auto"  # by itself it takes SOAP's steps there
    arm = of(problem, MSOAP(problem.params, lr=1e-4, solver=solver, estimator=estimator, every=every))
    for _ in range(11 if every > 1 else 0):  # the first steps are all measured
        arm.step()
    return arm


def _draw_every_pair(metric: PreferenceMetric, step: Step, count: int) -> None:
    """Train until each pair has an average, as in a run of some length."""
    every, metric.every = metric.every, 1
    while max((len(a.pairs) for a in metric.averages), default=0) < count * (count + 1) // 2:
        step()
    metric.every = every


def torchjd_rows(problem: Problem, solver: str, chunk: int | None = None) -> Arm:
    """TorchJD's Jacobian: ``mtl_backward``, then ``jac_to_grad``."""
    from torchjd import aggregation
    from torchjd.autojac import jac_to_grad, mtl_backward

    adam = _adam(problem)
    aggregator = {
        "cagrad": lambda: aggregation.CAGrad(0.4),
        "mgda": lambda: aggregation.MGDA(),
        "pcgrad": lambda: aggregation.PCGrad(),
    }[solver]()
    shared = list(problem.trunk.parameters())

    def step() -> None:
        losses, z = problem.losses()
        adam.zero_grad()
        mtl_backward(losses, features=z, parallel_chunk_size=chunk)
        jac_to_grad(shared, aggregator)
        adam.step()

    return Arm(step, lambda: _state(problem, adam))


def torchjd_gram(problem: Problem, solver: str) -> Arm:
    """TorchJD's Gramian engine on the trunk, then one backward pass of the weighted losses.

    The losses are means over the batch, so there is no batch dimension that the engine could use.
    """
    from torchjd import aggregation
    from torchjd.autogram import Engine

    adam = _adam(problem)
    weighting = {
        "cagrad": lambda: aggregation.CAGradWeighting(0.4),
        "mgda": lambda: aggregation.MGDAWeighting(),
        "pcgrad": lambda: aggregation.PCGradWeighting(),
    }[solver]()
    engine = Engine(problem.trunk, batch_dim=None)

    def step() -> None:
        losses = torch.stack(problem.losses()[0])
        adam.zero_grad()
        losses.backward(weighting(engine.compute_gramian(losses)))
        adam.step()

    return Arm(step, lambda: _state(problem, adam))


def _metric(**options: Any) -> PreferenceMetric:
    return PreferenceMetric(rampup=0, **options)


def arms(name: str, chosen: tuple[str, ...] = SOLVERS, peers: bool = True) -> Iterator[tuple[str, Arm]]:
    """Every arm on the network of this name, each with a copy of its own."""
    peers, features = peers and build(name).trunk is not None, build(name).trunk is not None
    yield "plain", plain(build(name))
    yield "bare", bare(build(name))
    for solver in chosen:
        yield f"{solver} Adam", ours(build(name), solver, None)
        yield f"{solver} MAdam", ours(build(name), solver, _metric())
        if solver != "ls":
            yield f"{solver} MAdam every=10", ours(build(name), solver, _metric(every=10))
        if solver in ("ls", "uw", "rlw", "cagrad"):
            yield f"{solver} MAdam eigen", ours(build(name), solver, _metric(basis="eigen"))
            one = EigenBasis(sides="shorter")
            yield f"{solver} MAdam eigen, one side", ours(build(name), solver, _metric(basis=one))
            yield f"{solver} SOAP", soap(build(name), solver)
            yield f"{solver} MSOAP", msoap(build(name), solver)
        if solver == "rlw":
            yield "rlw MSOAP every=10", msoap(build(name), solver, every=10)
        if solver == "uw":
            yield "uw MAdam pair", ours(build(name), solver, _metric(estimator="pair"))
            yield "uw MAdam pair every=10", ours(build(name), solver, _metric(estimator="pair", every=10))
        if solver in ("uw", "cagrad"):
            yield f"{solver} MAdam separable", ours(build(name), solver, _metric(estimator="separable"))
        if solver in ("cagrad", "mgda") and features:
            yield f"{solver} Adam gram=features", ours(build(name), solver, None, features=True, gram="features")
        if solver in TORCHJD and peers:
            yield f"{solver} TorchJD", torchjd_rows(build(name), solver)
            yield f"{solver} TorchJD one by one", torchjd_rows(build(name), solver, 1)
            yield f"{solver} TorchJD Gramian", torchjd_gram(build(name), solver)
