"""From a path to runs: a lab run, a folder of them, or the record of a probe on a training loop of one's own.

What is complete is used, and what was left out is said in the notes of a run.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from madamoo.diagnostics import summary
from madamoo.diagnostics._sinks import FILE, Row

RECORD, EPOCHS, PART = "run.json", "epochs.jsonl", "ray-"


class Unreadable(ValueError):
    """There is nothing to report on; the message says why."""


@dataclass(frozen=True)
class Run:
    """What is known of one training."""

    name: str
    record: dict[str, Any] | None = None  # of the lab
    epochs: Sequence[dict[str, Any]] = ()  # of the lab, too
    rows: Sequence[Row] = ()  # of a probe
    notes: Sequence[str] = ()

    @property
    def config(self) -> dict[str, Any]:
        return {} if self.record is None else self.record["config"]

    @property
    def objectives(self) -> list[str]:
        if self.record is not None and self.record.get("objectives"):
            return [str(name) for name in self.record["objectives"]]
        return list(dict.fromkeys(name for row in self.rows for name in row["objectives"]))


@dataclass(frozen=True)
class Source:
    """What a path holds: one run, or a folder of several."""

    path: Path
    runs: Sequence[Run]
    single: bool
    notes: Sequence[str] = field(default_factory=tuple)


def read_source(path: Path) -> Source:
    """The run or the runs at a path; raises :class:`Unreadable` if there are none."""
    if not path.exists():
        raise Unreadable(f"there is no file or folder {path}")
    if path.is_file():
        return _read_file(path)
    if (path / RECORD).exists() or (path / FILE).exists():
        return Source(path, [read_run(path)], single=True)
    records = _Records(path)
    if records.runs:
        return Source(path, records.runs, single=False, notes=records.notes)
    found = [folder for folder in sorted(path.rglob(FILE)) if not folder.parent.name.startswith(PART)]
    if found:
        runs = [read_run(file.parent, name=str(file.parent.relative_to(path))) for file in found]
        return Source(path, runs, single=len(runs) == 1)
    if records.notes:
        raise Unreadable(f"{path} holds no run that has ended: {records.notes[0]}")
    raise Unreadable(f"{path} holds no runs: neither {RECORD} of the lab nor {FILE} of a probe")


def read_single(path: Path) -> Run:
    """The only run at a path."""
    source = read_source(path)
    if len(source.runs) != 1:
        raise Unreadable(f"{path} holds {len(source.runs)} runs, and one is wanted: name its folder")
    return source.runs[0]


def read_run(folder: Path, name: str | None = None) -> Run:
    """A run's folder, of the lab or not."""
    notes: list[str] = []
    record = _read_record(folder / RECORD, notes) if (folder / RECORD).exists() else None
    epochs = _read_epochs(folder / EPOCHS, notes) if record is not None and (folder / EPOCHS).exists() else []
    rows = read_rows(folder / FILE, notes) if (folder / FILE).exists() else []
    if record is None and not rows:
        raise Unreadable(f"{folder} holds nothing to report on: {'; '.join(notes) or 'its files are empty'}")
    return Run(name or _name(record, folder), record, epochs, rows, notes)


def read_rows(path: Path, notes: list[str]) -> list[Row]:
    """The rows of a probe in the order of their steps, each step once.

    Where the steps go back, a run was resumed there (or begun again in the same folder): what came before and is
    repeated does not count.
    """
    rows: list[Row] = []
    repeated = 0
    for row in _lines(path, notes):
        if not _is_row(row):
            notes.append(f"{path.name}: a line is no row of a probe and was left out")
            continue
        while rows and rows[-1]["step"] >= row["step"]:
            rows.pop()
            repeated += 1
        rows.append(row)
    if repeated:
        notes.append(f"{path.name}: {repeated} rows came again after the run was resumed; the later ones count")
    return rows


