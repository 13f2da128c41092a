"""The multi-target regression sets of the Mulan collection: 2 to 16 objectives on a few hundred rows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from .. import Data, DataSource, Metric, Profile, Split, Tally, shuffled
from ._regression import Regression, squared_errors

TARGETS = {  # the last so many columns of each file
    "andro": 6,
    "atp1d": 6,
    "atp7d": 6,
    "edm": 2,
    "enb": 2,
    "jura": 3,
    "oes10": 16,
    "oes97": 16,
    "osales": 12,
    "scpf": 3,
    "sf1": 3,
    "sf2": 3,
    "slump": 3,
    "wq": 14,
}
TRAIN, VALIDATION = 0.6, 0.2  # shares of the rows; the rest is the test set


SOURCE = DataSource(
    "Multi-target regression via input space expansion (Machine Learning, 2016), the sets of the Mulan library",
    "E. Spyromitros-Xioufis, G. Tsoumakas, W. Groves, I. Vlahavas",
    "http://mulan.sourceforge.net/datasets-mtr.html",
    "none stated; each set has owners of its own",
)


class Mulan(Regression):
    """One of the sets, split by the seed of the run; inputs and targets are standardised by the training rows.

    The metric is the field's own, the relative root mean squared error, in per cent: 100 is what predicting the
    training mean would give. The sets are small enough to be learned by heart, so the epoch that is best on validation
    data counts.
    """

    def __init__(self, dataset: str) -> None:
        count = TARGETS[dataset]
        self.name = f"mulan/{dataset}"
        self.objectives = tuple(f"y{k + 1}" for k in range(count))
        self.kinds = ("regression",) * count
        self.metrics = (Metric("avg_rrmse", False), *(Metric(name, False) for name in self.objectives))
        self.source = SOURCE
        self.files = ((f"mulan/{dataset}.arff",),)
        self.layout = f"  mulan/{dataset}.arff  (the last {count} columns are the targets)"

    profiles = {
        "paper": Profile(epochs=200, batch=32, lr=1e-3, model="mlp:depth=2:width=256", threads=1, keep="best"),
        "cpu": Profile(
            epochs=80,
            batch=32,
            lr=3e-3,
            model="mlp:depth=2:width=128",
            schedule="cosine",
            threads=1,
            keep="best",
            reductions=("80 epochs instead of 200", "width 128 instead of 256", "a learning rate that falls to zero"),
        ),
    }

    def load(self, root: Path | None, profile: Profile, seed: int) -> Data:
        (file,) = self.locate(root)
        inputs, targets = read_arff(file, len(self.objectives))
        order = shuffled(len(inputs), seed)
        sizes = [int(TRAIN * len(order)), int(VALIDATION * len(order))]
        parts = order.split([*sizes, len(order) - sum(sizes)])
        inputs, targets = (_standardise(columns, parts[0]) for columns in (inputs, targets))
        return Data(*(Split(inputs[rows], tuple(targets[rows].T.contiguous().unbind())) for rows in parts))

    def tally(self, outputs: Sequence[Tensor], targets: Sequence[Tensor]) -> Tally:
        squares = torch.stack([*targets]).double().square().sum(1)
        return {"errors": squared_errors(outputs, targets), "squares": squares}

    def summarise(self, tally: Tally) -> dict[str, float]:
        """100 times the root of (squared error / squared error of the training mean, which is 0 here)."""
        return self.average(100.0 * (tally["errors"] / tally["squares"]).sqrt())


def read_arff(file: Path, targets: int) -> tuple[Tensor, Tensor]:
    """Inputs and targets [n, ...]: numbers as they are (NaN where missing), nominal attributes one-hot."""
    from scipy.io import arff

    try:
        rows, meta = arff.loadarff(file)
    except Exception as error:  # scipy has many for a damaged file, and none names it
        raise ValueError(f"{file} cannot be read: {type(error).__name__}: {error}") from None
    if len(rows) < 5 or len(meta.names()) <= targets:
        raise ValueError(f"{file} has {len(rows)} rows of {len(meta.names())} columns: too few for {targets} targets")
    columns = []
    for name in meta.names():
        kind, values = meta[name]
        if kind == "numeric":
            columns.append([rows[name].astype(np.float64)])
        else:
            columns.append([(rows[name] == value.encode()).astype(np.float64) for value in values])
    inputs, outputs = columns[:-targets], columns[-targets:]
    stacked = (np.stack([c for group in part for c in group], 1) for part in (inputs, outputs))
    x, y = (torch.from_numpy(array).float() for array in stacked)
    if y.isnan().any():
        raise ValueError(f"{file} lacks some of its targets")
    return x, y


def _standardise(columns: Tensor, train: Tensor) -> Tensor:
    """Mean 0 and deviation 1 over the training rows; a missing value becomes the mean, a constant column 0."""
    known = columns[train]
    mean = known.nanmean(0)
    deviation = (known - mean).square().nanmean(0).sqrt()
    scaled = (columns - mean) / torch.where(deviation > 1e-6 * mean.abs().clamp_min(1e-6), deviation, torch.inf)
    return scaled.nan_to_num(0.0, 0.0, 0.0)


BENCHMARKS = {f"mulan/{dataset}": partial(Mulan, dataset) for dataset in TARGETS}
