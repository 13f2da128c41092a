"""From a path to runs: a lab run, a folder of them, or the record of a probe on a training loop of one's own.

What is complete is used, and what was left out is said in the notes of a run. Files may come from anyone: nothing in
them is imported, and what is not of the kind that the lab or a probe writes is named and set aside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from madamoo.bench.runs import (
    EPOCHS,
    MAPS,
    PART,
    RECORD,
    RUNNING,
    Damaged,
    check_epoch,
    check_maps,
    identity,
    read_record,
    read_records,
    read_rows,
    read_tensors,
)
from madamoo.diagnostics import FILE, Row, check_row, read_runs, split_runs


class Unreadable(ValueError):
    """There is nothing to report on; the message says why."""


@dataclass(frozen=True)
class ReadRun:
    """What is known of one training."""

    name: str
    record: dict[str, Any] | None = None  # of the lab
    epochs: Sequence[dict[str, Any]] = ()  # of the lab, too
    rows: Sequence[Row] = ()  # of a probe
    notes: Sequence[str] = ()
    maps: Sequence[dict[str, Any]] = ()  # of what the model has learned; many runs get them by :func:`with_maps`
    folder: Path | None = None

    @property
    def config(self) -> dict[str, Any]:
        return {} if self.record is None else self.record["config"]

    @property
    def cost(self) -> dict[str, Any]:
        return {} if self.record is None else self.record.get("cost") or {}

    @property
    def objectives(self) -> list[str]:
        if self.record is not None and self.record.get("objectives"):
            return list(self.record["objectives"])
        return list(dict.fromkeys(name for row in self.rows for name in row["objectives"]))


@dataclass(frozen=True)
class Source:
    """What a path holds: one run, or a folder of several."""

    path: Path
    runs: Sequence[ReadRun]
    single: bool
    notes: Sequence[str] = field(default_factory=tuple)


def read_source(path: Path) -> Source:
    """The run or the runs at a path; raises :class:`Unreadable` if there are none."""
    if not path.exists():
        raise Unreadable(f"there is no file or folder {path}")
    if path.is_file():
        return _read_file(path)
    if (path / RECORD).exists() or (path / FILE).exists():
        runs = read_folder(path)
        return Source(path, runs, single=len(runs) == 1)
    ended, notes = _ended_runs(path)
    if ended:
        return Source(path, ended, single=False, notes=notes)
    found = [file.parent for file in sorted(path.rglob(FILE)) if not file.parent.name.startswith(PART)]
    runs = [run for folder in found for run in _try_folder(folder, str(folder.relative_to(path)), notes)]
    if runs:
        return Source(path, runs, single=len(runs) == 1, notes=notes)
    if notes:
        raise Unreadable(f"{path} holds no run that has ended: {notes[0]}")
    raise Unreadable(f"{path} holds no runs: neither {RECORD} of the lab nor {FILE} of a probe")


def _try_folder(folder: Path, name: str, notes: list[str]) -> list[ReadRun]:
    try:
        return read_folder(folder, name)
    except Unreadable as error:
        notes.append(str(error))
        return []


def read_single(path: Path) -> ReadRun:
    """The only run at a path."""
    source = read_source(path)
    if len(source.runs) != 1:
        raise Unreadable(f"{path} holds {len(source.runs)} runs, and one is wanted: name its folder")
    return source.runs[0]


def read_folder(folder: Path, name: str | None = None) -> list[ReadRun]:
    """The run in a folder, of the lab or not; several where a probe wrote several runs into one file."""
    notes: list[str] = []
    record = _read_record(folder / RECORD, notes) if (folder / RECORD).exists() else None
    if record is not None:
        name = name or f"{record['config']['benchmark']}, {record['config']['solver']}, {record['config']['optimizer']}"
        epochs = read_rows(folder / EPOCHS, check_epoch) if (folder / EPOCHS).exists() else ([], [])
        notes += epochs[1]
        rows = _lab_rows(folder, notes)
        return [with_maps(ReadRun(name, record, epochs[0], rows, notes, folder=folder))]
    runs = _read_rows(folder / FILE, notes) if (folder / FILE).exists() else []
    if not runs:
        raise Unreadable(f"{folder} holds nothing to report on: {'; '.join(notes) or 'its files are empty'}")
    return _of_probe(name or folder.resolve().name, runs, notes)


def _lab_rows(folder: Path, notes: list[str]) -> Sequence[Row]:
    """The rows of a probe on a run of the lab; where it was begun again, the last ones are its own."""
    if not (folder / FILE).exists():
        return ()
    rows, left_out = read_rows(folder / FILE, check_row)
    runs, repeated = split_runs(rows)
    notes += [*left_out, *repeated]
    return runs[-1] if runs else ()


def with_maps(run: ReadRun) -> ReadRun:
    """The run with the maps that its folder holds, if any; damaged ones are named in its notes."""
    if run.folder is None or not (run.folder / MAPS).exists():
        return run
    try:
        return replace(run, maps=check_maps(read_tensors(run.folder / MAPS)))
    except (Damaged, OSError) as error:
        return replace(run, notes=[*run.notes, f"{run.folder / MAPS} is left out: {error}"])


def _of_probe(name: str, runs: Sequence[Sequence[Row]], notes: Sequence[str]) -> list[ReadRun]:
    if len(runs) == 1:
        return [ReadRun(name, rows=runs[0], notes=notes)]
    return [ReadRun(f"{name}, run {k}", rows=rows, notes=notes if k == 1 else ()) for k, rows in enumerate(runs, 1)]


def _read_file(path: Path) -> Source:
    if path.name == RECORD:
        return Source(path, read_folder(path.parent), single=True)
    if path.suffix != ".jsonl":
        raise Unreadable(f"{path} is neither a folder nor a .jsonl file that a probe or `madamoo collect` wrote")
    notes: list[str] = []
    rows = _read_rows(path, notes)
    if rows:
        runs = _of_probe(path.parent.resolve().name if path.name == FILE else path.stem, rows, notes)
        return Source(path, runs, single=len(runs) == 1)
    ended, left_out = _ended_runs(path)
    if not ended:
        raise Unreadable(f"{path} holds no row of a probe and no record of a run: {(notes or ['it is empty'])[0]}")
    return Source(path, ended, single=False, notes=left_out)


def _read_rows(path: Path, notes: list[str]) -> list[list[Row]]:
    runs, left_out = read_runs(path)
    notes += [f"{path.name}: {note}" for note in left_out]
    return runs


def _ended_runs(path: Path) -> tuple[list[ReadRun], list[str]]:
    """The ended runs of the lab below a path, with what else is known of those whose folders are there."""
    folders = [f for f in sorted(path.rglob(RECORD)) if not f.parent.name.startswith(PART)] if path.is_dir() else []
    notes: list[str] = []
    records = read_records(path, say=notes.append)
    found: dict[str, tuple[Sequence[Row], Path]] = {}
    running = 0
    for file in folders:
        record = _read_record(file, [])
        if record is not None and record["status"] == RUNNING:
            running += 1
        elif record is not None:
            found[identity(record["config"])] = _lab_rows(file.parent, notes), file.parent
    if running:
        notes.append(f"{running} of the runs below {path} have not ended and are not shown")
    runs = []
    for record in records:
        rows, folder = found.get(identity(record["config"]), ((), None))
        runs.append(ReadRun(_named(record["config"]), record, rows=rows, folder=folder))
    return runs, notes


def _named(config: dict[str, Any]) -> str:
    return f"{config['solver']} {config['optimizer']} lr {config['lr']:g} seed {config['seed']}"


def _read_record(path: Path, notes: list[str]) -> dict[str, Any] | None:
    try:
        return read_record(path)
    except Damaged as error:
        notes.append(f"{path.name} is damaged and not used: {error}")
        return None
