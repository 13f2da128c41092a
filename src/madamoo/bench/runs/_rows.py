"""Rows of a run, one per line, each with a checksum of its own: ``epochs.jsonl`` and ``diagnostics.jsonl``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from madamoo.files import read_lines, write_bytes

from ._files import DIGEST, parse_record, seal

EPOCHS, DIAGNOSTICS = "epochs.jsonl", "diagnostics.jsonl"
ROWS = (EPOCHS, DIAGNOSTICS)

Row = dict[str, Any]


class Rows(NamedTuple):
    """What a file of rows holds, and in words what of it was left out or could not be checked."""

    rows: list[Row]
    notes: list[str]


def read_rows(path: Path, check: Callable[[Row], None] | None = None) -> Rows:
    """The rows of a file without their checksums.

    A line that is torn or altered is left out, and so is one for which ``check`` raises a ValueError. Earlier versions
    wrote no checksums; such lines are used as they are.
    """
    unsealed = 0

    def parse(line: str) -> Row:
        nonlocal unsealed
        row = parse_record(line)
        if check is not None:
            check(row)
        unsealed += DIGEST not in row
        return {key: value for key, value in row.items() if key != DIGEST}

    rows, notes = read_lines(path, parse)
    if unsealed:
        notes.append(f"{unsealed} lines have no checksum, as earlier versions wrote them")
    return Rows(rows, [f"{path.name}: {note}" for note in notes])


def write_rows(path: Path, rows: list[Row]) -> None:
    """Replace a file of rows, in one moment."""
    write_bytes(path, b"".join(map(_line, rows)))


def append_row(path: Path, row: Row) -> None:
    """Add a row to a file; a kill may leave part of a line, which :func:`read_rows` leaves out."""
    with path.open("ab") as file:
        file.write(_line(row))


def _line(row: Row) -> bytes:
    return (json.dumps(seal(row), allow_nan=False) + "\n").encode()
