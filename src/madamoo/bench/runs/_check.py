"""What a record must be before anything is made of it: records come from other people too.

A checksum only says that a file is as it was written. Here every field that is read has the kind, and every number the
size, that a run would have written; whatever else a record holds is never looked at.
"""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

from madamoo.kinds import COUNT, FLAG, NAME, NUMBER, Kind, Maybe, Optional, flaw

from ._config import Config
from ._files import DIGEST, Damaged, parse_record
from ._spec import canonical

ENDED = ("finished", "diverged")

POSITIVE = Kind("a positive number", lambda value: NUMBER.fits(value) and value > 0)
POSITIVE_COUNT = Kind("a positive count", lambda value: COUNT.fits(value) and value > 0)
WHOLE = Kind("a whole number", lambda value: type(value) is int and abs(value) < 2**63)
SCALAR = Kind(
    "a number or a name",
    lambda value: value is None or value == "" or any(kind.fits(value) for kind in (FLAG, NUMBER, NAME)),
)
NUMBERS = {NAME: Maybe(NUMBER)}


def _is_front(value: Any) -> bool:
    ray = Kind("at least zero", lambda a: NUMBER.fits(a) and a >= 0)
    kind = {"names": [NAME], "maximise": [FLAG], "points": [[NUMBER]], "preferences": [[ray]]}
    if flaw(value, kind, ""):
        return False
    names, points, rays = value["names"], value["points"], value["preferences"]
    return (
        len(value["maximise"]) == len(names) > 0
        and len(points) == len(rays) > 0
        and all(len(point) == len(names) for point in points)
        and all(len(ray) == len(rays[0]) > 1 and sum(ray) > 0 for ray in rays)
    )


CONFIG = {
    **{field.name: NAME for field in fields(Config)},
    "lr": POSITIVE,
    "seed": WHOLE,
    "epochs": POSITIVE_COUNT,
    "batch": POSITIVE_COUNT,
}
COST = {
    "seconds": NUMBER,
    "seconds_per_step": Optional(NUMBER),
    "peak_memory_bytes": Optional(NUMBER),
    "state_bytes": Optional(NUMBER),
    "curve": Optional([(NUMBER, Maybe(NUMBER))]),  # seconds and validation loss
}
RECORD = {
    "status": Kind("running, finished or diverged", lambda value: value in ("running", *ENDED)),
    "config": CONFIG,
    "metrics": Maybe(NUMBERS),
    "validation": Maybe(NUMBERS),
    "validation_loss": Optional(NUMBER),
    "weights_moved": Optional(NUMBER),
    **{key: Optional(COUNT) for key in ("epoch", "steps", "refused_steps", "parameters", "resumed_from", "diagnosed")},
    "metric": Optional(NAME),
    **{key: Optional([NAME]) for key in ("objectives", "notes", "reductions")},
    "environment": Optional({NAME: SCALAR}),
    "front": Optional({NAME: Kind("a front", _is_front)}),
    "cost": Optional(COST),
}
LOSSES = Optional([Maybe(NUMBER)])
EPOCH = {"epoch": COUNT, "train_losses": LOSSES, "validation_losses": LOSSES, "weights": LOSSES}


def read_record(source: Path | bytes) -> dict[str, Any]:
    """The record of a run in a file; raises :class:`Damaged` unless it is one that the lab may have written."""
    try:
        text = (source.read_bytes() if isinstance(source, Path) else source).decode()
    except UnicodeDecodeError as error:
        raise Damaged(f"it is not text: {error}") from None
    record = parse_record(text, DIGEST)
    found = flaw(record, RECORD, "it") or flaw(record["config"], {NAME: SCALAR}, "it.config")
    if found:
        raise Damaged(found)
    for name in ("metrics", "validation"):
        if record["status"] == "finished" and record.get(name) is None:
            raise Damaged(f"it finished, but has no {name}")
    try:
        canonical(record["config"]["solver"]), canonical(record["config"]["optimizer"])
    except ValueError as error:
        raise Damaged(f"its solver or optimizer cannot be read: {error}") from None
    return record


def check_epoch(row: Any) -> None:
    """Raise :class:`Damaged` unless the row is one of ``epochs.jsonl``."""
    found = flaw(row, EPOCH, "it")
    if found:
        raise Damaged(found)
