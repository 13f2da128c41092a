"""Runs as the demo makes them, without training."""

import pytest
import torch

from madamoo.demo import digits, physics
from madamoo.demo.digits import FrontRun, PlainRun
from madamoo.demo.physics import PhysicsRun
from madamoo.demo.summary import Results
from madamoo.pareto import Front, rays


def front_run(contender, lr, seed, level, score=0.5):
    """A front that falls on a line: at preference a, the tasks read level + 10 a_i per cent."""
    preferences = rays(2, digits.RAYS)
    return FrontRun(contender, lr, seed, score, 1.0, Front(preferences, level + 10 * preferences, maximise=True))


def physics_run(contender, lr, seed, error, score=-1.0):
    losses = {name: [error * 4, error] for name in physics.OBJECTIVES}
    return PhysicsRun(contender, lr, seed, score, 1.0, [1, 2], losses, [2 * error, error], torch.zeros(41, 41))


@pytest.fixture
def make_results():
    """Results in which MSOAP gains so much over Adam, and SOAP and MAdam nothing."""

    def make(gain, seeds=3):
        noise = [0.1 * seed for seed in range(seeds)]
        more = {name: 0.0 for name in digits.FRONT_CONTENDERS} | {"MSOAP": gain}
        fronts = [front_run(c, 1e-2, k, 60 + n + more[c]) for c in more for k, n in enumerate(noise)]
        runs = [
            physics_run(c, 1e-2, k, 0.01 * 2 ** (n - more[c])) for c in physics.CONTENDERS for k, n in enumerate(noise)
        ]
        plain = [
            PlainRun(c, 1e-2, k, 0.5, 1.0, 90 + n + (gain * (1 + n) if c == "MAdam" else 0.0))
            for c in digits.PLAIN_CONTENDERS
            for k, n in enumerate(noise)
        ]
        return Results(fronts, runs, plain)

    return make
