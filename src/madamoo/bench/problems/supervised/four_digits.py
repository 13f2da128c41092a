"""Four digits: forty yes-or-no questions about one image, from MNIST. The benchmark for many objectives."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from .. import Data, Metric, Profile, Split, Supervised, Tally
from .multimnist import MultiMNIST, divided, make_images

CORNERS, CLASSES = 4, 10
TRAIN, VALIDATION, TEST = 30_000, 5_000, 10_000


class FourDigits(Supervised):
    """One small digit in each quarter of the image; objective ``2-7`` asks whether the third one is a seven.

    Nine answers of ten are no, so accuracy is counted by quarters: of the ten answers about a quarter, the most certain
    yes must be the right one. F1 is that of the single questions, at odds of one half.
    """

    name = "four-digits"
    source = MultiMNIST.source
    objectives = tuple(f"{corner}-{digit}" for corner in range(CORNERS) for digit in range(CLASSES))
    kinds = ("classification",) * len(objectives)
    metrics = (Metric("avg_acc", True), Metric("avg_f1", True), Metric("worst_f1", True))
    profiles = {
        "paper": Profile(epochs=20, batch=128, lr=1e-3, model="mlp:depth=2:width=512"),
        "cpu": Profile(
            epochs=6,
            batch=128,
            lr=3e-3,
            model="mlp:depth=2:width=128",
            schedule="cosine",
            threads=1,
            options={"train": 12_000, "validation": 2_000},
            reductions=(
                "12,000 training images instead of 30,000, 2,000 validation images instead of 5,000",
                "6 epochs instead of 20, width 128 instead of 512",
                "a learning rate that falls to zero",
            ),
        ),
    }
    files = MultiMNIST.files
    layout = MultiMNIST.layout

    def load(self, root: Path | None, profile: Profile, seed: int) -> Data:
        made = make_images(self.name, self.locate(root), compose, TRAIN + VALIDATION, TEST)
        answers = F.one_hot(made["labels"], CLASSES).flatten(1).float()
        return divided(Split(made["images"], tuple(answers.T.contiguous().unbind())), TRAIN, VALIDATION, profile)

    def shape(self, data: Data) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return tuple(data.train.inputs.shape[1:]), (1,) * len(self.objectives)

    def prepare(self, batch: Split, generator: torch.Generator | None) -> Split:
        return Split(batch.inputs.float() / 255, batch.targets)

    def criteria(self, outputs: Sequence[Tensor], targets: Sequence[Tensor]) -> list[Tensor]:
        return [F.binary_cross_entropy_with_logits(z[:, 0], y) for z, y in zip(outputs, targets, strict=True)]

    def tally(self, outputs: Sequence[Tensor], targets: Sequence[Tensor]) -> Tally:
        z, y = torch.cat([*outputs], 1), torch.stack([*targets], 1)
        quarters = [x.view(len(x), CORNERS, CLASSES).argmax(2) for x in (z, y)]
        yes, true = z > 0, y > 0
        return {
            "right": (quarters[0] == quarters[1]).sum(),
            "count": torch.tensor(CORNERS * len(z)),
            "hits": (yes & true).sum(0),
            "claims": yes.sum(0) + true.sum(0),
        }

    def summarise(self, tally: Tally) -> dict[str, float]:
        """In per cent; a question that is never answered yes, rightly or wrongly, has an F1 of 0."""
        f1 = 100.0 * 2.0 * tally["hits"].double() / tally["claims"].clamp_min(1)
        accuracy = 100.0 * float(tally["right"]) / float(tally["count"])
        return {"avg_acc": accuracy, "avg_f1": float(f1.mean()), "worst_f1": float(f1.min())}


def compose(images: Tensor, labels: Tensor, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """``count`` images [n, 1, 28, 28] of four digits at half their size each, row by row, and what they are [n, 4]."""
    chosen = torch.randint(len(images), (count, CORNERS), generator=generator)
    made = []
    for some in chosen.split(5000):
        small = F.avg_pool2d(images[some].float(), 2).round().to(torch.uint8)  # [n, 4, 14, 14]
        rows = [torch.cat([small[:, k], small[:, k + 1]], 2) for k in (0, 2)]
        made.append(torch.cat(rows, 1).unsqueeze(1))
    return torch.cat(made), labels[chosen].long()


BENCHMARKS = {"four-digits": FourDigits}
