"""Cityscapes: segmentation and inverse depth of street scenes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from .. import Data, DataSource, Metric, Profile, find
from ._dense import Dense, divide, read_folder

TRAIN, OF = 2500, 2975  # the other 475 are for validation
FEW, MANY = 7, 19  # classes
LAYOUTS = [
    [f"cityscapes/{split}/{part}" for split in ("train", "val") for part in ("image", label, "depth")]
    for label in (f"label_{MANY}", f"label_{FEW}", "label")
]


SOURCE = DataSource(
    "The Cityscapes Dataset for Semantic Urban Scene Understanding (CVPR 2016)",
    "M. Cordts, M. Omran, S. Ramos, T. Rehfeld, M. Enzweiler, R. Benenson, U. Franke, S. Roth, B. Schiele",
    "https://www.cityscapes-dataset.com",
    "its own terms: non-commercial, after registration",
)


class Cityscapes(Dense):
    """Street scenes at 128x256; the validation images of the data set are the test set.

    The primary metric, delta_m, is the mean relative improvement of the four others, in percent, over single-task
    networks in the literature, which have 7 classes.
    """

    name = "cityscapes"
    source = SOURCE
    objectives = ("segmentation", "depth")
    kinds = ("classification", "regression")
    metrics = (
        Metric("delta_m", True, gain="points"),
        Metric("miou", True),
        Metric("pix_acc", True),
        Metric("abs_err", False, 4),
        Metric("rel_err", False),
    )
    bases: Mapping[str, float] = {"miou": 74.01, "pix_acc": 93.16, "abs_err": 0.0125, "rel_err": 27.77}
    profiles: Mapping[str, Profile] = {
        "paper": Profile(epochs=100, batch=8, lr=1e-4, model="segnet:width=64", schedule="halve:every=75"),
        "cpu": Profile(
            epochs=5,
            batch=8,
            lr=1e-3,
            model="segnet:width=8:stages=3",
            reductions=(
                "images of 64x128 instead of 128x256",
                "a SegNet of three stages of 8 to 32 filters instead of five of 64 to 512",
                "5 epochs instead of 100, without a schedule",
                "learning rate 1e-3 instead of 1e-4, for the shorter run",
            ),
            options={"size": (64, 128)},
        ),
    }
    files = LAYOUTS
    layout = (
        "  cityscapes/train/{image,label,depth}/<k>.npy and cityscapes/val/... as MTAN has them (128x256);\n"
        "  the labels, of 19 or 7 classes, may be in label_19 or label_7 instead of label"
    )

    def load(self, root: Path | None, profile: Profile, seed: int) -> Data:
        """Options: ``size`` (height, width) to reduce to; ``classes``, 19 or 7, where there are both."""
        classes = profile.options.get("classes")
        if classes not in (None, FEW, MANY):
            raise ValueError(f"classes must be {FEW} or {MANY}, got {classes!r}")
        others = [f"/label_{number}" for number in (MANY, FEW) if classes not in (None, number)]
        layouts = [names for names in self.files if not any(name.endswith(tuple(others)) for name in names)]
        found = find(root, self.name, self.layout, *layouts)
        parts = tuple(path.name for path in found[:3])
        train, test = (read_folder(path.parent, parts, profile.options.get("size")) for path in (found[0], found[3]))
        data = Data(*divide(train, TRAIN, OF), test)
        if classes not in (None, self.classes(data)):
            raise ValueError(f"{found[1]} has labels of {self.classes(data)} classes, not of {classes}")
        return data

    def classes(self, data: Data) -> int:
        """Read from the labels: copies with 7 classes and with 19 are both in use."""
        largest = max(int(split.targets[0].max()) for split in (data.train, data.validation, data.test) if len(split))
        if largest >= MANY:
            raise ValueError(f"Cityscapes has at most {MANY} classes, but a label is {largest}")
        return FEW if largest < FEW else MANY


BENCHMARKS = {"cityscapes": Cityscapes}
