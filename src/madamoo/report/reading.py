"""From a path to runs: a lab run, a folder of them, or the record of a probe on a training loop of one's own.

What is complete is used, and what was left out is said in the notes of a run. Files may come from anyone: nothing in
them is imported, and what is not of the kind that the lab or a probe writes is named and set aside.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from madamoo.diagnostics import FILE, Row, read_runs

RECORD, EPOCHS, PART = "run.json", "epochs.jsonl", "ray-"
NAMES = ("benchmark", "solver", "optimizer")  # of a configuration
STATUS = ("running", "finished", "diverged")


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

    records, notes = lab.read_all(path)
    notes = [note for note in notes if FILE not in note]
    rows: dict[str | None, Sequence[Row]] = {}
    running = 0
    for file in folders:
        record = _read_record(file, [])
        if record is not None and record["status"] == "running":
            running += 1
        elif record is not None and (file.parent / FILE).exists():
            found = _read_rows(file.parent / FILE, notes)
            key = lab.identity(record["config"])
            if found and key is not None:
                rows[key] = found[-1]
    if running:
        notes.append(f"{running} of the runs below {path} have not ended and are not shown")
    runs = []
    for record in records:
        config = record["config"]
        flaw = flaw_of(record)
        if flaw:
            notes.append(f"the record of {_short(config)} is not used: {flaw}")
            continue
        name = f"{config['solver']} {config['optimizer']} lr {config['lr']:g} seed {config['seed']}"
        runs.append(ReadRun(name, record, rows=rows.get(lab.identity(config), ())))
    return runs, notes


def _short(config: Any) -> str:
    return str(config)[:100]


def _read_record(path: Path, notes: list[str]) -> dict[str, Any] | None:
    from .lab import read_one

    record, flaw = read_one(path)
    if record is not None:
        flaw = flaw_of(record)
    if flaw:
        notes.append(f"{path.name} is damaged and not used: {flaw}")
        return None
    return record


def _read_epochs(path: Path, notes: list[str]) -> list[dict[str, Any]]:
    """The epochs of the lab, one JSON object per line."""
    found: list[dict[str, Any]] = []
    bad = 0
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            try:
                row = json.loads(line) if line.strip() else None
            except (ValueError, RecursionError):
                row = False
            if isinstance(row, dict) and _is_epoch(row):
                found.append(row)
            elif row is not None:
                bad += 1
    if bad:
        notes.append(f"{path.name}: {bad} lines are no epochs and were left out")
    return found


# ---------------------------------------------------------------- of which kind things are


def _is_epoch(row: dict[str, Any]) -> bool:
    lists = ("train_losses", "validation_losses")
    return (
        _is_count(row.get("epoch"))
        and all(key in row and (row[key] is None or _is_list(row[key], _is_number)) for key in lists)
        and (row.get("weights") is None or _is_list(row["weights"], _is_number))
    )


def flaw_of(record: dict[str, Any]) -> str:
    """What is wrong with a record: empty if it is one that the lab may have written."""
    config = record.get("config")
    if not isinstance(config, dict):
        return "it has no configuration"
    for name in NAMES:
        if not isinstance(config.get(name), str):
            return f"its configuration has no {name}"
    for name in ("lr", "seed", "epochs", "batch"):
        if name in config and (config[name] is None or not _is_number(config[name])):
            return f"its {name} is {str(config[name])[:20]!r}, not a number"
    if record.get("status") not in STATUS:
        return f"its status is {str(record.get('status'))[:20]!r}, not one of {', '.join(STATUS)}"
    for name, fits in _KINDS.items():
        if record.get(name) is not None and not fits(record[name]):
            return f"its {name} is of another kind"
    return ""


LARGEST = 1e100  # of a number in a record: sums and squares of such numbers are still finite


def _is_number(value: Any) -> bool:
    if value is None:
        return True
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _is_list(value: Any, fits: Callable[[Any], bool]) -> bool:
    return isinstance(value, list) and all(map(fits, value))


def _is_numbers(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_number, value.values()))


def _is_cost(value: Any) -> bool:
    curve = value.get("curve") if isinstance(value, dict) else None
    rest = isinstance(value, dict) and {key: x for key, x in value.items() if key != "curve"}
    points = curve is None or _is_list(curve, lambda p: _is_list(p, _is_number) and len(p) == 2 and p[0] is not None)
    return points and _is_numbers(rest)


def _is_front(value: Any) -> bool:
    """As :meth:`madamoo.pareto.Front.to_dict` writes it."""
    kinds: dict[str, Callable[[Any], bool]] = {
        "preferences": lambda row: _is_list(row, lambda x: x is not None and _is_number(x)),
        "points": lambda row: _is_list(row, lambda x: x is not None and _is_number(x)),
        "maximise": lambda flag: isinstance(flag, bool),
        "names": lambda name: isinstance(name, str),
    }
    return isinstance(value, dict) and all(_is_list(value.get(key), fits) for key, fits in kinds.items())


_KINDS: dict[str, Callable[[Any], bool]] = {
    "metrics": _is_numbers,
    "validation": _is_numbers,
    "validation_loss": _is_number,
    "weights_moved": _is_number,
    "steps": _is_count,
    "cost": _is_cost,
    "objectives": lambda value: _is_list(value, lambda name: isinstance(name, str)) and bool(value),
    "front": lambda value: isinstance(value, dict) and all(map(_is_front, value.values())),
    "environment": lambda value: isinstance(value, dict),
    "reductions": lambda value: isinstance(value, list),
}
