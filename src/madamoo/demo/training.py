"""Training a small two-headed network on the two-digit images, with one solver and one optimizer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from madamoo.bench import configure, is_static
from madamoo.bench.problems import registered
from madamoo.bench.training import Training, attach
from madamoo.presentation.style import ADAM, CONTROL, MADAM, OPTIMIZERS

SOLVERS = ("LS", "UW", "CAGrad")
DIAGNOSED = "CAGrad"
CONTENDERS = (ADAM, CONTROL, MADAM)
SPECS = {name: spec for spec, name in OPTIMIZERS.items()}  # as the lab calls them
DIGITS = registered("digits")
PROFILE = DIGITS.profiles["cpu"]


@dataclass(frozen=True)
class DigitsRun:
    """One training run and its test accuracy in per cent, by epoch and task."""

    solver: str
    contender: str
    seed: int
    accuracy: list[list[float]]
    seconds: float
    rows: list[dict[str, Any]] = field(default_factory=list)  # of a probe, where there was one

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
        for solver in SOLVERS
        for contender in CONTENDERS
        if not (contender == CONTROL and is_static(solver))
    ]


def train(solver: str, contender: str, seed: int, epochs: int) -> DigitsRun:
    """One run. Data, their order and the initial weights depend on the seed alone.

    The first seed's run with one of the solvers is diagnosed, which changes nothing but its time.
    """
    config = configure(DIGITS.name, solver=solver, optimizer=SPECS[contender], seed=seed, epochs=epochs)
    data = DIGITS.load(None, PROFILE, seed)
    accuracy = []
    rows: list[dict[str, Any]] = []
    with torch.random.fork_rng(devices=[]):
        training = Training(config, DIGITS, PROFILE, data, torch.device("cpu"))
        probe = attach(training, rows.append) if (solver, seed) == (DIAGNOSED, 0) else None
        while not training.ended:
            if training.advance():
                metrics, _ = training.evaluate("test")
                accuracy.append([metrics["left_acc"], metrics["right_acc"]])
        if probe is not None:
            probe.close()
    return DigitsRun(solver, contender, seed, accuracy, training.seconds, rows)
