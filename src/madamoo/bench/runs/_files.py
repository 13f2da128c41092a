"""Files that are whole or not there: checksums, and what happens to damaged ones."""

from __future__ import annotations

import hashlib
import io
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from madamoo.files import write_bytes

Say = Callable[[str], None]  # gets a sentence for the user

MAGIC = b"madamoo1"
DIGEST = "sha256"


class Damaged(ValueError):
    """A file that cannot be what was written; the message says what is wrong with it."""


def to_stderr(text: str) -> None:
    print(f"madamoo: {text}", file=sys.stderr)


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
    """The JSON object in ``text``; raises :class:`Damaged` if it is torn, altered, or lacks a required key."""
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


def set_aside(path: Path, reason: str) -> Path:
    """Rename a damaged file, so that it can be looked at but is never used, and say so."""
    number, target = 1, path.with_name(f"{path.name}.damaged")
    while target.exists():
        number += 1
        target = path.with_name(f"{path.name}.damaged-{number}")
    os.replace(path, target)
    to_stderr(f"{path} is damaged ({reason}); set aside as {target.name}")
    return target


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a number")


def _digest(record: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True, allow_nan=False).encode()).hexdigest()
