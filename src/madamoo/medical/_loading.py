"""Samples that are read when they are needed: kept in memory as far as it goes, on disk as prepared, ahead of time."""

from __future__ import annotations

import hashlib
import io
import signal
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import torch
from torch import Tensor

from madamoo.files import write_bytes

Sample = tuple[Tensor, ...]
MEMORY = 2**30  # bytes


class WorkerDied(ChildProcessError):
    """A process that reads data has died; the message says how."""


class Samples:
    """Samples made of files, lazily: ``samples[k]`` are the tensors that ``prepare`` makes of ``files[k]``.

    They are the same whenever and wherever they are made. Nothing is read before it is asked for.

    Args:
        files: for each sample the files it is made of.
        prepare: a function of these files, which processes can be given: of a module, or a ``functools.partial``.
        cache: a folder for prepared samples, in which they stay until a file or ``key`` changes; None keeps none.
            Damaged ones are made again.
        key: what else a prepared sample depends on, the function among it, as text.
        memory: bytes of samples that are kept in memory, those last used.

    Example:
        >>> samples = Samples([(Path("a"),), (Path("b"),)], lambda path: (torch.tensor(ord(path.name)),))
        >>> len(samples), samples[1]
        (2, (tensor(98),))
    """

    def __init__(
        self,
        files: Sequence[tuple[Path, ...]],
        prepare: Callable[..., Sample],
        *,
        cache: Path | None = None,
        key: str = "",
        memory: int = MEMORY,
    ) -> None:
        self.files, self.prepare, self.cache, self.key, self.memory = list(files), prepare, cache, key, memory
        self.kept: OrderedDict[int, Sample] = OrderedDict()
        self.used = 0

    def __len__(self) -> int:
        return len(self.files)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "kept": OrderedDict(), "used": 0}

    def __getitem__(self, k: int) -> Sample:
        if k in self.kept:
            self.kept.move_to_end(k)
            return self.kept[k]
        sample = self._stored(k) if self.cache is not None else self.prepare(*self.files[k])
        self.kept[k] = sample
        self.used += _bytes(sample)
        while self.used > self.memory and len(self.kept) > 1:
            self.used -= _bytes(self.kept.popitem(last=False)[1])
        return sample

    def subset(self, indices: Sequence[int]) -> Samples:
        """Some of the samples, with a memory of their own."""
        chosen = [self.files[k] for k in indices]
        return Samples(chosen, self.prepare, cache=self.cache, key=self.key, memory=self.memory)

    def _stored(self, k: int) -> Sample:
        assert self.cache is not None
        text = [
            self.key,
            *(f"{path.resolve()} {path.stat().st_size} {path.stat().st_mtime_ns}" for path in self.files[k]),
        ]
        digest = hashlib.sha256(chr(10).join(text).encode(errors="surrogateescape")).hexdigest()  # of any name
        file = self.cache / f"{digest[:24]}.npz"
        with suppress(OSError, ValueError, KeyError, EOFError, ArithmeticError, BadZipFile), np.load(file) as stored:
            return tuple(torch.from_numpy(stored[str(i)]) for i in range(len(stored.files)))
        sample = self.prepare(*self.files[k])
        buffer = io.BytesIO()
        arrays: dict[str, Any] = {str(i): tensor.numpy() for i, tensor in enumerate(sample)}
        np.savez(buffer, **arrays)  # a zip file, which has checksums
        with suppress(OSError):  # a full or read-only disk costs time, no more
            write_bytes(file, buffer.getvalue())
        return sample

    def batches(self, plan: Sequence[Sequence[int]], workers: int = 0) -> Iterator[list[Sample]]:
        """The samples of each row of a plan; with ``workers``, read ahead by so many processes."""
        if not workers:
            for row in plan:
                yield [self[k] for k in row]
            return
        with _Readers(self, workers) as readers:
            yield from readers.read(plan)


class _Readers:
    """Processes that read rows of samples ahead of their use."""

    def __init__(self, samples: Samples, count: int) -> None:
        self.samples, self.count = samples, count
        self.context: Any = _Remembering()

    def __enter__(self) -> _Readers:
        self.pool = ProcessPoolExecutor(self.count, mp_context=self.context)
        return self

    def __exit__(self, *_: object) -> None:
        self.pool.shutdown(wait=False, cancel_futures=True)

    def read(self, plan: Sequence[Sequence[int]]) -> Iterator[list[Sample]]:
        waiting: deque[Future[Any]] = deque()
        rows = iter(plan)
        try:
            while True:
                for row in islice(rows, 2 * self.count - len(waiting)):
                    waiting.append(self.pool.submit(_read_row, self.samples, list(row)))
                if not waiting:
                    return
                yield [tuple(map(torch.from_numpy, sample)) for sample in waiting.popleft().result()]
        except BrokenProcessPool:
            raise WorkerDied(
                f"a process that reads data died ({self._reason()}); the run goes on from its last checkpoint"
            ) from None

    def _reason(self) -> str:
        """How the first of them ended; the pool itself ends the others."""
        self.pool.shutdown()  # its thread collects the exit codes; to wait for the processes here would race with it
        codes = sorted(p.exitcode for p in self.context.started if p.exitcode not in (None, 0, -signal.SIGTERM))
        if not codes:
            return "terminated"
        if codes[0] >= 0:
            return f"exit code {codes[0]}"
        name = signal.Signals(-codes[0]).name
        return f"{name}, as when memory runs out" if name == "SIGKILL" else name


class _Remembering:
    """multiprocessing's default context, which keeps what it starts: a dead process is forgotten by all others."""

    def __init__(self) -> None:
        self.context = get_context()
        self.started: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.context, name)

    def Process(self, *given: Any, **options: Any) -> Any:
        self.started.append(self.context.Process(*given, **options))
        return self.started[-1]


def _read_row(samples: Samples, row: list[int]) -> list[tuple[Any, ...]]:
    torch.set_num_threads(1)
    return [tuple(tensor.numpy() for tensor in samples[k]) for k in row]


def _bytes(sample: Sample) -> int:
    return sum(tensor.nbytes for tensor in sample)


def split_by_name(names: Sequence[str], shares: Sequence[float]) -> list[list[int]]:
    """Places of the names, in parts of these shares; equal names (sessions of one subject) come into one part.

    A name's rank depends on it alone (by a digest), so that a file that is added or removed moves hardly any other
    from one part to another. No part is empty if there are names for all.

    Example:
        >>> split_by_name(["ann", "bob", "ann", "eve"], [0.5, 0.5])
        [[0, 1, 2], [3]]
    """
    ranked = sorted(set(names), key=lambda name: hashlib.sha256(name.encode()).digest())
    total, before, edges = sum(shares), 0.0, [0]
    for left, share in zip(range(len(shares) - 1, -1, -1), shares, strict=True):
        before += share
        edge = min(round(len(ranked) * before / total), len(ranked) - left)
        edges.append(min(max(edge, edges[-1] + 1), len(ranked)))
    part = {name: k for k in range(len(shares)) for name in ranked[edges[k] : edges[k + 1]]}
    return [[i for i, name in enumerate(names) if part[name] == k] for k in range(len(shares))]
