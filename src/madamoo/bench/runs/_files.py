"""Files that are whole or not there: atomic writes, checksums, and what happens to damaged ones."""

from __future__ import annotations

import hashlib
import io
import json
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

MAGIC = b"madamoo1"
DIGEST = "sha256"


class Damaged(Exception):
    """A file that cannot be what was written; the message says what is wrong with it."""


def write_bytes(path: Path, content: bytes) -> None:
    """Write ``path`` so that at every moment, power cuts included, it is either the old file or the new one."""
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


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside ``path``, with its suffix, which takes its place when all went well.

    For files that another library writes: at every moment there is the old file or the new one.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.stem}.{os.getpid()}-{threading.get_ident()}.tmp{path.suffix}")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def remove_leftovers(folder: Path) -> None:
    """Delete the temporary files that a killed process left in ``folder``; call it with the folder locked."""
    for path in folder.glob(".*.tmp"):
        path.unlink(missing_ok=True)


def write_tensors(path: Path, content: Any) -> None:
    """Save what ``torch.load(weights_only=True)`` can read, with a checksum in front."""
    buffer = io.BytesIO()
    torch.save(content, buffer)
    payload = buffer.getbuffer()
    write_bytes(path, b"".join((MAGIC, hashlib.sha256(payload).digest(), payload)))


def read_tensors(path: Path) -> Any:
    """What :func:`write_tensors` saved; raises :class:`Damaged`."""
    content = path.read_bytes()
    start = len(MAGIC) + hashlib.sha256().digest_size
    payload = memoryview(content)[start:]
    if content[: len(MAGIC)] != MAGIC or hashlib.sha256(payload).digest() != content[len(MAGIC) : start]:
        raise Damaged("its checksum does not fit its content")
    try:
        return torch.load(io.BytesIO(payload), map_location="cpu", weights_only=True)
    except Exception as error:  # torch has many for what it will not load; a file may be sealed and still not ours
        raise Damaged(f"torch does not load it: {type(error).__name__}") from None


def seal(record: dict[str, Any]) -> dict[str, Any]:
    """The record with a checksum of all the rest."""
    rest = {key: value for key, value in record.items() if key != DIGEST}
    return {**rest, DIGEST: _digest(rest)}


def write_record(path: Path, record: dict[str, Any]) -> None:
    """Write a JSON record with its checksum."""
    write_bytes(path, (json.dumps(seal(record), indent=1, allow_nan=False) + "\n").encode())


def parse_record(text: str, *required: str) -> dict[str, Any]:
    """The record in ``text``; raises :class:`Damaged` if it is torn, altered, or lacks a required key."""
    try:
        record = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise Damaged(f"it is not JSON: {error}") from None
    if not isinstance(record, dict):
        raise Damaged(f"it holds a {type(record).__name__}, not a record")
    absent = [key for key in required if key not in record]
    if absent:
        raise Damaged(f"it lacks {', '.join(absent)}")
    try:
        fits = DIGEST not in record or seal(record)[DIGEST] == record[DIGEST]
    except (ValueError, RecursionError):  # 1e999 is JSON, but no number that was ever written
        fits = False
    if not fits:
        raise Damaged("its checksum does not fit its content")
    return record


def read_record(path: Path, *required: str) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise Damaged(f"it is not text: {error}") from None
    return parse_record(text, *required)


def set_aside(path: Path, reason: str) -> Path:
    """Rename a damaged file, so that it can be looked at but is never used, and say so."""
    number, target = 1, path.with_name(f"{path.name}.damaged")
    while target.exists():
        number += 1
        target = path.with_name(f"{path.name}.damaged-{number}")
    os.replace(path, target)
    print(f"madamoo: {path} is damaged ({reason}); set aside as {target.name}", file=sys.stderr)
    return target


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a number")


def _digest(record: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True, allow_nan=False).encode()).hexdigest()
