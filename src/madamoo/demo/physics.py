"""A small physics-informed network: Helmholtz' equation on a square, with a solution in closed form."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn

from madamoo import diagnostics, pinn, solvers
from madamoo.presentation.style import ADAM, MSOAP, SOAP

from .contest import BUILD, Run

CONTENDERS, RATES = (ADAM, MSOAP, SOAP), (1e-2, 3e-2)
DIAGNOSED = (ADAM, MSOAP)
OBJECTIVES = ("pde", "boundary")
WEIGHTS = {"pde": 1.0, "boundary": 100.0}  # residuals hold second derivatives, and start far above the boundary's loss
POINTS, RESAMPLED = 256, 10  # fresh points every ten steps: a network can fit points that stay, and nothing between
LAYERS = (2, 32, 32, 32, 1)
RECORDS, ROWS = 50, 50  # values per curve, and measured steps per probe
SIDE = 41  # points per side of the grid on which the error is measured


@dataclass(frozen=True)
class PhysicsRun(Run):
    """A run, its losses and its relative error against the exact solution along the way, and where it is wrong."""

    steps: list[int]
    losses: dict[str, list[float]]
    errors: list[float]
    wrong: Tensor  # [SIDE, SIDE], the absolute error at x, y
    rows: list[dict[str, Any]] = field(default_factory=list)  # of a probe, where there was one

    @property
    def error(self) -> float:
        return self.errors[-1]


def exact(points: Tensor) -> Tensor:
    """u = sin(pi x) sin(2 pi y), [n, 1]."""
    return torch.sin(math.pi * points[:, :1]) * torch.sin(2 * math.pi * points[:, 1:])


def make_problem() -> pinn.Problem:
    """Lap u + u = f, u = 0 on the boundary; f is made so that ``exact`` solves it."""
    return pinn.Problem(
        pinn.Rectangle((-1, -1), (1, 1)),
        lambda f: (
            f.laplacian("u") + f.u - (1 - 5 * math.pi**2) * torch.sin(math.pi * f.x) * torch.sin(2 * math.pi * f.y)
        ),
        {"boundary": pinn.DirichletBC(0.0)},
        num_domain=POINTS,
        num_boundary=POINTS // 4,
    )


def grid() -> Tensor:
    """[SIDE * SIDE, 2], x changing slowest."""
    axis = torch.linspace(-1, 1, SIDE)
    return torch.cartesian_prod(axis, axis)


class Recorder:
    """A callback of the training: losses as means between two records, and the error at each."""

    def __init__(self, network: nn.Module, steps: int) -> None:
        self.network, self.total, self.every = network, steps, max(1, steps // RECORDS)
        self.places = grid()
        self.solution = exact(self.places)
        self.steps: list[int] = []
        self.losses: dict[str, list[float]] = {name: [] for name in OBJECTIVES}
        self.errors: list[float] = []
        self.since: list[list[float]] = []  # the losses since the last record

    def __call__(self, step: int, losses: Mapping[str, Tensor]) -> None:
        self.since.append([float(losses[name].detach()) for name in OBJECTIVES])
        if step % self.every and step != self.total:
            return
        self.steps.append(step)
        for name, values in zip(OBJECTIVES, zip(*self.since, strict=True), strict=True):
            self.losses[name].append(fmean(values))
        self.errors.append(float(self.wrong().norm() / self.solution.norm()))
        self.since.clear()

    @torch.no_grad()
    def wrong(self) -> Tensor:
        return (self.network(self.places) - self.solution).abs().view(SIDE, SIDE)

    @property
    def last_loss(self) -> float:
        """What is minimised, the weighted sum, at the end."""
        return sum(WEIGHTS[name] * self.losses[name][-1] for name in OBJECTIVES)


def train_physics(contender: str, lr: float, seed: int, steps: int) -> PhysicsRun:
    """One run. The initial weights and all points depend on the seed alone."""
    begin = time.process_time()
    generator = torch.Generator().manual_seed(seed)
    network = pinn.FNN(LAYERS, generator=generator)
    opt = BUILD[contender](list(network.parameters()), lr, solvers.LS(WEIGHTS))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, steps)
    recorder = Recorder(network, steps)

    def after_step(step: int, losses: Mapping[str, Tensor]) -> None:
        schedule.step()
        recorder(step, losses)

    watched = contender in DIAGNOSED and seed == 0  # which changes nothing but the time
    probe = diagnostics.attach(opt, every=max(1, steps // ROWS), exact=True) if watched else None
    pinn.train(make_problem(), network, opt, steps, resample_every=RESAMPLED, generator=generator, callback=after_step)
    if probe is not None:
        probe.close()
    rows = list(probe.rows) if probe is not None else []
    seconds = time.process_time() - begin
    score = -recorder.last_loss  # of points that the network had not seen ten steps before
    return PhysicsRun(
        contender, lr, seed, score, seconds, recorder.steps, recorder.losses, recorder.errors, recorder.wrong(), rows
    )
