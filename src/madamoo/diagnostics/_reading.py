"""Rows read back from a file: runs kept apart, and what is no row set aside and named.

A file may come from anyone. Whatever is in it, reading it imports nothing and raises nothing but what the file system
raises; the rows that come back are of the kind that a probe writes, so that what is made of them cannot fail either.
"""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path
from typing import Any

from ._measure import DIAGONAL, METRICS
from ._sinks import FILE, Row
from .kinds import COUNT, FLAG, NAME, NUMBER, Maybe, flaw

NOTES = 5  # lines that are named one by one


def read(path: str | os.PathLike[str], run: int = -1) -> list[Row]:
    """The rows of one run that a probe wrote to a folder (or to the file in it): of the last one, unless told.

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
    runs: list[list[Row]] = []
    notes: list[str] = []
    bad: list[str] = []
    repeated = 0
    with (file / FILE if file.is_dir() else file).open(encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            row, reason = _parse(line)
            if row is None:
                bad.append(f"line {number} {reason} and was left out")
                continue
            if not runs or row["step"] <= runs[-1][0]["step"]:
                runs.append([])
            while runs[-1] and runs[-1][-1]["step"] >= row["step"]:
                runs[-1].pop()
                repeated += 1
            runs[-1].append(row)
    notes += bad[:NOTES]
    if len(bad) > NOTES:
        notes.append(f"{len(bad) - NOTES} more lines are no rows and were left out")
    if repeated:
        notes.append(f"{repeated} rows came again after the run was resumed; the later ones count")
    return runs, notes


def _parse(line: str) -> tuple[Row | None, str]:
    """The row in a line, or why there is none."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None, "is not complete"
    found = _flaw(row)
    return (None, f"is no row ({found})") if found else (row, "")


_VALUE, _VALUES = Maybe(NUMBER), {str: Maybe(NUMBER)}
_ROW = {
    "step": COUNT,
    "objectives": [NAME],
    "losses": _VALUES,
    "weights": _VALUES,
    "cosines": [[_VALUE]],
    "conflict_rate": _VALUE,
    "effects": dict.fromkeys(METRICS, Maybe(_VALUES)),
    "alignments": dict.fromkeys(METRICS, Maybe(_VALUES)),
    "flips": dict.fromkeys(METRICS[1:], Maybe({str: Maybe(FLAG)})),
    "threshold": Maybe(_VALUES),
    "condition": dict.fromkeys(DIAGONAL, _VALUE),
    "spread": dict.fromkeys(DIAGONAL, _VALUE),
    "predicted": Maybe(_VALUES),
    "observed": Maybe(_VALUES),
    "marginalisation": Maybe(_VALUES),
    "floored": _VALUE,
    "below_eps": _VALUE,
}


def _flaw(row: Any) -> str:
    """What is wrong with a row: empty if it is one that a probe may have written."""
    found = flaw(row, _ROW, "it") or flaw(row.get("seconds"), Maybe(_VALUES), "it.seconds")
    if found:
        return found
    names = row["objectives"]
    square = [len(line) for line in row["cosines"]] == [len(names)] * len(names)
    if (
        not names
        or len({*names}) < len(names)
        or not square
        or {*names} - {*row["losses"]}
        or {*names} - {*row["weights"]}
    ):
        return "objectives must be different names, with one entry each in cosines, losses and weights"
    return ""
