"""What a record must be before anything is made of it: records come from other people too.

A checksum only says that a file is as it was written. Here every field that the lab reads has the type, and every
number the size, that a run would have written; whatever else a record holds is never looked at.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from ._config import Config
from ._files import Damaged
from ._spec import canonical

LARGEST = 1e100  # no run measures more; squares and sums of such numbers are still finite
LONGEST = 4096  # characters of a name
MOST = 100_000  # entries of a list

IDENTITY = tuple(field.name for field in fields(Config))
ENDED = ("finished", "diverged")

Test = Callable[[Any], bool]


def is_number(value: Any) -> bool:
    """A finite number of a plausible size; True and False are none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST


def is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53


def is_name(value: Any) -> bool:
    """Text that can be printed on a terminal: no escape sequence, no half of a character."""
    return isinstance(value, str) and 0 < len(value) <= LONGEST and value.isprintable()


def optional(test: Test) -> Test:
    return lambda value: value is None or test(value)


def list_of(test: Test) -> Test:
    return lambda value: isinstance(value, list) and len(value) <= MOST and all(map(test, value))


def by_name(test: Test) -> Test:
    return lambda value: isinstance(value, dict) and len(value) <= MOST and all(
        is_name(key) and test(inner) for key, inner in value.items()
    )  # fmt: skip


def has(**tests: Test) -> Test:
    """A mapping in which each of these is there and passes; what else it has does not matter."""
    return lambda value: isinstance(value, dict) and all(key in value and tests[key](value[key]) for key in tests)


def is_scalar(value: Any) -> bool:
    return value is None or isinstance(value, bool) or is_number(value) or value == "" or is_name(value)


def is_curve(value: Any) -> bool:
    """Pairs of seconds and validation loss."""
    points = list_of(lambda p: isinstance(p, list) and len(p) == 2 and is_number(p[0]) and optional(is_number)(p[1]))
    return points(value)


def is_front(value: Any) -> bool:
    rows = list_of(lambda row: list_of(is_number)(row) and len(row) == len(value["names"]))
    rays = list_of(lambda row: list_of(lambda a: is_number(a) and a >= 0)(row) and len(row) > 1 and sum(row) > 0)
    return (
        has(names=list_of(is_name), maximise=list_of(lambda flag: isinstance(flag, bool)))(value)
        and len(value["maximise"]) == len(value["names"]) > 0
        and rows(value.get("points"))
        and rays(value.get("preferences"))
        and len(value["points"]) == len(value["preferences"]) > 0
        and len({len(ray) for ray in value["preferences"]}) == 1
    )


CONFIG: dict[str, tuple[Test, str]] = {
    "lr": (lambda lr: is_number(lr) and lr > 0, "a positive number"),
    "seed": (lambda seed: isinstance(seed, int) and not isinstance(seed, bool) and abs(seed) < 2**63, "a whole number"),
    "epochs": (lambda count: is_count(count) and count > 0, "a count"),
    "batch": (lambda count: is_count(count) and count > 0, "a count"),
    **{key: (is_name, "a name") for key in ("benchmark", "profile", "solver", "optimizer", "model", "schedule")},
}
MEASURED: dict[str, tuple[Test, str]] = {
    "validation_loss": (optional(is_number), "a number"),
    "weights_moved": (optional(is_number), "a number"),
    "epoch": (optional(is_count), "a count"),
    "steps": (optional(is_count), "a count"),
    "refused_steps": (optional(is_count), "a count"),
    "parameters": (optional(is_count), "a count"),
    "resumed_from": (optional(is_count), "a count"),
    "diagnosed": (optional(is_count), "a count"),
    "metric": (optional(is_name), "text"),
    "objectives": (optional(list_of(is_name)), "a list of names"),
    "notes": (optional(list_of(is_name)), "a list of sentences"),
    "reductions": (optional(list_of(is_name)), "a list of sentences"),
    "environment": (optional(by_name(is_scalar)), "a mapping of names to words"),
    "front": (optional(by_name(is_front)), "a mapping of splits to fronts"),
}
COST: dict[str, tuple[Test, str]] = {
    "seconds": (is_number, "a number"),
    "seconds_per_step": (optional(is_number), "a number"),
    "peak_memory_bytes": (optional(is_number), "a number"),
    "state_bytes": (optional(is_number), "a number"),
    "curve": (optional(is_curve), "a list of pairs of seconds and loss"),
}


def check_record(record: dict[str, Any]) -> None:
    """Raise :class:`Damaged` unless the record is one that the lab may have written of a run that ended."""
    if record.get("status") not in ENDED:
        raise Damaged(f"its status is {_shown(record.get('status'))}, not {' or '.join(ENDED)}")
    check_config(record.get("config"))
    for name in ("metrics", "validation"):
        found = record.get(name)
        if found is None and record["status"] == "finished":
            raise Damaged(f"it finished, but has no {name}")
        if not optional(by_name(optional(is_number)))(found):
            raise Damaged(f"its {name} are {_shown(found)}, not numbers by name")
    _check(record, MEASURED, "")
    if record.get("cost") is not None:
        if not isinstance(record["cost"], dict):
            raise Damaged(f"its cost is {_shown(record['cost'])}, not a mapping")
        _check(record["cost"], COST, "cost.")


def check_config(config: Any) -> None:
    """Raise :class:`Damaged` unless this is the configuration of a run."""
    if not isinstance(config, dict):
        raise Damaged(f"its configuration is {_shown(config)}, not a mapping")
    absent = [key for key in IDENTITY if key not in config]
    if absent:
        raise Damaged(f"its configuration lacks {', '.join(absent)}")
    _check(config, CONFIG, "")
    for key, value in config.items():
        if not (is_name(key) and is_scalar(value)):
            raise Damaged(f"its configuration has {_shown(key)}: {_shown(value)}, not a number or a name")
    try:
        canonical(config["solver"]), canonical(config["optimizer"])
    except ValueError as error:
        raise Damaged(f"its solver or optimizer cannot be read: {error}") from None


def _check(found: dict[str, Any], tests: dict[str, tuple[Test, str]], prefix: str) -> None:
    for name, (test, wanted) in tests.items():
        if not test(found.get(name)):
            raise Damaged(f"its {prefix}{name} is {_shown(found.get(name))}, not {wanted}")


def _shown(value: Any) -> str:
    return ascii(reprlib.repr(value))[1:-1]
