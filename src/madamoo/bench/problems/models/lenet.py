"""The multi-head LeNet of MultiMNIST: 21,330 shared parameters and 3,060 per head for 28x28 images of ten classes."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from . import check_image


class LeNet(nn.Module):
    def __init__(self, inputs: tuple[int, ...], outputs: tuple[int, ...], width: int) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(inputs[0], 10, 5), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(10, 20, 5), nn.MaxPool2d(2), nn.ReLU()
        )
        size = self.features(torch.zeros(1, *inputs)).numel()
        self.trunk = nn.Sequential(nn.Flatten(), nn.Linear(size, width), nn.ReLU())
        self.heads = nn.ModuleList(
            nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, classes)) for classes in outputs
        )

    def forward(self, x: Tensor) -> list[Tensor]:
        shared = self.trunk(self.features(x))
        return [head(shared) for head in self.heads]


def build(inputs: tuple[int, ...], outputs: tuple[int, ...], *, width: int = 50) -> nn.Module:
    check_image("lenet", inputs, 16)
    return LeNet(inputs, outputs, width)
