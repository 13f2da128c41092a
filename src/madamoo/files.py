"""Files that are whole or not there, and lines of files that may be anyone's."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

NAMED = 5  # lines that are named one by one


def write_bytes(path: Path, content: bytes) -> Path:
    """Write ``path`` so that at every moment, power cuts included, it is the old file or the new one; returns it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return path


def write_text(path: Path, text: str) -> Path:
    """The same for text; half a surrogate pair in a user's name is no reason to fail."""
    return write_bytes(path, text.encode("utf-8", "replace"))


def remove_leftovers(folder: Path) -> None:
    """Delete the temporary files that a killed process left in ``folder``; call it with the folder locked."""
    for path in folder.glob(".*.tmp"):
        path.unlink(missing_ok=True)


def read_lines(path: Path, parse: Callable[[str], T]) -> tuple[list[T], list[str]]:
    """What ``parse`` makes of each line that is not empty, and which lines it refuses, by a ValueError, and why."""
    found: list[T] = []
    refused: list[str] = []
    for number, line in enumerate(path.read_bytes().split(b"\n"), 1):
        if line.strip():
            try:
                found.append(parse(line.decode()))
            except (ValueError, RecursionError) as error:
                refused.append(f"line {number} was left out: {error}")
    rest = len(refused) - NAMED
    return found, [*refused[:NAMED], *([f"{rest} more lines were left out"] if rest > 0 else [])]
