"""Where rows go: a folder, a TensorBoard writer, any function."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeAlias

Row: TypeAlias = dict[str, Any]
Sink: TypeAlias = Callable[[Row], Any]

FILE = "diagnostics.jsonl"


def open_sinks(sinks: Any) -> list[Sink]:
    """A list of functions of a row, from one sink or several."""
    single = isinstance(sinks, str | os.PathLike) or callable(sinks) or hasattr(sinks, "add_scalar")
    if not single and not isinstance(sinks, Iterable):
        raise TypeError(f"sinks must be a list of sinks, got {type(sinks).__name__}")
    return [_open(sink) for sink in ([sinks] if single else sinks)]


def _open(sink: Any) -> Sink:
    if isinstance(sink, str | os.PathLike):
        return _Folder(Path(sink))
    if hasattr(sink, "add_scalar"):
        return _Writer(sink)
    if callable(sink):
        return sink
    raise TypeError(
        f"a sink must be a folder, a writer with add_scalar or a function of a row, got {type(sink).__name__}"
    )


class _Folder:
    """Appends each row as one line to a file in a folder."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        folder.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab+") as file:  # a killed run may have left half a line
            if file.tell():
                file.seek(-1, os.SEEK_END)
                if file.read() != b"\n":
                    file.write(b"\n")

    def __call__(self, row: Row) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, allow_nan=False) + "\n")

    def __repr__(self) -> str:
        return repr(str(self.path))


class _Writer:
    """Gives each number of a row to something like TensorBoard's SummaryWriter."""

    def __init__(self, writer: Any) -> None:
        self.writer = writer

    def __call__(self, row: Row) -> None:
        for tag, value in flatten(row).items():
            if tag != "step":
                self.writer.add_scalar(f"diagnostics/{tag}", value, row["step"])

    def __repr__(self) -> str:
        return repr(self.writer)


def flatten(row: Row) -> dict[str, float]:
    """The numbers of a row by one name each, as ``effects/adam/loss_a``; what is None is left out.

    Example:
        >>> flatten({"step": 3, "flips": {"adam": {"a": True, "b": None}}})
        {'step': 3, 'flips/adam/a': 1}
    """
    result: dict[str, float] = {}

    def walk(prefix: str, value: Any) -> None:
        if isinstance(value, dict):
            for key, x in value.items():
                walk(f"{prefix}/{key}" if prefix else str(key), x)
        elif isinstance(value, bool | int | float):
            result[prefix] = int(value) if isinstance(value, bool) else value

    walk("", row)
    names = row.get("objectives", [])
    for i, line in enumerate(row.get("cosines") or []):
        for j in range(i + 1, len(line)):
            walk(f"cosines/{names[i]}/{names[j]}", line[j])
    return result
