"""Digits: MultiMNIST in small, from the 8x8 digits that come with scikit-learn. Needs no data."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from .. import Data, DataSource, Profile, Split
from .multimnist import TwoDigits

DIGIT = 8  # side of a source image
CANVAS = 12  # side of a composed one: the two digits share a square of 4x4 pixels in the middle
SOURCES = {"train": 1047, "validation": 250, "test": 500}  # of 1797
PAIRS = {"train": 4000, "validation": 1000, "test": 2000}


SOURCE = DataSource(
    "Optical Recognition of Handwritten Digits (UCI, 1998), as it comes with scikit-learn",
    "E. Alpaydin, C. Kaynak",
    "https://doi.org/10.24432/C50P49",
    "CC BY 4.0",
)


class Digits(TwoDigits):
    """Sources are split by the seed of the run before they are paired: none is in two sets."""

    name = "digits"
    source = SOURCE
    profiles = {
        "paper": Profile(epochs=40, batch=64, lr=1e-3, model="mlp:depth=2:width=128", threads=1),
        "cpu": Profile(
            epochs=20,
            batch=64,
            lr=3e-3,
            model="mlp:depth=2:width=128",
            schedule="cosine",
            threads=1,
            reductions=("20 epochs instead of 40", "a learning rate that falls to zero"),
        ),
    }

    def load(self, root: Path | None, profile: Profile, seed: int) -> Data:
        images, labels = sources()
        generator = torch.Generator().manual_seed(seed)
        pools = torch.randperm(len(images), generator=generator).split(list(SOURCES.values()))
        pairs = (draw_pairs(pool, count, generator) for pool, count in zip(pools, PAIRS.values(), strict=True))
        return Data(*(Split(overlay(images[one], images[other]), (labels[one], labels[other])) for one, other in pairs))

    def prepare(self, batch: Split, generator: torch.Generator | None) -> Split:
        return batch


@cache
def sources() -> tuple[Tensor, Tensor]:
    """The 1,797 digits [n, 8, 8] with values in 0..1, and what they are."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    return torch.from_numpy(images / 16.0).float().view(-1, DIGIT, DIGIT), torch.from_numpy(labels).long()


def draw_pairs(pool: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Two sources [2, count] for each image, with replacement."""
    return pool[torch.randint(len(pool), (2, count), generator=generator)]


def overlay(first: Tensor, second: Tensor) -> Tensor:
    """Images [n, CANVAS, CANVAS]: one digit top left, the other bottom right, the brighter pixel on top."""
    left, right = torch.zeros(2, len(first), CANVAS, CANVAS)
    left[:, :DIGIT, :DIGIT] = first
    right[:, -DIGIT:, -DIGIT:] = second
    return torch.maximum(left, right)


BENCHMARKS = {"digits": Digits}
