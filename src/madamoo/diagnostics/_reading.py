"""Rows read back from a file: runs kept apart, and what is no row set aside and named.

A file may come from anyone. Whatever is in it, reading it imports nothing and raises nothing but what the file system
raises; the rows that come back are of the kind that a probe writes, so that what is made of them cannot fail either.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from ._measure import DIAGONAL, METRICS
from ._sinks import FILE, Row

LARGEST = 1e100  # of a number in a row: sums and squares of such numbers are still finite
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
    flaw = flaw_of(row)
    return (None, f"is no row ({flaw})") if flaw else (row, "")


def flaw_of(row: Any) -> str:
    """What is wrong with a row: empty if it is one that a probe may have written."""
    if not isinstance(row, dict):
        return f"it is a {type(row).__name__}"
    names = row.get("objectives")
    if not _is_list(names, lambda name: isinstance(name, str)) or not names or len(set(names)) < len(names):
        return "objectives must be different names"
    if not isinstance(row.get("step"), int) or isinstance(row["step"], bool) or not 0 <= row["step"] < 2**63:
        return f"step must be a whole number, not {str(row.get('step'))[:20]!r}"
    for key, fits in _FIELDS.items():
        if key not in row:
            return f"it has no {key}"
        if not fits(row[key]):
            return f"{key} is of another kind"
    if not _maybe(_numbers)(row.get("seconds")):
        return "seconds is of another kind"
    square = [len(line) for line in row["cosines"]] == [len(names)] * len(names)
    missing = [n for n in names if n not in row["losses"] or n not in row["weights"]]
    if not square or missing:
        return "cosines, losses and weights must have one entry per objective"
    return ""


def _is_number(value: Any) -> bool:
    """A number that can be computed with, or None."""
    if value is None:
        return True
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST


def _is_flag(value: Any) -> bool:
    return value is None or isinstance(value, bool)


def _is_list(value: Any, fits: Callable[[Any], bool]) -> bool:
    return isinstance(value, list) and all(map(fits, value))


def _numbers(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_number, value.values()))


def _maybe(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or fits(value)


def _by(keys: Iterable[str], fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """A dictionary that has these keys at least, with values of a kind."""
    wanted = tuple(keys)
    return lambda value: isinstance(value, dict) and all(key in value and fits(value[key]) for key in wanted)


def _flags(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_flag, value.values()))


def _matrix(value: Any) -> bool:
    return _is_list(value, lambda line: _is_list(line, _is_number))


_FIELDS: Mapping[str, Callable[[Any], bool]] = {
    "losses": _numbers,
    "weights": _numbers,
    "cosines": _matrix,
    "conflict_rate": _is_number,
    "effects": _by(METRICS, _maybe(_numbers)),
    "alignments": _by(METRICS, _maybe(_numbers)),
    "flips": _by(METRICS[1:], _maybe(_flags)),
    "threshold": _maybe(_numbers),
    "condition": _by(DIAGONAL, _is_number),
    "spread": _by(DIAGONAL, _is_number),
    "predicted": _maybe(_numbers),
    "observed": _maybe(_numbers),
    "marginalisation": _maybe(_numbers),
    "floored": _is_number,
    "below_eps": _is_number,
}
