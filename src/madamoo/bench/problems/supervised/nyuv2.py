"""NYUv2: 13-class segmentation, depth and surface normals of indoor scenes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from .. import Data, DataSource, Metric, Profile, Split, Tally, cached, find
from ._dense import IGNORE, Dense, divide, read_folder

CLASSES = 13
TRAIN, OF = 700, 795  # the other 95 are for validation
SMALL = "nyuv2/nyuv2_72x96.npz"
PARTS = ("image", "label", "depth", "normal")
FOLDERS = tuple(f"nyuv2/{split}/{part}" for split in ("train", "val") for part in PARTS)

BINS_PER_DEGREE = 100  # of the histogram from which the median angle is read
THRESHOLDS = {"within_11": 11.25, "within_22": 22.5, "within_30": 30.0}

# The colour camera of the Kinect, for 640x480 pixels, from the toolbox of the data set.
FOCAL = (518.857901, 519.469611)
CENTRE = (325.582449, 253.736166)
FRAME = (640, 480)
WINDOW = 5  # pixels on each side of the square to which a plane is fitted
ROUGHNESS = 0.03  # the largest root mean square deviation from that plane, as a part of the inverse depth


SOURCE = DataSource(
    "NYU Depth V2, of Indoor Segmentation and Support Inference from RGBD Images (ECCV 2012)",
    "N. Silberman, D. Hoiem, P. Kohli, R. Fergus",
    "https://cs.nyu.edu/~fergus/datasets/nyu_depth_v2.html",
    "none stated; for research",
)


class NYUv2(Dense):
    """Indoor scenes, 795 for training (95 of them for validation) and 654 for the test.

    The primary metric, delta_m, is the mean relative improvement of the nine others, in percent, over single-task
    networks in the literature. Normals are camera coordinates: x to the right, y down, z away, towards the camera.
    """

    name = "nyuv2"
    source = SOURCE
    objectives = ("segmentation", "depth", "normals")
    kinds = ("classification", "regression", "regression")
    metrics = (
        Metric("delta_m", True, gain="points"),
        Metric("miou", True),
        Metric("pix_acc", True),
        Metric("abs_err", False, 4),
        Metric("rel_err", False, 4),
        Metric("angle_mean", False),
        Metric("angle_median", False),
        Metric("within_11", True),
        Metric("within_22", True),
        Metric("within_30", True),
    )
    bases: Mapping[str, float] = dict(
        zip(
            (metric.name for metric in metrics[1:]),
            (38.30, 63.76, 0.6754, 0.2780, 25.01, 19.21, 30.14, 57.20, 69.15),
            strict=True,
        )
    )
    profiles: Mapping[str, Profile] = {
        "paper": Profile(epochs=200, batch=2, lr=1e-4, model="segnet:width=64", schedule="halve:every=100"),
        "cpu": Profile(
            epochs=16,
            batch=8,
            lr=1e-3,
            model="segnet:width=8:stages=3",
            schedule="halve:every=8",
            reductions=(
                "frames of 72x96 instead of 288x384",
                "a SegNet of three stages of 8 to 32 filters instead of five of 64 to 512",
                "16 epochs of batches of 8 instead of 200 of 2",
                "learning rate 1e-3 instead of 1e-4, halved after 8 epochs instead of 100, for the shorter run",
                "normals derived from depth, if the data are nyuv2_72x96.npz",
            ),
            options={"size": (72, 96)},
        ),
    }
    files = (FOLDERS, (SMALL,))
    layout = (
        "  nyuv2/train/{image,label,depth,normal}/<k>.npy and nyuv2/val/... as MTAN has them (288x384), or\n"
        "  nyuv2/nyuv2_72x96.npz with x, depth8, label13, train_idx and test_idx; normals are derived from depth"
    )

    def load(self, root: Path | None, profile: Profile, seed: int) -> Data:
        """Option: ``size`` (height, width), to which MTAN's files are reduced; with it, the small file comes first."""
        size = profile.options.get("size")
        layouts = [FOLDERS, (SMALL,)] if size is None else [(SMALL,), FOLDERS]
        found = find(root, self.name, self.layout, *layouts)
        if len(found) == 1:
            train, test = _read_small(found[0])
        else:
            train, test = (read_folder(path.parent, PARTS, size) for path in (found[0], found[len(PARTS)]))
        return Data(*divide(train, TRAIN, OF), test)

    def classes(self, data: Data) -> int:
        return CLASSES

    def shape(self, data: Data) -> tuple[tuple[int, ...], tuple[int, ...]]:
        inputs, outputs = super().shape(data)
        return inputs, (*outputs, 3)

    def criteria(self, outputs: Sequence[Tensor], targets: Sequence[Tensor]) -> list[Tensor]:
        valid = (targets[2] != 0).any(1)
        cosine = (F.normalize(outputs[2], dim=1) * targets[2]).sum(1)
        normals = ((1.0 - cosine) * valid).sum() / valid.sum().clamp(min=1)
        return [*super().criteria(outputs, targets), normals]

    def tally(self, outputs: Sequence[Tensor], targets: Sequence[Tensor]) -> Tally:
        valid = (targets[2] != 0).any(1)
        truth = F.normalize(targets[2].double(), dim=1)
        cosine = (F.normalize(outputs[2].double(), dim=1) * truth).sum(1)[valid]
        angles = cosine.clamp(-1.0, 1.0).acos().rad2deg()
        bins = (angles * BINS_PER_DEGREE).long().clamp(max=180 * BINS_PER_DEGREE - 1)
        return {
            **super().tally(outputs, targets),
            "angles": torch.bincount(bins, minlength=180 * BINS_PER_DEGREE),
            "angle_sum": angles.sum(),
            "within": torch.stack([(angles < limit).sum() for limit in THRESHOLDS.values()]),
        }

    def values(self, tally: Tally) -> dict[str, float]:
        histogram = tally["angles"]
        count = int(histogram.sum())
        median = int((histogram.cumsum(0) >= (count + 1) // 2).int().argmax())
        within = (100.0 * tally["within"].double() / count).tolist()
        return {
            **super().values(tally),
            "angle_mean": float(tally["angle_sum"]) / count,
            "angle_median": (median + 0.5) / BINS_PER_DEGREE,
            **dict(zip(THRESHOLDS, within, strict=True)),
        }


def normals_from_depth(depth: Tensor) -> Tensor:
    """Unit normals [n, 3, H, W] of surfaces at ``depth`` [n, H, W] (metres); zero where they are not known.

    A plane is a.X = 1, and a pixel sees X = z (x, y, 1) with x = (u - cx) / fx and y = (v - cy) / fy. So 1 / z, which
    is a.(x, y, 1), is linear in u and v. A least-squares fit to 1 / z around each pixel gives its value and slopes
    there, and these give a; the normal is -a / |a|, which faces the camera. (The cross product of the differences of
    neighbouring points is the same on a plane, but the depth of the small file, in steps of 4 cm, is too coarse for
    that.) Not known are normals at the frame's border, near pixels without depth, and where the fit is bad: at edges.
    """
    return torch.cat([_normals(part) for part in depth.split(64)])


def _normals(depth: Tensor) -> Tensor:
    height, width = depth.shape[1:]
    scale = torch.tensor([width / FRAME[0], height / FRAME[1]], dtype=torch.float64)
    fx, fy = (scale * torch.tensor(FOCAL)).tolist()
    cx, cy = (scale * (torch.tensor(CENTRE) + 0.5) - 0.5).tolist()  # pixels are counted from their centres
    known = (depth > 0).double()[:, None]
    inverse = torch.where(depth > 0, 1.0 / depth, 0.0).double()[:, None]

    ones = torch.ones(1, 1, WINDOW, WINDOW, dtype=torch.float64)
    along = torch.arange(WINDOW, dtype=torch.float64) - WINDOW // 2
    across = along.expand(1, 1, WINDOW, WINDOW)
    spread = across.square().sum()
    pad = WINDOW // 2
    mean = F.conv2d(inverse, ones, padding=pad) / WINDOW**2
    slope_u = F.conv2d(inverse, across, padding=pad) / spread
    slope_v = F.conv2d(inverse, across.transpose(2, 3), padding=pad) / spread
    squares = F.conv2d(inverse.square(), ones, padding=pad) / WINDOW**2
    variance = squares - mean.square() - (slope_u.square() + slope_v.square()) * spread / WINDOW**2

    whole = F.conv2d(known, ones, padding=pad) > WINDOW**2 - 0.5
    valid = whole & (variance <= (ROUGHNESS * mean).square())
    x = (torch.arange(width, dtype=torch.float64) - cx) / fx
    y = (torch.arange(height, dtype=torch.float64)[:, None] - cy) / fy
    a = torch.cat([fx * slope_u, fy * slope_v, mean - fx * slope_u * x - fy * slope_v * y], dim=1)
    return torch.where(valid, -F.normalize(a, dim=1), 0.0).float()


def _read_small(file: Path) -> tuple[Split, Split]:
    def read() -> dict[str, Tensor]:
        with np.load(file) as stored:
            arrays = {name: torch.from_numpy(array) for name, array in stored.items()}
        depth = arrays["depth8"].float() / 25.5
        labels = arrays["label13"].short()
        return {
            "images": arrays["x"].permute(0, 3, 1, 2).contiguous(),
            "labels": torch.where(labels == 255, IGNORE, labels).to(torch.int8),
            "depth": depth,
            "normals": normals_from_depth(depth).half(),
            "train": arrays["train_idx"].long(),
            "test": arrays["test_idx"].long(),
        }

    stored = cached("nyuv2-72x96", [file], read, key=f"window {WINDOW}, roughness {ROUGHNESS}")
    whole = Split(stored["images"], (stored["labels"], stored["depth"], stored["normals"]))
    return whole[stored["train"]], whole[stored["test"]]


BENCHMARKS = {"nyuv2": NYUv2}
