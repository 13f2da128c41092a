"""What a benchmark is: data, losses and metrics, and the sizes at which it is run. One file each in ``benchmarks/``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ._data import find

Tally = dict[str, Tensor]
"""Sums over samples, from which the metrics are computed at the end: added over the batches of an evaluation."""


@dataclass(frozen=True)
class Metric:
    """A number that is reported, and which way is better."""

    name: str
    higher_is_better: bool
    digits: int = 2  # after the point, in tables
    gain: str = "error"  # what a gain is: part of the "error" that is gone, of the "value" that is added, or "points"

    def relative(self, value: float, baseline: float) -> float:
        """The gain over the baseline in per cent; the error of an accuracy in per cent is what it lacks."""
        if self.gain == "points":
            return value - baseline
        if self.gain == "value":
            return 100.0 * (value / baseline - 1.0)
        if self.higher_is_better:
            value, baseline = 100.0 - value, 100.0 - baseline
        return 100.0 * (1.0 - value / baseline)


@dataclass(frozen=True)
class Profile:
    """The size at which a benchmark is run."""

    epochs: int
    batch: int
    lr: float
    model: str  # a spec for madamoo.bench.models, e.g. "mlp:width=256"
    schedule: str = "constant"  # of the learning rate: or "cosine", or "halve:every=75" (epochs)
    threads: int | None = None  # None: torch's default; small models are faster on one
    keep: str = "last"  # whose metrics count: the "last" epoch's, or those of the epoch "best" on validation data
    reductions: tuple[str, ...] = ()  # in words, against the paper's recipe
    options: Mapping[str, Any] = field(default_factory=dict)  # whatever the benchmark's own load() understands

    def __post_init__(self) -> None:
        if self.keep not in ("last", "best"):
            raise ValueError(f"keep must be 'last' or 'best', got {self.keep!r}")


@dataclass(frozen=True)
class FrontSpec:
    """How a front is measured on a benchmark: one metric an objective, on so many rays."""

    metrics: tuple[str, ...]  # the name of each objective's
    units: tuple[float, ...]  # by which they are divided: 100 makes a fraction of an accuracy in per cent
    reference: tuple[float, ...]  # of the hypervolume, in these units
    rays: int
    methods: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # options of a method, on this benchmark


@dataclass(frozen=True)
class Split:
    """Inputs [n, ...] and, for each objective, targets [n, ...]."""

    inputs: Tensor
    targets: tuple[Tensor, ...]

    def __post_init__(self) -> None:
        if any(len(target) != len(self) for target in self.targets):
            raise ValueError(f"{len(self)} inputs, but targets of {[len(t) for t in self.targets]}")

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: Tensor | slice) -> Split:
        return Split(self.inputs[index], tuple(target[index] for target in self.targets))

    def to(self, device: torch.device) -> Split:
        return Split(self.inputs.to(device), tuple(target.to(device) for target in self.targets))


@dataclass(frozen=True)
class Data:
    train: Split
    validation: Split
    test: Split


class Benchmark(ABC):
    """One problem. The lab trains ``model(inputs) -> [output of each objective]`` on it.

    ``metrics[0]`` is the primary one: it summarises the benchmark, and chooses learning rates on validation data.
    """

    name: str
    objectives: tuple[str, ...]
    kinds: tuple[str, ...]  # "regression" or "classification", one for each objective
    metrics: tuple[Metric, ...]
    profiles: Mapping[str, Profile]
    files: Sequence[Sequence[str]] = ()  # below the data folder; of several alternatives the first that is there whole
    layout: str = ""  # the same in words, shown when they are missing
    front: FrontSpec | None = None  # None: methods that learn a whole front are not run on it

    def locate(self, root: Path | None) -> list[Path]:
        """The files of this benchmark in the data folder; raises :class:`~madamoo.bench.MissingData`."""
        return find(root, self.name, self.layout, *self.files) if self.files else []

    @abstractmethod
    def load(self, root: Path | None, profile: Profile, seed: int) -> Data:
        """The data, from the files that :meth:`locate` finds below the folder ``root``."""

    @abstractmethod
    def shape(self, data: Data) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The shape of one input, and the size (channels, classes) of each objective's output: what a model needs."""

    def prepare(self, batch: Split, generator: torch.Generator | None) -> Split:
        """What the model sees of a batch. ``generator`` is given in training only, for random augmentation."""
        return batch

    @abstractmethod
    def losses(self, outputs: Sequence[Tensor], targets: Sequence[Tensor]) -> list[Tensor]:
        """One scalar for each objective."""

    @abstractmethod
    def tally(self, outputs: Sequence[Tensor], targets: Sequence[Tensor]) -> Tally:
        """Sums over the samples of a batch."""

    @abstractmethod
    def summarise(self, tally: Tally) -> dict[str, float]:
        """The metrics by name, from the sums over all batches."""

    @property
    def primary(self) -> Metric:
        return self.metrics[0]
