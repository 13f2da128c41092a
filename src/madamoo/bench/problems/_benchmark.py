"""What a benchmark is: data, a model's shape, batches, losses, an evaluation, and the sizes at which it is run.

The training loop knows these and nothing else, so a benchmark chooses for itself how it is trained and evaluated.
Most have samples with targets and derive from :class:`~madamoo.bench.Supervised`; a physics-informed problem, which has
points and no targets, derives from :class:`Benchmark` itself.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ._data import MissingData, find


@dataclass(frozen=True)
class Metric:
    """A number that is reported, and which way is better.

    Example:
        >>> accuracy = Metric("accuracy", higher_is_better=True)
        >>> round(accuracy.relative(96.0, 95.0))  # of 5 % errors a fifth has gone
        20
    """

    name: str
    higher_is_better: bool
    digits: int = 2  # after the point, in tables
    gain: str = "error"  # what a gain is: part of the "error" that is gone, of the "value" that is added, or "points"
    unsolved: float | None = None  # as bad as this, nothing was learned; two such results are not counted as a pair

    def counts(self, *values: float) -> bool:
        """Whether one of the results is better than ``unsolved``."""
        if self.unsolved is None:
            return True
        return any(value > self.unsolved if self.higher_is_better else value < self.unsolved for value in values)

    def relative(self, value: float, baseline: float) -> float:
        """The gain over the baseline in per cent; the error of an accuracy in per cent is what it lacks."""
        if self.gain == "points":
            return value - baseline
        sign = 1.0 if self.gain == "value" else -1.0
        if self.gain == "error" and self.higher_is_better:
            value, baseline = 100.0 - value, 100.0 - baseline
        if baseline == 0.0:  # nothing was left to gain, or nothing was there to add to
            return 0.0 if value == baseline else sign * math.copysign(math.inf, value)
        return sign * 100.0 * (value / baseline - 1.0)


@dataclass(frozen=True)
class Profile:
    """The size at which a benchmark is run.

    Example:
        >>> Profile(epochs=20, batch=64, lr=3e-3, model="mlp").schedule
        'constant'
    """

    epochs: int
    batch: int
    lr: float
    model: str  # a spec for madamoo.bench.build_model, e.g. "mlp:width=256"
    schedule: str = "constant"  # of the learning rate: or "cosine", or "halve:every=75" (epochs)
    threads: int | None = None  # None: torch's default; small models are faster on one
    keep: str = "last"  # whose metrics count: the "last" epoch's, or those of the epoch "best" on validation data
    reductions: tuple[str, ...] = ()  # in words, against the paper's recipe
    options: Mapping[str, Any] = field(default_factory=dict)  # whatever the benchmark's own load() understands

    def __post_init__(self) -> None:
        if self.keep not in ("last", "best"):
            raise ValueError(f"keep must be 'last' or 'best', got {self.keep!r}")


@dataclass(frozen=True)
class DataSource:
    """Whose data a benchmark uses. The lab downloads nothing: users get the data, under these terms, themselves."""

    title: str
    authors: str
    address: str
    licence: str


@dataclass(frozen=True)
class FrontSpec:
    """How a front is measured on a benchmark: one metric per objective, on so many rays.

    Example:
        >>> FrontSpec(("accuracy", "accuracy"), (1.0, 1.0), (0.0, 0.0), rays=11).rays
        11
    """

    metrics: tuple[str, ...]  # the name of each objective's
    units: tuple[float, ...]  # by which they are divided: 100 makes a fraction of an accuracy in per cent
    reference: tuple[float, ...]  # of the hypervolume, in these units
    rays: int
    methods: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # options of a method, on this benchmark


class Evaluation(NamedTuple):
    """What a model reaches on validation or test data.

    Example:
        >>> Evaluation({"accuracy": 0.9}, [0.3, 0.4]).metrics
        {'accuracy': 0.9}
    """

    metrics: dict[str, float]  # by name
    losses: list[float]  # one per objective


class Batches(ABC):
    """The training batches of a run. Their state is part of a checkpoint: a resumed run sees the same batches.

    Example:
        >>> from madamoo import bench
        >>> issubclass(bench.Shuffled, bench.Batches), issubclass(bench.Drawn, bench.Batches)
        (True, True)
    """

    steps: int  # per epoch

    @abstractmethod
    def draw(self, position: int, generator: torch.Generator) -> Any:
        """The batch at a position of the epoch, 0 to ``steps`` - 1; every random choice comes from ``generator``."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state; batches that depend on the generator alone have none."""
        return


