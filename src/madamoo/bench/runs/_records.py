"""The records of ended runs: found in run folders and in packed files, and packed from the one into the other."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from madamoo.files import write_bytes

from ._check import read_record
from ._files import Damaged, Say, seal, to_stderr
from ._folder import PART, RECORD
from ._rows import ROWS
from ._spec import canonical

Record = dict[str, Any]

RUNNING = "running"
LONGEST = 180  # characters in the name of a packed file
CURVE_POINTS = 40


def read_records(*roots: Path, say: Say = to_stderr) -> list[Record]:
    """The record of every run below ``roots`` that finished or diverged, each configuration once.

    They are looked for in files called ``run.json`` and, one per line, in ``*.jsonl``. One that is damaged, or that no
    run can have written, is named to ``say`` and not used. Nothing that a record names is imported.

    Of several with the same configuration the one read last counts, whether it finished or diverged: to diverge is a
    result. Roots are read in the order given; below each, packed files come before run folders, since they are copies
    of older runs, and both in the order of their paths.
    """
    return _unique(record for root in roots for record in _read(Path(root), say))


def collect(source: Path, into: Path) -> int:
    """Pack the ended runs below ``source`` into one file per benchmark, and return how many there were.

    A file holds one sealed record per line, in an order that depends on the configurations alone; lines that are there
    already stay unless the same configuration was run again. Damaged lines are moved to a file ``*.damaged`` beside it.
    """
    packs: dict[str, list[Record]] = {}
    found = read_records(source)
    for record in found:
        name = re.sub(r"[^\w.-]+", "-", record["config"]["benchmark"])[-LONGEST:]  # a file's on every system
        packs.setdefault(name, []).append(_thinned(record))
    for name, records in sorted(packs.items()):
        _merge(Path(into) / f"{name}.jsonl", records)
    return len(found)


def _merge(path: Path, records: list[Record]) -> None:
    damaged: list[bytes] = []
    there = list(_read_lines(path, to_stderr, damaged)) if path.exists() else []
    if damaged:
        aside = path.with_name(f"{path.name}.damaged")
        before = aside.read_bytes() if aside.exists() else b""
        write_bytes(aside, before + b"".join(line + b"\n" for line in damaged))
    merged = sorted(_unique([*there, *records]), key=_order)
    write_bytes(path, "".join(_line(record) + "\n" for record in merged).encode())


def _line(record: Record) -> str:
    return json.dumps(seal(record), separators=(",", ":"), allow_nan=False)


def _read(root: Path, say: Say) -> Iterator[Record]:
    if not root.exists():
        raise FileNotFoundError(f"there is no file or folder {root} to read runs from")
    files = sorted(root.rglob("*")) if root.is_dir() else [root]
    for path in files:
        if path.suffix == ".jsonl" and path.name not in ROWS and path.is_file():
            yield from _read_lines(path, say)
    for path in files:
        if path.name == RECORD and not path.parent.name.startswith(PART) and path.is_file():
            yield from _ended(_content(path, say), str(path), say)


def _content(path: Path, say: Say) -> bytes | None:
    """What is in a file; one that cannot be read is named."""
    try:
        return path.read_bytes()
    except OSError as error:
        say(f"{path} cannot be read and is not used: {error}")
        return None


def _read_lines(path: Path, say: Say, damaged: list[bytes] | None = None) -> Iterator[Record]:
    """The records of a packed file. Each line is judged by itself: a bad one does not take the others with it."""
    for number, line in enumerate((_content(path, say) or b"").split(b"\n"), 1):
        if line.strip():
            yield from _ended(line, f"{path}, line {number}", say, damaged)


def _ended(content: bytes | None, where: str, say: Say, damaged: list[bytes] | None = None) -> Iterator[Record]:
    """The record in ``content``, if the run has ended; a damaged one is named, and added to the list, if any."""
    if content is None:
        return
    try:
        record = read_record(content)
    except Damaged as error:
        say(f"{where} is damaged and not used: {error}")
        if damaged is not None:
            damaged.append(content)
        return
    if record["status"] != RUNNING:
        yield record


def _unique(records: Iterable[Record]) -> list[Record]:
    return list({identity(record["config"]): record for record in records}.values())


def identity(config: Mapping[str, Any]) -> str:
    """Equal for equal configurations, however their specs were written; raises ValueError if they are no specs."""
    specs = {key: canonical(config[key]) for key in ("solver", "optimizer")}
    return json.dumps({**config, **specs}, sort_keys=True)


def _order(record: Record) -> tuple[Any, ...]:
    config = record["config"]
    return (*(config[key] for key in ("profile", "solver", "optimizer", "lr", "seed")), identity(config))


def _thinned(record: Record) -> Record:
    """With at most ``CURVE_POINTS`` of each curve; its end and its lowest point stay, so that every loss is reached."""
    cost = record.get("cost") or {}
    thin = {name: _thin(cost[name]) for name in ("curve", "training") if len(cost.get(name) or ()) > CURVE_POINTS}
    return {**record, "cost": {**cost, **thin}} if thin else record


def _thin(curve: list[list[Any]]) -> list[list[Any]]:
    lowest = min(range(len(curve)), key=lambda k: float("inf") if curve[k][-1] is None else curve[k][-1])
    even = CURVE_POINTS - 1
    return [curve[k] for k in sorted({lowest, *(k * (len(curve) - 1) // (even - 1) for k in range(even))})]
