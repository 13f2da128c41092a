"""No step has become much dearer: ratios of CPU times, taken by turns in one thread, with wide margins."""

import time

import pytest
import torch
from torch import nn

from madamoo import MultiObjective, PreferenceMetric, solvers

COUNT = 4


class Way:
    """One way to train a small network; ``step`` takes a step of it."""

    def __init__(self, solver=None, metric=None, features=False, **options):
        torch.manual_seed(0)
        self.trunk = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU())
        self.heads = nn.ModuleList(nn.Linear(256, 1) for _ in range(COUNT))
        self.x = torch.randn(256, 32)
        self.params = [*self.trunk.parameters(), *self.heads.parameters()]
        adam = torch.optim.AdamW(self.params, lr=1e-4, fused=True)
        self.opt = adam if solver is None else MultiObjective(adam, solvers.get(solver), metric, **options)
        self.solver, self.features = solver, features

    def step(self):
        z = self.trunk(self.x)
        losses = [(head(z) - i).square().mean() for i, head in enumerate(self.heads)]
        self.opt.zero_grad()
        if self.solver is None:  # the bare passes
            for i, loss in enumerate(losses):
                rows = torch.autograd.grad(loss, self.params, retain_graph=i + 1 < COUNT, allow_unused=True)
            for p, row in zip(self.params, rows, strict=True):
                p.grad = torch.zeros_like(p) if row is None else row
        else:
            self.opt.backward(losses, features=z if self.features else None)
        self.opt.step()


@pytest.fixture(scope="module")
def times():
    """The least CPU time of a step in many rounds: what else the machine does can only add to it."""
    metric = {"rampup": 0}
    ways = {
        "bare": Way(),
        "ls": Way("ls"),
        "ls metric": Way("ls", PreferenceMetric(**metric)),
        "mgda": Way("mgda"),
        "mgda metric": Way("mgda", PreferenceMetric(**metric)),
        "mgda features": Way("mgda", features=True, gram="features"),
        "uw": Way("uw"),
        "uw metric": Way("uw", PreferenceMetric(**metric)),
    }
    least = dict.fromkeys(ways, float("inf"))
    for _ in range(40):
        for name, way in ways.items():
            start = time.process_time()
            way.step()
            least[name] = min(least[name], time.process_time() - start)
    return least


@pytest.mark.parametrize(
    "name, other, most",
    [
        ("ls metric", "ls", 1.7),
        ("mgda", "bare", 2.2),
        ("mgda metric", "mgda", 1.7),
        ("uw metric", "uw", COUNT + 0.5),  # C passes in place of one
        ("mgda features", "mgda", 1.0),
    ],
)
def test_ratio(times, name, other, most):
    assert times[name] <= most * times[other]
