"""Training a small two-headed network on the two-digit images, with one solver and one optimizer."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from madamoo import solvers
from madamoo.solvers import Solver

from .contenders import CONTENDERS, CONTROL, build
from .digits import CANVAS, TASKS, Pairs, make_data

LR = 1e-3
BATCH = 64

SOLVERS: dict[str, Callable[[], Solver]] = {
    "LS": solvers.LS,
    "UW": lambda: solvers.UW("classification"),
    "CAGrad": solvers.CAGrad,
}


@dataclass(frozen=True)
class Run:
    """One training run and its test accuracy in per cent, by epoch and task."""

    solver: str
    contender: str
    seed: int
    accuracy: list[list[float]]
    seconds: float

    @property
    def curve(self) -> list[float]:
        """Accuracy after each epoch, averaged over the tasks."""
        return [sum(tasks) / len(tasks) for tasks in self.accuracy]

    @property
    def final(self) -> float:
        """Accuracy after the last epoch; no other epoch is looked for, as that would be choosing on the test set."""
        return self.curve[-1]


def plan(seeds: int) -> list[tuple[str, str, int]]:
    """Solver, optimizer and seed of each run. Under constant weights the control is MAdam itself: not run twice."""
    return [
        (solver, contender, seed)
        for seed in range(seeds)
        for solver, make in SOLVERS.items()
        for contender in CONTENDERS
        if not (contender == CONTROL and make().static)
    ]


class TwoHeads(nn.Module):
    """A shared trunk and one linear head for each digit."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Flatten(), nn.Linear(CANVAS * CANVAS, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU()
        )
        self.heads = nn.ModuleList(nn.Linear(64, 10) for _ in TASKS)

    def forward(self, images: Tensor) -> list[Tensor]:
        shared = self.trunk(images)
        return [head(shared) for head in self.heads]


def train(solver: str, contender: str, seed: int, epochs: int) -> Run:
    """One run. Data, their order and the initial weights depend on the seed alone."""
    train_set, test_set = make_data(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = TwoHeads()
    order = torch.Generator().manual_seed(seed)
    opt = build(contender, model.parameters(), lr=LR, solver=SOLVERS[solver]())
    accuracy = []
    begin = time.perf_counter()
    for _ in range(epochs):
        for batch in torch.randperm(len(train_set), generator=order).split(BATCH):
            outputs = model(train_set.images[batch])
            opt.zero_grad()
            opt.backward([F.cross_entropy(z, y[batch]) for z, y in zip(outputs, train_set.labels, strict=True)])
            opt.step()
        accuracy.append(_accuracy(model, test_set))
    return Run(solver, contender, seed, accuracy, time.perf_counter() - begin)


@torch.no_grad()
def _accuracy(model: TwoHeads, data: Pairs) -> list[float]:
    outputs = model(data.images)
    return [100.0 * float((z.argmax(1) == y).float().mean()) for z, y in zip(outputs, data.labels, strict=True)]
