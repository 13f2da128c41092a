"""From a path to runs: a lab run, a folder of them, or the record of a probe on a training loop of one's own.

What is complete is used, and what was left out is said in the notes of a run. Files may come from anyone: nothing in
them is imported, and what is not of the kind that the lab or a probe writes is named and set aside.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from madamoo.diagnostics import FILE, Row, read_runs
from madamoo.diagnostics.kinds import COUNT, FLAG, NAME, NUMBER, Kind, Maybe, flaw

RECORD, EPOCHS, PART = "run.json", "epochs.jsonl", "ray-"


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
    runs = []
    for folder in found:
        try:
            runs += read_folder(folder, name=str(folder.relative_to(path)))
        except Unreadable as error:
            notes.append(str(error))
    if runs:
        return Source(path, runs, single=len(runs) == 1, notes=notes)
    if notes:
        raise Unreadable(f"{path} holds no run that has ended: {notes[0]}")
    raise Unreadable(f"{path} holds no runs: neither {RECORD} of the lab nor {FILE} of a probe")


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
    epochs = _read_epochs(folder / EPOCHS, notes) if record is not None and (folder / EPOCHS).exists() else []
    runs = _read_rows(folder / FILE, notes) if (folder / FILE).exists() else []
    if record is None and not runs:
        raise Unreadable(f"{folder} holds nothing to report on: {'; '.join(notes) or 'its files are empty'}")
    if record is not None:  # a run of the lab that was begun again: the last rows are its own
        name = name or f"{record['config']['benchmark']}, {record['config']['solver']}, {record['config']['optimizer']}"
        return [ReadRun(name, record, epochs, runs[-1] if runs else (), notes)]
    return _of_probe(name or folder.resolve().name, runs, notes)


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
    if not folders and not (path.is_file() or any(f.name != FILE for f in path.rglob("*.jsonl"))):
        return [], []
    from . import lab

    with redirect_stderr(io.StringIO()) as said:  # damaged files are named there
        records = lab.read_records(path)
    notes = [line.removeprefix("madamoo: ") for line in said.getvalue().splitlines() if FILE not in line]
    rows: dict[str, Sequence[Row]] = {}
    running = 0
    for file in folders:
        record = _read_record(file, [])
        if record is not None and record["status"] == "running":
            running += 1
        elif record is not None and (file.parent / FILE).exists():
            of_probe = _read_rows(file.parent / FILE, notes)
            if of_probe:
                rows[_key(record["config"])] = of_probe[-1]
    if running:
        notes.append(f"{running} of the runs below {path} have not ended and are not shown")
    runs = []
    for record in records:
        config = record["config"]
        found = flaw_of(record)
        if found:
            notes.append(f"the record of {str(config)[:100]} is not used: {found}")
            continue
        name = f"{config['solver']} {config['optimizer']} lr {config['lr']:g} seed {config['seed']}"
        runs.append(ReadRun(name, record, rows=rows.get(_key(config), ())))
    return runs, notes


def _key(config: dict[str, Any]) -> str:
    return json.dumps(config, sort_keys=True)


def _read_record(path: Path, notes: list[str]) -> dict[str, Any] | None:
    from .lab import Damaged, read_record

    try:
        record = read_record(path, "config", "status")
        found = flaw_of(record)
    except (Damaged, ValueError) as error:
        found = str(error)
    if found:
        notes.append(f"{path.name} is damaged and not used: {found}")
        return None
    return record


def _read_epochs(path: Path, notes: list[str]) -> list[dict[str, Any]]:
    """The epochs of the lab, one JSON object per line."""
    found: list[dict[str, Any]] = []
    bad = 0
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            try:
                row: Any = json.loads(line) if line.strip() else None
            except (ValueError, RecursionError):
                row = False
            if not flaw(row, _EPOCH, "it") and not flaw(row.get("weights"), Maybe([_VALUE]), "it"):
                found.append(row)
            elif row is not None:
                bad += 1
    if bad:
        notes.append(f"{path.name}: {bad} lines are no epochs and were left out")
    return found


_VALUE, _VALUES = Maybe(NUMBER), {str: Maybe(NUMBER)}
_EPOCH = {"epoch": COUNT, "train_losses": Maybe([_VALUE]), "validation_losses": Maybe([_VALUE])}
_RECORD = {
    "config": {"benchmark": NAME, "solver": NAME, "optimizer": NAME},
    "status": Kind("running, finished or diverged", lambda value: value in ("running", "finished", "diverged")),
}
_FRONT = {"preferences": [[NUMBER]], "points": [[NUMBER]], "maximise": [FLAG], "names": [NAME]}
_POINT = Kind(
    "seconds and a loss",
    lambda value: (
        isinstance(value, list) and len(value) == 2 and not flaw(value, [_VALUE], "") and value[0] is not None
    ),
)
_ANY = Kind("anything", lambda value: True)
_FURTHER: dict[str, Any] = {  # where they are there
    "metrics": _VALUES,
    "validation": _VALUES,
    "validation_loss": NUMBER,
    "weights_moved": NUMBER,
    "steps": COUNT,
    "objectives": [NAME],
    "front": {str: _FRONT},
    "environment": {str: _ANY},
    "reductions": [_ANY],
}


def flaw_of(record: Any) -> str:
    """What is wrong with a record: empty if it is one that the lab may have written."""
    found = flaw(record, _RECORD, "it")
    if found:
        return found
    config, cost = record["config"], record.get("cost")
    numbers = {key: x for key, x in cost.items() if key != "curve"} if isinstance(cost, dict) else cost
    parts: list[tuple[Any, Any, str]] = [
        *((config[key], NUMBER, f"its {key}") for key in ("lr", "seed", "epochs", "batch") if key in config),
        *((record.get(key), Maybe(kind), f"its {key}") for key, kind in _FURTHER.items()),
        (numbers, Maybe(_VALUES), "its cost"),
        (cost.get("curve") if isinstance(cost, dict) else None, Maybe([_POINT]), "its curve"),
    ]
    return next((found for part in parts if (found := flaw(*part))), "")
