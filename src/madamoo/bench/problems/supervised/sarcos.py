"""SARCOS: the seven joint torques of a robot arm from the positions, velocities and accelerations of its joints."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from .. import Data, DataSource, FrontSpec, Metric, Profile, Split, Tally, shuffled
from ._regression import Regression, squared_errors

INPUTS, TORQUES = 21, 7
VALIDATION = 4448  # the first rows of the training file
SMALL_TRAIN, SMALL_VALIDATION = 3114, 445  # of 4,449: 70 % and 10 %; the rest is the test set


SOURCE = DataSource(
    "SARCOS inverse dynamics, data of Gaussian Processes for Machine Learning (2006)",
    "S. Vijayakumar, S. Schaal; C. E. Rasmussen, C. K. I. Williams",
    "http://gaussianprocess.org/gpml/data/",
    "none stated; for research",
)


class Sarcos(Regression):
    """The full pair of files. Many rows of the test file are in the training file too: its test error is optimistic."""

    name = "sarcos"
    source = SOURCE
    objectives = tuple(f"t{k + 1}" for k in range(TORQUES))
    kinds = ("regression",) * TORQUES
    metrics = (Metric("avg_err", False), *(Metric(f"t{k + 1}", False) for k in range(TORQUES)))
    front = FrontSpec(
        metrics=objectives,
        units=(100.0,) * TORQUES,
        reference=(1.0, 5.0, 1.0, 1.0, 10.0, 10.0, 1.0),
        rays=TORQUES + 1,
        methods={"pamal": {"count": 2}, "palora": {"rank": 4, "sampler": "annealed", "count": 2}},
    )
    profiles = {
        "paper": Profile(epochs=100, batch=512, lr=1e-4, model="mlp:depth=3:width=256", threads=1),
        "cpu": Profile(
            epochs=15,
            batch=512,
            lr=3e-3,
            model="mlp:depth=3:width=256",
            schedule="cosine",
            threads=1,
            reductions=("15 epochs instead of 100", "learning rate 3e-3, falling to zero, instead of 1e-4 throughout"),
        ),
    }
    files: Sequence[Sequence[str]] = (("sarcos/sarcos_inv.mat", "sarcos/sarcos_inv_test.mat"),)
    layout = (
        "  sarcos/sarcos_inv.mat       variable sarcos_inv, 44,484 rows of 21 inputs and 7 torques\n"
        "  sarcos/sarcos_inv_test.mat  variable sarcos_inv_test, 4,449 rows"
    )

    def load(self, root: Path | None, profile: Profile, seed: int) -> Data:
        first, second = self.locate(root)
        train, test = read_rows(first, VALIDATION), read_rows(second)
        return _data(train[VALIDATION:], train[:VALIDATION], test)

    def tally(self, outputs: Sequence[Tensor], targets: Sequence[Tensor]) -> Tally:
        return {"squares": squared_errors(outputs, targets), "count": torch.tensor(len(targets[0]))}

    def summarise(self, tally: Tally) -> dict[str, float]:
        """Mean squared errors times 100."""
        return self.average(100.0 * tally["squares"] / tally["count"])


class SarcosSmall(Sarcos):
    """The 4,449 rows of the test file alone, split by the seed of the run."""

    name = "sarcos-small"
    profiles = {
        "paper": Profile(epochs=100, batch=512, lr=1e-4, model="mlp:depth=3:width=256", threads=1),
        "cpu": Profile(
            epochs=60,
            batch=128,
            lr=3e-3,
            model="mlp:depth=3:width=256",
            schedule="cosine",
            threads=1,
            reductions=(
                "60 epochs of batches of 128 instead of 100 of 512: 1,440 steps",
                "learning rate 3e-3, falling to zero, instead of 1e-4 throughout",
            ),
        ),
    }
    files = (("sarcos/sarcos_inv_test.mat",),)
    layout = "  sarcos/sarcos_inv_test.mat  variable sarcos_inv_test, 4,449 rows of 21 inputs and 7 torques"

    def load(self, root: Path | None, profile: Profile, seed: int) -> Data:
        (file,) = self.locate(root)
        rows = read_rows(file, SMALL_TRAIN + SMALL_VALIDATION)
        rows = rows[shuffled(len(rows), seed)]
        sizes = [SMALL_TRAIN, SMALL_VALIDATION, len(rows) - SMALL_TRAIN - SMALL_VALIDATION]
        return _data(*rows.split(sizes))


def read_rows(file: Path, at_least: int = 0) -> Tensor:
    """The rows of a SARCOS file, whose only variable has the name of the file; they must be more than ``at_least``."""
    from scipy.io import loadmat

    try:
        rows = loadmat(file).get(file.stem)
    except Exception as error:  # scipy has many for a damaged file, and none names it
        raise ValueError(f"{file} cannot be read: {type(error).__name__}: {error}") from None
    if rows is None or rows.ndim != 2 or rows.shape[1] != INPUTS + TORQUES:
        raise ValueError(f"{file} has no variable {file.stem} of {INPUTS + TORQUES} columns")
    if len(rows) <= at_least:
        raise ValueError(f"{file} has {len(rows)} rows; it must have more than {at_least}")
    return torch.from_numpy(rows.astype("float32"))


def _data(train: Tensor, validation: Tensor, test: Tensor) -> Data:
    """Inputs as they are; each torque divided by its 0.9-quantile over the training rows."""
    scale = train[:, INPUTS:].quantile(0.9, dim=0)
    splits = (
        Split(rows[:, :INPUTS].contiguous(), tuple((rows[:, INPUTS:] / scale).T.contiguous().unbind()))
        for rows in (train, validation, test)
    )
    return Data(*splits)


BENCHMARKS = {"sarcos": Sarcos, "sarcos-small": SarcosSmall}
