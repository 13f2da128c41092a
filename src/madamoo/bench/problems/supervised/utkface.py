"""UTKFace: age, gender and race from a photograph of a face."""

from __future__ import annotations

import re
import sys
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .. import Data, DataSource, FrontSpec, Metric, Profile, Split, Supervised, Tally, cached, shuffled
from ._relative import delta_m

SIZE = 64
RACES = 5
OLDEST = 116.0  # the largest age in the data: ages are divided by it, so that they lie in [0, 1]
SPLIT_SEED = 42  # the same split in all runs
NAME = re.compile(r"(\d+)_([01])_([0-4])_")  # age_gender_race_date; three of the real names lack the race
BASES = {"age_mae": 9.14, "gender_acc": 90.76, "race_acc": 81.60}  # the paper's equal weights with Adam


SOURCE = DataSource(
    "UTKFace, of Age Progression/Regression by Conditional Adversarial Autoencoder (CVPR 2017)",
    "Z. Zhang, Y. Song, H. Qi",
    "https://susanqq.github.io/UTKFace/",
    "non-commercial research only",
)


class UTKFace(Supervised):
    """The aligned and cropped faces, split 70 / 10 / 20.

    The primary metric, delta_m, is the mean relative improvement of the three others, in percent, over what the paper
    reports for equal weights with Adam: 0 is as good as that.
    """

    name = "utkface"
    source = SOURCE
    objectives = ("age", "gender", "race")
    kinds = ("regression", "classification", "classification")
    metrics = (
        Metric("delta_m", True, gain="points"),
        Metric("age_mae", False),
        Metric("gender_acc", True),
        Metric("race_acc", True),
    )
    front = FrontSpec(
        metrics=("age_mae", "gender_acc", "race_acc"),
        units=(OLDEST, 100.0, 100.0),
        reference=(0.5, 0.0, 0.0),
        rays=66,
        methods={
            "pamal": {"count": 3, "concentration": 2.0, "normalise": True},
            "palora": {"rank": 4, "sampler": "annealed", "concentration": 2.0, "count": 2},
        },
    )
    profiles: Mapping[str, Profile] = {
        "paper": Profile(epochs=100, batch=256, lr=1e-3, model="resnet:width=64"),
        "cpu": Profile(
            epochs=8,
            batch=128,
            lr=1e-3,
            model="resnet:width=16:blocks=1",
            reductions=(
                "images of 32x32 instead of 64x64",
                "a ResNet of 16 to 128 filters with one block per stage instead of 64 to 512 with two",
                "8 epochs of batches of 128 instead of 100 of 256",
            ),
            options={"size": 32},
        ),
    }
    files = (("utkface/UTKFace",),)
    layout = (
        "  utkface/*.tar.gz  an archive of images, or\n"
        "  utkface/UTKFace/  a folder of images, of any size,\n"
        "both named [age]_[gender]_[race]_[date].jpg.chip.jpg"
    )

    def locate(self, root: Path | None) -> list[Path]:
        archives = [] if root is None else sorted((root / "utkface").glob("*.tar.gz"))
        return archives[:1] or super().locate(root)

    def load(self, root: Path | None, profile: Profile, seed: int) -> Data:
        """Options: ``size`` of the images, and ``train``, how many of the training images are used."""
        (source,) = self.locate(root)
        size = profile.options.get("size", SIZE)
        files = sorted(source.glob("*.jpg")) if source.is_dir() else [source]
        stored = cached(f"utkface-{size}", files, lambda: _decode(source, size), key=f"{source} {size}")
        age, gender, race = stored["labels"].T
        everything = Split(stored["images"], (age / OLDEST, gender.float(), race.long()))
        order = shuffled(len(everything), SPLIT_SEED)
        train, validation = int(0.7 * len(order)), int(0.1 * len(order))
        return Data(
            everything[order[:train][: profile.options.get("train")]],
            everything[order[train : train + validation]],
            everything[order[train + validation :]],
        )

    def shape(self, data: Data) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return tuple(data.train.inputs.shape[1:]), (1, 1, RACES)

    def prepare(self, batch: Split, generator: torch.Generator | None) -> Split:
        return Split(batch.inputs.float() / 255.0, batch.targets)

    def criteria(self, outputs: Sequence[Tensor], targets: Sequence[Tensor]) -> list[Tensor]:
        age, gender, race = outputs
        return [
            F.huber_loss(age.squeeze(1), targets[0]),
            F.binary_cross_entropy_with_logits(gender.squeeze(1), targets[1]),
            F.cross_entropy(race, targets[2]),
        ]

    def tally(self, outputs: Sequence[Tensor], targets: Sequence[Tensor]) -> Tally:
        age, gender, race = outputs
        return {
            "years": OLDEST * (age.squeeze(1) - targets[0]).abs().double().sum(),
            "gender": ((gender.squeeze(1) > 0) == (targets[1] > 0.5)).sum(),
            "race": (race.argmax(1) == targets[2]).sum(),
            "count": torch.tensor(len(age)),
        }

    def summarise(self, tally: Tally) -> dict[str, float]:
        """Age in years, accuracies in percent."""
        count = int(tally["count"])
        values = {
            "age_mae": float(tally["years"]) / count,
            "gender_acc": 100.0 * float(tally["gender"]) / count,
            "race_acc": 100.0 * float(tally["race"]) / count,
        }
        return {"delta_m": delta_m(values, BASES, self.metrics), **values}


def _decode(source: Path, size: int) -> dict[str, Tensor]:
    """Images uint8 [n, 3, size, size] and labels int16 [n, 3], in the order of the names, whatever the layout."""
    labels: dict[str, list[int]] = {}
    images: dict[str, Tensor] = {}
    malformed = 0
    for name, file in _files(source):
        match = NAME.match(name)
        if match is None:
            malformed += 1
            continue
        labels[name] = [int(text) for text in match.groups()]
        images[name] = _image(file, size)
    if malformed:
        print(f"madamoo: {malformed} images of {source} skipped, their names lack a label", file=sys.stderr)
    if not images:
        raise ValueError(f"{source} has no image named [age]_[gender]_[race]_[date].jpg")
    names = sorted(images)
    return {
        "images": torch.stack([images[name] for name in names]),
        "labels": torch.tensor([labels[name] for name in names], dtype=torch.int16),
    }


def _files(source: Path) -> Iterator[tuple[str, IO[bytes]]]:
    if source.is_dir():
        for path in source.glob("*.jpg"):
            with path.open("rb") as file:
                yield path.name, file
        return
    with tarfile.open(source) as archive:
        for member in archive:
            content = archive.extractfile(member) if member.name.endswith(".jpg") else None
            if content is not None:
                yield Path(member.name).name, content


def _image(file: IO[bytes], size: int) -> Tensor:
    """Resized to 64x64 first, so that both layouts give the same, then by averaging areas."""
    import numpy as np
    from PIL import Image

    image: Any = Image.open(file).convert("RGB")
    if image.size != (SIZE, SIZE):
        image = image.resize((SIZE, SIZE), Image.Resampling.BILINEAR)
    pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1)
    if size == SIZE:
        return pixels.contiguous()
    return F.interpolate(pixels[None].float(), size=(size, size), mode="area")[0].round().byte()


BENCHMARKS = {"utkface": UTKFace}
