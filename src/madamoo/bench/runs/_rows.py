"""Rows of a run, one per line, each with a checksum of its own: ``epochs.jsonl`` and ``diagnostics.jsonl``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from ._files import DIGEST, Damaged, parse_record, seal, write_bytes

EPOCHS, DIAGNOSTICS = "epochs.jsonl", "diagnostics.jsonl"
ROWS = (EPOCHS, DIAGNOSTICS)

Row = dict[str, Any]


class Rows(NamedTuple):
    """What a file of rows holds, and in words what of it was left out or could not be checked."""

    rows: list[Row]
    notes: list[str]


def read_rows(path: Path) -> Rows:
    """The rows of a file without their checksums.

    A line that is torn or altered is left out. Earlier versions wrote no checksums; such lines are used as they are.
    """
    rows: list[Row] = []
    notes: list[str] = []
    unsealed = 0
    for number, line in enumerate(path.read_bytes().split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            row = parse_record(line.decode())
        except (Damaged, UnicodeDecodeError) as error:
            notes.append(f"{path.name}: line {number} is damaged and left out: {error}")
            continue
        unsealed += DIGEST not in row
        row.pop(DIGEST, None)
        rows.append(row)
    if unsealed:
        notes.append(f"{path.name}: {unsealed} lines have no checksum, as earlier versions wrote them")
    return Rows(rows, notes)


def write_rows(path: Path, rows: list[Row]) -> None:
    """Replace a file of rows, in one moment."""
    write_bytes(path, b"".join(map(_line, rows)))


def append_row(path: Path, row: Row) -> None:
    """Add a row to a file; a kill may leave part of a line, which :func:`read_rows` leaves out."""
    with path.open("ab") as file:
        file.write(_line(row))


def _line(row: Row) -> bytes:
    return (json.dumps(seal(row), allow_nan=False) + "\n").encode()
