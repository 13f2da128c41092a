"""Two digits in one image, one task each: a network for every preference, and a plain one under constant weights."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from madamoo import MultiObjective, solvers
from madamoo.bench import Split, build_model
from madamoo.bench.problems import registered
from madamoo.pareto import Dirichlet, Front, PaMaL, evaluate, rays
from madamoo.presentation.style import ADAM, MADAM, MSOAP, SOAP

from .contest import BUILD, Run

DIGITS = registered("digits")
TASKS = ("left digit", "right digit")
PROFILE, BATCH = DIGITS.profiles["cpu"], 64

# The tasks compete for a dozen units: that is what makes a front.
NARROW, WIDE = "mlp:depth=2:width=12", "mlp:depth=2:width=128"
FRONT_CONTENDERS, FRONT_RATES = (ADAM, MADAM, MSOAP, SOAP), (1e-2, 3e-2)
PLAIN_CONTENDERS, PLAIN_RATES = (ADAM, MADAM), (PROFILE.lr, 1e-2)  # the lab's own, and three times as much
RAYS = 21  # positions of the slider

Objective = tuple[list[Tensor], Tensor | None]  # the losses of a batch, and the preference of the step if there is one


@dataclass(frozen=True)
class FrontRun(Run):
    """A network that takes the preference as an input, and its test accuracies from one end to the other."""

    front: Front  # accuracies in per cent, [RAYS, 2]

    @property
    def hypervolume(self) -> float:
        """The area below the front: 1 if both digits were always read, at some preference."""
        return hypervolume(self.front)


@dataclass(frozen=True)
class PlainRun(Run):
    """A plain network under constant weights."""

    accuracy: float  # on test data, in per cent, the mean of both tasks


def hypervolume(front: Front) -> float:
    return front.hypervolume([0.0, 0.0]) / 100.0**2


def train_front(contender: str, lr: float, seed: int, epochs: int) -> FrontRun:
    """One network for every preference: PaMaL, with one preference drawn for each step."""
    data = DIGITS.load(None, PROFILE, seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = PaMaL(build_model(NARROW, *DIGITS.shape(data)), n_objectives=len(TASKS))
        sampler = Dirichlet(len(TASKS), seed=seed)

        def objective(batch: Split) -> Objective:
            preference = sampler(0.0)[0]
            return _losses(model(batch.inputs, preference=preference), batch), preference

        opt = BUILD[contender](list(model.parameters()), lr, solvers.Preference())
        seconds = _train(opt, data.train, objective, epochs, seed)
        validation, test = front_of(model, data.validation), front_of(model, data.test)
    return FrontRun(contender, lr, seed, hypervolume(validation), seconds, test)


def front_of(model: PaMaL, split: Split) -> Front:
    """The accuracy of both tasks at each position of the slider, from all weight on the left to all on the right."""
    return evaluate(
        lambda preference: _accuracies(model, split, preference=preference),
        rays(len(TASKS), RAYS),
        maximise=True,
        names=TASKS,
    )


def train_plain(contender: str, lr: float, seed: int, epochs: int) -> PlainRun:
    """A wide network under constant weights, as most are trained."""
    data = DIGITS.load(None, PROFILE, seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = build_model(WIDE, *DIGITS.shape(data))
        opt = BUILD[contender](list(model.parameters()), lr, solvers.LS())
        seconds = _train(opt, data.train, lambda batch: (_losses(model(batch.inputs), batch), None), epochs, seed)
        validation, test = (fmean(_accuracies(model, part)) for part in (data.validation, data.test))
    return PlainRun(contender, lr, seed, validation, seconds, test)


def _train(opt: MultiObjective, data: Split, objective: Callable[[Split], Objective], epochs: int, seed: int) -> float:
    """All epochs, at a rate that falls to zero; returns the seconds of the processor."""
    begin = time.process_time()
    generator = torch.Generator().manual_seed(seed)  # all contenders see the same batches
    steps = len(data) // BATCH
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, epochs * steps)
    for _ in range(epochs):
        order = torch.randperm(len(data), generator=generator)
        for rows in order[: steps * BATCH].split(BATCH):
            losses, preference = objective(data[rows])
            opt.zero_grad()
            opt.backward(losses, preference=preference)
            opt.step()
            schedule.step()
    return time.process_time() - begin


def _losses(outputs: Sequence[Tensor], batch: Split) -> list[Tensor]:
    return [cross_entropy(z, y) for z, y in zip(outputs, batch.targets, strict=True)]


@torch.no_grad()
def _accuracies(model: nn.Module, split: Split, **given: Any) -> list[float]:
    """In per cent, by task."""
    outputs = model(split.inputs, **given)
    return [100 * float((z.argmax(1) == y).double().mean()) for z, y in zip(outputs, split.targets, strict=True)]
