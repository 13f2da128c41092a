"""What a record must be before anything is made of it: records come from other people too.

A checksum only says that a file is as it was written. Here every field that is read has the kind, and every number the
size, that a run would have written; whatever else a record holds is never looked at.
"""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

from torch import Tensor

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


MAP = {"kind", "what", "at", "axes", "x", "y", "values"}
PICTURE = {"kind", "what", "input", "prediction", "truth"}
PICTURES = ("overlay", "slices")
LARGEST = 250_000  # numbers in a map or picture


def check_maps(content: Any) -> list[dict[str, Any]]:
    """Maps and pictures of a run's folder, or :class:`Damaged`: a list of at most 200.

    A map has words, and values [len(x), len(y)]: ``kind`` is "solution", "error" or "residual", ``what`` of which
    output or equation, ``at`` where in the other variables, ``axes`` the names of the two. A picture has ``what`` it
    shows: of kind "overlay" an ``input`` [height, width, 3] with two masks, ``prediction`` and ``truth``, [height,
    width]; of kind "slices" all three [height, width]. Their values lie between 0 and 1.
    """
    if not isinstance(content, list) or len(content) > 200:
        raise Damaged("its maps are no list of at most 200")
    for one in content:
        if not isinstance(one, dict):
            raise Damaged("a map is none")
        (_check_picture if one.get("kind") in PICTURES else _check_map)(one)
    return content


def _check_map(one: dict[str, Any]) -> None:
    if set(one) != MAP:
        raise Damaged("a map lacks a part, or has one too many")
    words = [one["kind"], one["what"], one["at"], *(one["axes"] if isinstance(one["axes"], list) else [None])]
    if len(words) != 5 or not all(isinstance(word, str) for word in words):
        raise Damaged("a map has no words where words belong")
    x, y, values = _numbers(one, "x", "y", "values")
    if x.dim() != 1 or y.dim() != 1 or values.shape != (len(x), len(y)) or not 0 < values.numel() <= LARGEST:
        raise Damaged(f"a map of {tuple(values.shape)} does not fit its axes, or is too large")


def _check_picture(one: dict[str, Any]) -> None:
    if set(one) != PICTURE or not isinstance(one["what"], str):
        raise Damaged("a picture lacks a part, or has one too many")
    shown, prediction, truth = _numbers(one, "input", "prediction", "truth")
    size = tuple(truth.shape)
    wanted = (*size, 3) if one["kind"] == "overlay" else size
    if len(size) != 2 or prediction.shape != size or tuple(shown.shape) != wanted or not 0 < truth.numel() <= LARGEST:
        raise Damaged(f"a picture of {tuple(shown.shape)} does not fit {size}, or is too large")


def _numbers(one: dict[str, Any], *names: str) -> list[Tensor]:
    tensors = [one[name] for name in names]
    if not all(isinstance(t, Tensor) and t.is_floating_point() for t in tensors):
        raise Damaged("a map has no numbers where numbers belong")
    return tensors


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
    "clock": Optional(NAME),  # processor or wall; older records: wall
    "seconds": NUMBER,
    "seconds_per_step": Optional(NUMBER),
    "peak_memory_bytes": Optional(NUMBER),
    "state_bytes": Optional(NUMBER),
    "curve": Optional([(NUMBER, Maybe(NUMBER))]),  # seconds and validation loss
    "training": Optional([(COUNT, NUMBER, Maybe(NUMBER))]),  # steps, seconds and training loss
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
