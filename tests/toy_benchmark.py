"""A benchmark and a model in a user's own file, small enough to be run hundreds of times: 6 steps per epoch."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from madamoo.bench import Data, Metric, Profile, Split, Supervised


@dataclass
class Sizes:  # a dataclass with annotations as text needs its module to be in sys.modules
    train: int = 50
    rest: int = 20


class Toy(Supervised):
    name = "toy"
    objectives = ("sum", "sign")
    kinds = ("regression", "classification")
    metrics = (Metric("error", False), Metric("right", True))
    profiles = {
        "cpu": Profile(epochs=3, batch=8, lr=1e-2, model="mlp:depth=1:width=4", threads=1),
        "best": Profile(epochs=3, batch=8, lr=1e-2, model="mlp:depth=1:width=4", threads=1, keep="best"),
        "halved": Profile(epochs=3, batch=8, lr=1e-2, model="mlp:depth=1:width=4", threads=1, schedule="halve:every=1"),
        "free": Profile(epochs=3, batch=8, lr=1e-2, model="mlp:depth=1:width=4"),
    }

    def load(self, root, profile, seed):
        generator = torch.Generator().manual_seed(seed)
        sizes = Sizes()
        return Data(*(self.split(n, generator) for n in (sizes.train, sizes.rest, sizes.rest)))

    def split(self, count, generator):
        x = torch.randn(count, 3, generator=generator)
        return Split(x, (x.sum(1), (x[:, 0] > 0).long()))

    def shape(self, data):
        return (3,), (1, 2)

    def criteria(self, outputs, targets):
        return [
            nn.functional.mse_loss(outputs[0].squeeze(1), targets[0]),
            nn.functional.cross_entropy(outputs[1], targets[1]),
        ]

    def tally(self, outputs, targets):
        return {
            "error": (outputs[0].squeeze(1) - targets[0]).square().sum(),
            "right": (outputs[1].argmax(1) == targets[1]).sum(),
            "count": torch.tensor(len(targets[0])),
        }

    def summarise(self, tally):
        return {name: float(tally[name] / tally["count"]) for name in ("error", "right")}


class Dropout(nn.Module):
    def __init__(self, inputs, outputs, width, share):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(inputs, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(share))
        self.heads = nn.ModuleList(nn.Linear(width, size) for size in outputs)

    def forward(self, x):
        shared = self.trunk(x)
        return [head(shared) for head in self.heads]


def build(inputs, outputs, *, width=4, share=0.5):
    return Dropout(inputs[0], outputs, width, share)


BENCHMARKS = {"toy": Toy}
