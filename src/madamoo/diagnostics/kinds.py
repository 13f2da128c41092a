"""Of which kind a value is that comes from a file, which may be anyone's: checked before anything is made of it.

A kind is one of :data:`NUMBER`, :data:`COUNT`, :data:`NAME` and :data:`FLAG`, ``[kind]`` for a list,
``{str: kind}`` for a dictionary with any keys, ``{"a": kind, ...}`` for one that has these keys at least, or
``Maybe(kind)`` for what may be None.

Example:
    >>> flaw({"losses": [1.0, "x"]}, {"losses": [NUMBER]}, "the row")
    "the row.losses[1] is 'x', not a number"
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

LARGEST = 1e100  # of a number: sums and squares of such numbers are still finite


class Kind(NamedTuple):
    name: str
    fits: Callable[[Any], bool]


class Maybe(NamedTuple):
    kind: Any


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST


NUMBER = Kind("a number", _is_number)
COUNT = Kind("a whole number", lambda value: type(value) is int and 0 <= value < 2**63)
NAME = Kind("a name", lambda value: isinstance(value, str))
FLAG = Kind("true or false", lambda value: isinstance(value, bool))


def flaw(value: Any, kind: Any, name: str) -> str:
    """What is wrong with a value called ``name``: empty if it is of its kind."""
    if isinstance(kind, Maybe):
        return "" if value is None else flaw(value, kind.kind, name)
    if isinstance(kind, Kind):
        return "" if kind.fits(value) else f"{name} is {repr(value)[:30]}, not {kind.name}"
    if isinstance(kind, list):
        if not isinstance(value, list):
            return f"{name} is {repr(value)[:30]}, not a list"
        parts = [(x, kind[0], f"{name}[{k}]") for k, x in enumerate(value)]
    else:
        if not isinstance(value, dict):
            return f"{name} is {repr(value)[:30]}, not a dictionary"
        wanted = dict.fromkeys(value, kind[str]) if str in kind else kind
        absent = [key for key in wanted if key not in value]
        if absent:
            return f"{name} has no {absent[0]}"
        parts = [(value[key], one, f"{name}.{key}") for key, one in wanted.items()]
    return next((found for part in parts if (found := flaw(*part))), "")