class Drawn(Batches):
    """Each batch from a function of the generator: all points in every step, or points sampled again in each.

    Example: ``Drawn(100, lambda generator: torch.rand(256, 2, generator=generator))``.

    Example:
        >>> batches = Drawn(100, lambda generator: torch.rand(256, 2, generator=generator))
        >>> batches.draw(0, torch.Generator()).shape
        torch.Size([256, 2])
    """

    def __init__(self, steps: int, sample: Callable[[torch.Generator], Any]) -> None:
        if steps < 1:
            raise ValueError(f"steps must be at least 1, got {steps}")
        self.steps, self.sample = steps, sample

    def draw(self, position: int, generator: torch.Generator) -> Any:
        return self.sample(generator)


class Benchmark(ABC):
    """One problem.

    ``metrics[0]`` is the primary one: it summarises the benchmark, and chooses learning rates on validation data.
    A name may begin with its family, as ``pinn/burgers``.

    Example:
        >>> from madamoo import bench
        >>> digits = bench.get("digits")
        >>> digits.name, digits.objectives
        ('digits', ('left', 'right'))
    """

    name: str
    objectives: tuple[str, ...]
    kinds: tuple[str, ...]  # "regression" or "classification", one per objective
    metrics: tuple[Metric, ...]
    profiles: Mapping[str, Profile]
    files: Sequence[Sequence[str]] = ()  # below the data folder; of several alternatives the first that is there whole
    layout: str = ""  # the same in words, shown when they are missing
    source: DataSource | None = None  # None: made up by the benchmark itself
    residuals: tuple[int, ...] = ()  # the objectives that are residuals of equations, for solvers that ask which are
    front: FrontSpec | None = None  # None: methods that learn a whole front are not run on it

    def locate(self, root: Path | None) -> list[Path]:
        """The files of this benchmark in the data folder; raises :class:`~madamoo.bench.MissingData`."""
        return find(root, self.name, self.layout, *self.files) if self.files else []

    @abstractmethod
    def load(self, root: Path | None, profile: Profile, seed: int) -> Any:
        """The data, from the files that :meth:`locate` finds below the folder ``root``.

        They may be of any type, and are given back to the other methods as they are.
        """

    def move(self, data: Any, device: torch.device) -> Any:
        """The data on a device; without a method ``to``, they are left as they are."""
        return data.to(device) if hasattr(data, "to") else data

    @abstractmethod
    def shape(self, data: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The shape of one input, and the size (channels, classes) of each output: what a model needs."""

    @abstractmethod
    def batches(self, data: Any, size: int) -> Batches:
        """The training batches, of ``size`` where the benchmark has a use for it."""

    @abstractmethod
    def losses(self, model: nn.Module, batch: Any) -> list[Tensor]:
        """One scalar per objective."""

    def share(self, batch: Any, rank: int, count: int) -> tuple[Any, int]:
        """Of a batch, the part of process ``rank`` of ``count``, and the samples behind each of its losses."""
        raise ValueError(f"{self.name} trains in one process, not in {count}: its batches cannot be divided")

    def before_step(self, model: nn.Module, batch: Any, optimizer: Any) -> None:
        """Before the losses of a step: tell the optimizer's solver what it needs beyond them, or change the batch."""
        return

    def finish(self, model: nn.Module, batch: Any) -> None:
        """After the last step, before the last evaluation; ``batch`` is the last one."""
        return

    def state(self, root: Path | None) -> str:
        """In a word, whether the data are there."""
        try:
            self.locate(root)
        except MissingData:
            return "missing"
        return "here" if self.layout else "embedded"

    def maps(self, model: nn.Module, data: Any, size: int) -> list[dict[str, Any]]:
        """What the model has learned, as maps for the report: see :func:`madamoo.bench.runs.check_maps`."""
        return []

    def predict(self, model: nn.Module, profile: Profile, file: Path, folder: Path) -> Path:
        """Write what the model, in evaluation mode, makes of a user's file into a folder, and return the new file."""
        raise NotImplementedError

    def inputs(self, path: Path) -> list[Path]:
        """The files at a path, a file or a folder, that :meth:`predict` takes."""
        raise ValueError(f"{self.name} predicts nothing for a file: it is no benchmark of images or volumes")

    @abstractmethod
    def evaluate(self, model: nn.Module, data: Any, split: str, size: int) -> Evaluation:
        """The model, in evaluation mode, on the ``split`` "validation" or "test"; ``size`` is that of the batches.

        Gradients are enabled; who needs none says ``torch.no_grad()``.
        """

    def row_of_paper(self, solver: str, setting: Mapping[str, Any]) -> str:
        """The name under which the paper reports runs of a solver; ``setting`` has the profile and the model."""
        return solver

    @property
    def primary(self) -> Metric:
        return self.metrics[0]
