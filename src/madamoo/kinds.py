"""Of which kind a value is that comes from a file, which may be anyone's: checked before anything is made of it.

A kind is one of :data:`NUMBER`, :data:`COUNT`, :data:`NAME`, :data:`TEXT` and :data:`FLAG`, or made of kinds:

- ``[kind]``: a list; ``(kind, kind)``: a list of exactly that many;
- ``{"a": kind, ...}``: a dictionary that has these keys at least; ``{NAME: kind}``: one with any keys of that kind;
- ``Maybe(kind)``: that or None; ``Optional(kind)``: the same, and in a dictionary the key may be absent.

Example:
    >>> flaw({"losses": [1.0, "x"]}, {"losses": [NUMBER]}, "the row")
    "the row.losses[1] is 'x', not a number"
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

LARGEST = 1e100  # of a number: sums and squares of such numbers are still finite
LONGEST = 4096  # characters of a name
MOST = 100_000  # entries of a list or a dictionary


class Kind(NamedTuple):
    """What is wanted, in words, and whether a value is that."""

    name: str
    fits: Callable[[Any], bool]


class Maybe(NamedTuple):
    kind: Any


class Optional(NamedTuple):
    kind: Any


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= LONGEST and value.isprintable()


NUMBER = Kind("a number", _is_number)
COUNT = Kind("a count", lambda value: type(value) is int and 0 <= value < 2**53)
NAME = Kind("a name", _is_name)  # can be printed on a terminal: no escape sequence, no half of a character
TEXT = Kind("text", lambda value: isinstance(value, str))
FLAG = Kind("true or false", lambda value: isinstance(value, bool))


def flaw(value: Any, kind: Any, name: str) -> str:
    """What is wrong with a value called ``name``: empty if it is of its kind."""
    if isinstance(kind, Maybe | Optional):
        return "" if value is None else flaw(value, kind.kind, name)
    if isinstance(kind, Kind):
        return "" if kind.fits(value) else f"{name} is {shown(value)}, not {kind.name}"
    return next(filter(None, _flaws(value, kind, name)), "")


def _flaws(value: Any, kind: Any, name: str) -> Iterator[str]:
    """What is wrong with the parts of a list or a dictionary."""
    wanted: Any = dict if isinstance(kind, dict) else list
    if not isinstance(value, wanted):
        yield f"{name} is {shown(value)}, not a {'dictionary' if wanted is dict else 'list'}"
    elif len(value) > MOST:
        yield f"{name} has {len(value)} entries, more than {MOST}"
    elif isinstance(kind, list):
        for k, inner in enumerate(value):
            yield flaw(inner, kind[0], f"{name}[{k}]")
    elif isinstance(kind, tuple):
        if len(value) != len(kind):
            yield f"{name} has {len(value)} entries, not {len(kind)}"
        for k, (inner, one) in enumerate(zip(value, kind, strict=False)):
            yield flaw(inner, one, f"{name}[{k}]")
    elif any(isinstance(key, Kind) for key in kind):
        ((of_keys, one),) = kind.items()
        for key, inner in value.items():
            yield flaw(key, of_keys, f"a key of {name}")
            yield flaw(inner, one, f"{name}[{shown(key)}]")
    else:
        for key, one in kind.items():
            if key in value or isinstance(one, Optional):
                yield flaw(value.get(key), one, f"{name}.{key}")
            else:
                yield f"{name} has no {key}"


def shown(value: Any) -> str:
    """A value in few letters that can be printed."""
    return ascii(reprlib.repr(value))[1:-1]
