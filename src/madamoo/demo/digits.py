"""Two-digit images in the manner of MultiMNIST, made from the 8x8 digits that come with scikit-learn."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
from sklearn.datasets import load_digits
from torch import Tensor

DIGIT = 8  # side of a source image
CANVAS = 12  # side of a composed one: the two digits share a square of 4x4 pixels in the middle
TASKS = ("left", "right")

TEST_SOURCES = 500  # of 1797
TRAIN_PAIRS = 4000
TEST_PAIRS = 2000


@dataclass(frozen=True)
class Pairs:
    """Composed images [n, CANVAS, CANVAS] with values in 0..1, and the two digits in each, [2, n].

    ``sources`` [2, n] are the source images each was made from.
    """

    images: Tensor
    labels: Tensor
    sources: Tensor

    def __len__(self) -> int:
        return len(self.images)


@cache
def _sources() -> tuple[Tensor, Tensor]:
    images, labels = load_digits(return_X_y=True)
    return torch.from_numpy(images / 16.0).float().view(-1, DIGIT, DIGIT), torch.from_numpy(labels).long()


def make_data(seed: int) -> tuple[Pairs, Pairs]:
    """Training and test pairs. The source images are split first: none is in both."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(_sources()[0]), generator=generator)
    train, test = order[TEST_SOURCES:], order[:TEST_SOURCES]
    return _compose(train, TRAIN_PAIRS, generator), _compose(test, TEST_PAIRS, generator)


def _compose(pool: Tensor, count: int, generator: torch.Generator) -> Pairs:
    """Draw ``count`` pairs from ``pool``: one digit top left, the other bottom right, the brighter pixel on top."""
    digits, labels = _sources()
    sources = pool[torch.randint(len(pool), (len(TASKS), count), generator=generator)]
    left, right = torch.zeros(2, count, CANVAS, CANVAS)
    left[:, :DIGIT, :DIGIT] = digits[sources[0]]
    right[:, -DIGIT:, -DIGIT:] = digits[sources[1]]
    return Pairs(torch.maximum(left, right), labels[sources], sources)
