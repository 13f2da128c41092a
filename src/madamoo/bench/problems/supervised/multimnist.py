"""MultiMNIST: two overlapping digits in one image, each to be read."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from .. import Data, DataSource, FrontSpec, Metric, Profile, Split, Supervised, Tally, cached

DIGIT, CANVAS, SHIFT = 28, 36, 6
TRAIN, VALIDATION, TEST = 50_000, 10_000, 10_000
SEED = 0  # of the images, which are the same for every run

FILES = (
    "mnist/train-images-idx3-ubyte.gz",
    "mnist/train-labels-idx1-ubyte.gz",
    "mnist/t10k-images-idx3-ubyte.gz",
    "mnist/t10k-labels-idx1-ubyte.gz",
)
RAW = [name.removeprefix("mnist/").removesuffix(".gz") for name in FILES]


SOURCE = DataSource(
    "The MNIST database of handwritten digits",
    "Y. LeCun, C. Cortes, C. J. C. Burges",
    "http://yann.lecun.com/exdb/mnist/",
    "CC BY-SA 3.0",
)


class TwoDigits(Supervised):
    """Two classifications of one image; the data are the subclass's."""

    objectives = ("left", "right")
    kinds = ("classification", "classification")
    metrics = (Metric("avg_acc", True), Metric("left_acc", True), Metric("right_acc", True))
    front = FrontSpec(
        metrics=("left_acc", "right_acc"),
        units=(100.0, 100.0),
        reference=(0.0, 0.0),
        rays=11,
        methods={"pamal": {"count": 4}, "palora": {"rank": 1, "sampler": "deterministic", "count": 3}},
    )

    def shape(self, data: Data) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return tuple(data.train.inputs.shape[1:]), (10, 10)

    def prepare(self, batch: Split, generator: torch.Generator | None) -> Split:
        return Split(batch.inputs.float() / 255, batch.targets)

    def criteria(self, outputs: Sequence[Tensor], targets: Sequence[Tensor]) -> list[Tensor]:
        return [F.cross_entropy(z, y) for z, y in zip(outputs, targets, strict=True)]

    def tally(self, outputs: Sequence[Tensor], targets: Sequence[Tensor]) -> Tally:
        right = [(z.argmax(1) == y).sum() for z, y in zip(outputs, targets, strict=True)]
        return {"right": torch.stack(right), "count": torch.tensor(len(targets[0]))}

    def summarise(self, tally: Tally) -> dict[str, float]:
        """Accuracies in per cent."""
        left, right = (100.0 * tally["right"].double() / tally["count"]).tolist()
        return {"avg_acc": (left + right) / 2, "left_acc": left, "right_acc": right}


class MultiMNIST(TwoDigits):
    name = "multimnist"
    source = SOURCE
    profiles = {
        "paper": Profile(epochs=10, batch=256, lr=1e-3, model="lenet"),
        "cpu": Profile(
            epochs=10,
            batch=128,
            lr=3e-3,
            model="lenet",
            schedule="cosine",
            threads=1,
            options={"train": 20_000, "validation": 5_000},
            reductions=(
                "20,000 training images instead of 50,000, 5,000 validation images instead of 10,000",
                "batches of 128 instead of 256",
                "learning rate 3e-3, falling to zero, instead of 1e-3 throughout",
            ),
        ),
    }
    files = (FILES, [f"mnist/{n}" for n in RAW], [f"mnist/MNIST/raw/{n}" for n in RAW])
    layout = "\n".join(f"  {name}" for name in FILES) + "\n(or the same without .gz, or in mnist/MNIST/raw/)"

    def load(self, root: Path | None, profile: Profile, seed: int) -> Data:
        made = make_images(self.name, self.locate(root), compose, TRAIN + VALIDATION, TEST)
        return divided(Split(made["images"], tuple(made["labels"].unbind(1))), TRAIN, VALIDATION, profile)


def divided(whole: Split, train: int, validation: int, profile: Profile) -> Data:
    """Images in the order training, validation, test; of the first two a profile may want fewer than there are."""
    fewer = [int(profile.options.get(name, count)) for name, count in (("train", train), ("validation", validation))]
    return Data(whole[: fewer[0]], whole[train : train + fewer[1]], whole[train + validation :])


def make_images(
    name: str,
    files: Sequence[Path],
    compose: Callable[[Tensor, Tensor, int, torch.Generator], tuple[Tensor, Tensor]],
    train: int,
    test: int,
) -> dict[str, Tensor]:
    """``train`` images made by ``compose`` from MNIST's training digits, then ``test`` from its test digits."""

    def make() -> dict[str, Tensor]:
        arrays = [read_idx(file) for file in files]
        generator = torch.Generator().manual_seed(SEED)
        first = compose(arrays[0], arrays[1], train, generator)
        second = compose(arrays[2], arrays[3], test, generator)
        return {"images": torch.cat([first[0], second[0]]), "labels": torch.cat([first[1], second[1]])}

    return cached(name, files, make, key=f"version 1, seed {SEED}")


def read_idx(file: Path) -> Tensor:
    """The array in an idx file of unsigned bytes, compressed or not."""
    try:
        content = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{file} is damaged: {error}") from None
    dims = content[3] if len(content) > 3 else 0
    if content[:3] != b"\0\0\x08" or not 1 <= dims <= 3 or len(content) < 4 + 4 * dims:
        raise ValueError(f"{file} is not an idx file of unsigned bytes")
    shape = np.frombuffer(content, ">i4", dims, 4)
    values = np.frombuffer(content, np.uint8, offset=4 + 4 * dims)
    if len(values) != shape.prod():
        raise ValueError(f"{file} says it holds {'x'.join(map(str, shape))} bytes, but holds {len(values)}")
    return torch.from_numpy(values.reshape(shape).copy())


def compose(images: Tensor, labels: Tensor, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """``count`` images [n, 1, 28, 28] of two different sources each, and both labels [n, 2].

    One digit lies top left on a canvas of 36x36, the other six pixels further down and to the right; the brighter pixel
    shows where they overlap; the canvas is then resized.
    """
    first = torch.randint(len(images), (count,), generator=generator)
    second = torch.randint(len(images) - 1, (count,), generator=generator)
    second = second + (second >= first)  # any but the first
    made = []
    for one, other in zip(first.split(5000), second.split(5000), strict=True):
        left, right = torch.zeros(2, len(one), CANVAS, CANVAS)
        left[:, :DIGIT, :DIGIT] = images[one].float()
        right[:, SHIFT : SHIFT + DIGIT, SHIFT : SHIFT + DIGIT] = images[other].float()
        canvas = torch.maximum(left, right).unsqueeze(1)
        small = F.interpolate(canvas, size=(DIGIT, DIGIT), mode="bilinear", antialias=True)
        made.append(small.round().clamp(0, 255).to(torch.uint8))
    return torch.cat(made), torch.stack([labels[first], labels[second]], 1).long()


BENCHMARKS = {"multimnist": MultiMNIST}
