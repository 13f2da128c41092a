"""A run's folder: its record, its epochs, its checkpoint, and the lock that keeps others out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from madamoo.files import remove_leftovers

from ._check import check_maps, read_record
from ._config import Config
from ._files import (
    Damaged,
    read_tensors,
    set_aside,
    write_record,
    write_tensors,
)
from ._rows import DIAGNOSTICS, EPOCHS, Row, write_rows

LOCK, RECORD = "lock", "run.json"
MAPS = "maps.pt"
PART = "ray-"  # begins the name of a folder with a part of the run above it


class Busy(RuntimeError):
    """Another process is at work in the folder."""


class OtherRun(ValueError):
    """The folder holds a run of another configuration."""


class RunFolder:
    """The files of one run. Every write is atomic, every read is checked."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.record_file = path / RECORD
        self.epochs_file = path / EPOCHS
        self.diagnostics_file = path / DIAGNOSTICS
        self.checkpoint_file = path / "checkpoint.pt"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes out; the operating system lets go of the lock when this one dies, however it dies.

        A folder that is made here and in which nothing was written, because data are missing, say, does not stay.
        """
        from filelock import FileLock, Timeout  # only who runs something needs it

        made = [path for path in (self.path, *self.path.parents) if not path.exists()]
        self.path.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.path / LOCK)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise Busy(f"another process is running in {self.path}") from None
        try:
            remove_leftovers(self.path)
            yield
        finally:
            if made and [path.name for path in self.path.iterdir()] == [LOCK]:
                with suppress(OSError):
                    (self.path / LOCK).unlink()
                    for path in made:
                        path.rmdir()
            lock.release()

    def read(self, config: Config) -> dict[str, Any] | None:
        """The record, if there is one; one of another configuration is refused, a damaged one set aside."""
        if not self.record_file.exists():
            return None
        try:
            record = read_record(self.record_file)
        except Damaged as error:
            set_aside(self.record_file, str(error))
            return None
        different = config.differences(record["config"])
        if different:
            raise OtherRun(f"{self.path} holds another run: {'; '.join(different)}")
        return record

    def write(self, record: dict[str, Any]) -> None:
        write_record(self.record_file, record)

    def write_maps(self, maps: list[dict[str, Any]]) -> None:
        """What the benchmark shows of its model; most show nothing."""
        if maps:
            write_tensors(self.path / MAPS, check_maps(maps))

    def write_epochs(self, epochs: list[Row]) -> None:
        write_rows(self.epochs_file, epochs)

    def save(self, config: Config, state: dict[str, Any]) -> None:
        write_tensors(self.checkpoint_file, {"config": asdict(config), **state})

    def load(self, config: Config) -> dict[str, Any] | None:
        """The last checkpoint, if there is one; damaged or of another run, it is set aside."""
        if not self.checkpoint_file.exists():
            return None
        try:
            state = read_tensors(self.checkpoint_file)
            if not isinstance(state, dict) or not isinstance(state.get("config"), dict):
                raise Damaged("it is no checkpoint")
            different = config.differences(state["config"])
            if different:
                raise Damaged(f"it belongs to another run: {'; '.join(different)}")
            return state
        except Damaged as error:
            set_aside(self.checkpoint_file, str(error))
            return None

    def refuse_checkpoint(self, reason: str) -> None:
        """Set the checkpoint aside: it was read, but a run cannot go on from it."""
        set_aside(self.checkpoint_file, reason)

    def refuse_record(self, reason: str) -> None:
        set_aside(self.record_file, reason)

    def drop_checkpoint(self) -> None:
        self.checkpoint_file.unlink(missing_ok=True)