def _read_file(path: Path) -> Source:
    if path.name == RECORD:
        return Source(path, [read_run(path.parent)], single=True)
    if path.suffix != ".jsonl":
        raise Unreadable(f"{path} is neither a folder nor a .jsonl file that a probe or `madamoo collect` wrote")
    notes: list[str] = []
    rows = read_rows(path, notes)
    if rows:
        name = path.parent.resolve().name if path.name == FILE else path.stem
        return Source(path, [Run(name, rows=rows, notes=notes)], single=True)
    records = _Records(path)
    if not records.runs:
        raise Unreadable(f"{path} holds no row of a probe and no record of a run: {(notes or ['it is empty'])[0]}")
    return Source(path, records.runs, single=False, notes=records.notes)


def _read_record(path: Path, notes: list[str]) -> dict[str, Any] | None:
    from madamoo.bench.runs import Damaged, read_record

    try:
        record = read_record(path, "config", "status")
        if not isinstance(record["config"], dict) or "benchmark" not in record["config"]:
            raise Damaged("its configuration names no benchmark")
        return record
    except Damaged as error:
        notes.append(f"{path.name} is damaged and not used: {error}")
        return None


def _read_epochs(path: Path, notes: list[str]) -> list[dict[str, Any]]:
    wanted = ("epoch", "train_losses", "validation_losses", "validation_loss")
    return [row for row in _lines(path, notes) if all(key in row for key in wanted)]


def _lines(path: Path, notes: list[str]) -> list[dict[str, Any]]:
    """The JSON objects of a file, one a line."""
    found = []
    with path.open(encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                row = json.loads(line) if line.strip() else None
            except (ValueError, RecursionError):
                row = False
            if isinstance(row, dict):
                found.append(row)
            elif row is not None:
                notes.append(f"{path.name}: line {number} is not complete and was left out")
    return found


def _is_row(row: Any) -> bool:
    """Whether all that a report asks of a row is there and of its kind."""
    try:
        names = row["objectives"]
        summary([row])
        parts = [*row["losses"].values(), *row["weights"].values(), *(c for line in row["cosines"] for c in line)]
        square = [len(line) for line in row["cosines"]] == [len(names)] * len(names)
        kinds = all(x is None or isinstance(x, int | float) for x in [*parts, row["conflict_rate"], row["floored"]])
        return isinstance(row["step"], int) and all(isinstance(name, str) for name in names) and square and kinds
    except (KeyError, TypeError, ValueError, AttributeError, IndexError):
        return False


def _name(record: dict[str, Any] | None, folder: Path) -> str:
    if record is None:
        return folder.resolve().name
    config = record["config"]
    return f"{config['benchmark']}, {config.get('solver')}, {config.get('optimizer')}"


class _Records:
    """The ended runs of the lab below a path, with what else is known of those whose folders are there."""

    def __init__(self, path: Path) -> None:
        self.notes: list[str] = []
        self.runs: list[Run] = []
        folders = [f for f in sorted(path.rglob(RECORD)) if not f.parent.name.startswith(PART)] if path.is_dir() else []
        if not folders and not (path.is_file() or any(path.rglob("*.jsonl"))):
            return
        from madamoo.bench.runs import identity, read_records

        with redirect_stderr(io.StringIO()) as told:  # damaged files are named there
            records = read_records(path)
        self.notes += [line.removeprefix("madamoo: ") for line in told.getvalue().splitlines() if FILE not in line]
        rows: dict[str, list[Row]] = {}
        open_runs = 0
        for file in folders:
            record = _read_record(file, [])
            if record is None:
                continue
            if record["status"] == "running":
                open_runs += 1
            elif (file.parent / FILE).exists():
                rows[identity(record["config"])] = read_rows(file.parent / FILE, [])
        if open_runs:
            self.notes.append(f"{open_runs} of the runs below {path} have not ended and are not shown")
        for record in records:
            config = record["config"]
            name = f"{config['solver']} {config['optimizer']} lr {config['lr']:g} seed {config['seed']}"
            self.runs.append(Run(name, record, rows=rows.get(identity(config), ())))
