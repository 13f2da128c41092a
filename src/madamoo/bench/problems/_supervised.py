"""Benchmarks of samples with targets, in memory or read one by one: ``model(inputs) -> [one output per objective]``."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor, nn

from ._benchmark import Batches, Benchmark, Evaluation

EVALUATION_BATCH = 1024

Tally = dict[str, Tensor]
"""Sums over samples, from which the metrics are computed at the end: added over the batches of an evaluation."""


@dataclass(frozen=True)
class Split:
    """Inputs [n, ...] and, per objective, targets [n, ...].

    Example:
        >>> split = Split(torch.zeros(4, 2), (torch.zeros(4), torch.ones(4)))
        >>> len(split.to(torch.device("cpu")).targets)
        2
    """

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
class LazySplit:
    """Samples that are read when a batch needs them, and forgotten after it: volumes, say, one file each.

    Example: ``LazySplit(len(files), lambda k: (read(files[k]), (masks[k], ages[k])))``.

    Example:
        >>> split = LazySplit(3, lambda k: (torch.full((2,), float(k)), (torch.tensor(k),)))
        >>> split.read(2)
        (tensor([2., 2.]), (tensor(2),))
    """

    count: int
    read: Callable[[int], tuple[Tensor, tuple[Tensor, ...]]]  # sample k: its input and, per objective, its target
    device: torch.device | None = None

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: Tensor | slice) -> Split:
        chosen = range(self.count)[index] if isinstance(index, slice) else index.tolist()
        inputs, targets = zip(*(self.read(k) for k in chosen), strict=True)
        batch = Split(torch.stack(inputs), tuple(torch.stack(each) for each in zip(*targets, strict=True)))
        return batch if self.device is None else batch.to(self.device)

    def to(self, device: torch.device) -> LazySplit:
        return LazySplit(self.count, self.read, device)


class Samples(Protocol):
    """What a split must offer: a length, and batches by index."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: Tensor | slice) -> Split: ...

    def to(self, device: torch.device) -> Any: ...


S = TypeVar("S", bound=Samples)


@dataclass(frozen=True)
class Data(Generic[S]):
    """The three splits, each a :class:`Split` or a :class:`LazySplit`.

    Example:
        >>> split = Split(torch.zeros(4, 2), (torch.zeros(4),))
        >>> len(Data(split, split, split).train.inputs)
        4
    """

    train: S
    validation: S
    test: S

    def to(self, device: torch.device) -> Data[S]:
        return Data(*(part.to(device) for part in (self.train, self.validation, self.test)))


class Shuffled(Batches):
    """Batches of samples, in an order of its own for each epoch.

    Example:
        >>> batches = Shuffled(Split(torch.arange(6.0), (torch.arange(6.0),)), size=4)
        >>> generator = torch.Generator()
        >>> [len(batches.draw(k, generator).inputs) for k in range(batches.steps)]
        [4]
    """

    def __init__(
        self, samples: Samples, size: int, prepare: Callable[[Split, torch.Generator], Split] | None = None
    ) -> None:
        if not len(samples):
            raise ValueError("there are no training samples")
        self.samples, self.prepare = samples, prepare
        self.size = min(size, len(samples))
        self.steps = len(samples) // self.size  # what is left over comes in another epoch
        self.order = Tensor()  # of this epoch

    def draw(self, position: int, generator: torch.Generator) -> Split:
        if position == 0:
            self.order = torch.randperm(len(self.samples), generator=generator)
        batch = self.samples[self.order[position * self.size : (position + 1) * self.size]]
        return batch if self.prepare is None else self.prepare(batch, generator)

    def state_dict(self) -> dict[str, Any]:
        return {"order": self.order}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.order = state["order"]


class Supervised(Benchmark):
    """A benchmark whose data are :class:`Data`. A subclass says what to load, how outputs are judged, what to count.

    Example:
        >>> from madamoo import bench
        >>> isinstance(bench.get("digits"), bench.Supervised)
        True
    """

    def prepare(self, batch: Split, generator: torch.Generator | None) -> Split:
        """What the model sees of a batch. ``generator`` is given in training only, for random augmentation."""
        return batch

    @abstractmethod
    def criteria(self, outputs: Sequence[Tensor], targets: Sequence[Tensor]) -> list[Tensor]:
        """The losses of a batch, one scalar per objective."""

    @abstractmethod
    def tally(self, outputs: Sequence[Tensor], targets: Sequence[Tensor]) -> Tally:
        """Sums over the samples of a batch."""

    @abstractmethod
    def summarise(self, tally: Tally) -> dict[str, float]:
        """The metrics by name, from the sums over all batches."""

    def batches(self, data: Data, size: int) -> Batches:
        return Shuffled(data.train, size, self.prepare)

    def losses(self, model: nn.Module, batch: Split) -> list[Tensor]:
        return self.criteria(model(batch.inputs), batch.targets)

    def share(self, batch: Split, rank: int, count: int) -> tuple[Split, int]:
        part = batch[rank::count]
        if len(batch) < count:
            raise ValueError(f"{self.name}: a batch of {len(batch)} samples cannot be divided among {count} processes")
        return part, len(part)

    @torch.no_grad()
    def evaluate(self, model: nn.Module, data: Data, split: str, size: int) -> Evaluation:
        """The metrics, and the mean of each loss over the samples."""
        samples: Samples = getattr(data, split)
        tally: Tally = {}
        sums = torch.zeros(len(self.objectives), dtype=torch.float64)
        step = max(1, min(EVALUATION_BATCH, 4 * min(size, len(data.train))))
        for start in range(0, len(samples), step):
            batch = self.prepare(samples[start : start + step], None)
            outputs = model(batch.inputs)
            sums += torch.stack(self.criteria(outputs, batch.targets)).double().cpu() * len(batch)
            for name, value in self.tally(outputs, batch.targets).items():
                tally[name] = tally[name] + value.cpu() if name in tally else value.cpu()
        return Evaluation(self.summarise(tally), (sums / len(samples)).tolist())
