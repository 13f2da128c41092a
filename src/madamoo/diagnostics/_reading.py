"""Rows read back from a file: runs kept apart, and what is no row set aside and named.

A file may come from anyone. Whatever is in it, reading it imports nothing and raises nothing but what the file system
raises; the rows that come back are of the kind that a probe writes, so that what is made of them cannot fail either.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from madamoo.files import read_lines
from madamoo.kinds import COUNT, FLAG, NUMBER, TEXT, Maybe, Optional, flaw

from ._measure import DIAGONAL, METRICS
from ._sinks import FILE, Row


def read(path: str | os.PathLike[str], run: int = -1) -> list[Row]:
    """The rows of one run that a probe wrote to a folder (or to the file in it): by default of the last one.

    What was left out, and that there are several runs, is said by a warning; :func:`read_runs` says when a run begins.
    """
    runs, notes = read_runs(path)
    if len(runs) > 1:
        notes.append(
            f"there are {len(runs)} runs, and these are the rows of run {range(len(runs))[run]}: choose by run="
        )
    for note in notes:
        warnings.warn(f"{path}: {note}", stacklevel=2)
    return runs[run] if runs else []


def read_runs(path: str | os.PathLike[str]) -> tuple[list[list[Row]], list[str]]:
    """The rows of each run in a folder (or in the file in it), and what was left out.

    A run begins where the steps go back to the first step of the run before it, or further. Where they go back less
    far, a run was resumed from a checkpoint: each step counts once, as it was done last.
    """
    file = Path(path)
    rows, notes = read_lines(file / FILE if file.is_dir() else file, _parse)
    runs, repeated = split_runs(rows)
    return runs, [*notes, *repeated]


def split_runs(rows: Iterable[Row]) -> tuple[list[list[Row]], list[str]]:
    """The rows of each run, as :func:`read_runs` tells them apart, and how many came again."""
    runs: list[list[Row]] = []
    repeated = 0
    for row in rows:
        if not runs or row["step"] <= runs[-1][0]["step"]:
            runs.append([])
        while runs[-1] and runs[-1][-1]["step"] >= row["step"]:
            runs[-1].pop()
            repeated += 1
        runs[-1].append(row)
    return runs, [f"{repeated} rows came again after the run was resumed; the later ones count"] if repeated else []


def _parse(line: str) -> Row:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        raise ValueError("it is not complete") from None
    check_row(row)
    return row


_VALUE, _VALUES = Maybe(NUMBER), {TEXT: Maybe(NUMBER)}
_ROW = {
    "step": COUNT,
    "objectives": [TEXT],
    "losses": _VALUES,
    "weights": _VALUES,
    "cosines": [[_VALUE]],
    "conflict_rate": _VALUE,
    "effects": dict.fromkeys(METRICS, Maybe(_VALUES)),
    "alignments": dict.fromkeys(METRICS, Maybe(_VALUES)),
    "flips": dict.fromkeys(METRICS[1:], Maybe({TEXT: Maybe(FLAG)})),
    "threshold": Maybe(_VALUES),
    "condition": dict.fromkeys(DIAGONAL, _VALUE),
    "spread": dict.fromkeys(DIAGONAL, _VALUE),
    "predicted": Maybe(_VALUES),
    "observed": Maybe(_VALUES),
    "marginalisation": Maybe(_VALUES),
    "floored": _VALUE,
    "below_eps": _VALUE,
    "seconds": Optional(_VALUES),
}


def check_row(row: Any) -> None:
    """Raise ValueError unless the row is one that a probe may have written."""
    found = flaw(row, _ROW, "it")
    if found:
        raise ValueError(found)
    names = row["objectives"]
    square = [len(line) for line in row["cosines"]] == [len(names)] * len(names)
    known = not {*names} - {*row["losses"]} and not {*names} - {*row["weights"]}
    if not names or len({*names}) < len(names) or not square or not known:
        raise ValueError("objectives must be different names, with one entry each in cosines, losses and weights")
