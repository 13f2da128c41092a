"""A multi-layer perceptron with one linear head per objective; the SARCOS network is ``mlp:depth=3:width=256``."""

from __future__ import annotations

from itertools import pairwise
from math import prod

from torch import Tensor, nn


class MLP(nn.Module):
    def __init__(self, inputs: int, outputs: tuple[int, ...], width: int, depth: int) -> None:
        super().__init__()
        sizes = [inputs, *[width] * depth]
        layers: list[nn.Module] = [nn.Flatten()]
        for before, after in pairwise(sizes):
            layers += [nn.Linear(before, after), nn.ReLU()]
        self.trunk = nn.Sequential(*layers)
        self.heads = nn.ModuleList(nn.Linear(sizes[-1], size) for size in outputs)

    def forward(self, x: Tensor) -> list[Tensor]:
        shared = self.trunk(x)
        return [head(shared) for head in self.heads]


def build(inputs: tuple[int, ...], outputs: tuple[int, ...], *, width: int = 256, depth: int = 3) -> nn.Module:
    return MLP(prod(inputs), outputs, width, depth)
