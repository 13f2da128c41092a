"""Names with options in one word, as typed on a command line: ``cagrad:c=0.2``, ``madam:rampup=100:ramp=paper``."""

from __future__ import annotations

import ast
import inspect
import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any


class BadValue(ValueError):
    """A value that a user gave and that cannot be: the argument, the value, and what would be right."""

    def __init__(self, argument: str, value: object, reason: str) -> None:
        super().__init__(f"{argument} {value!r}: {reason}")
        self.argument, self.value, self.reason = argument, value, reason

    def __reduce__(self) -> tuple[Any, ...]:
        return BadValue, (self.argument, self.value, self.reason)


@contextmanager
def naming(argument: str, value: object) -> Iterator[None]:
    """Within this context, a ValueError is one of this argument."""
    try:
        yield
    except BadValue:
        raise
    except ValueError as error:
        raise BadValue(argument, value, str(error)) from None


def check_options(name: str, build: Callable[..., Any], options: Mapping[str, Any], but: tuple[str, ...] = ()) -> None:
    """Raise ValueError if an option is none of ``build``'s (or of those in ``but``), or is text instead of a number."""
    parameters = inspect.signature(build).parameters
    known = [key for key in parameters if key not in but]
    for key, value in options.items():
        if key not in known:
            raise ValueError(f"{name} has no option {key!r}; it has {', '.join(known) or 'none'}")
        wanted = parameters[key].annotation
        text = wanted if isinstance(wanted, str) else getattr(wanted, "__name__", str(wanted))
        kinds = set(re.findall(r"\w+", text))
        if isinstance(value, str) and kinds and kinds <= {"int", "float", "bool", "None"}:
            raise ValueError(f"{key} must be {'True or False' if kinds == {'bool'} else 'a number'}, got {value!r}")


def parse(spec: str) -> tuple[str, dict[str, Any]]:
    """The name in lower case, and its options.

    Example:
        >>> parse("mlp:width=64:activation=tanh")
        ('mlp', {'width': 64, 'activation': 'tanh'})
    """
    name, *parts = spec.split(":")
    options = {}
    for part in parts:
        key, equals, text = part.partition("=")
        if not equals or not key.isidentifier() or key in options:
            raise ValueError(f"{spec!r} is not of the form name:option=value:option=value")
        options[key] = _value(text)
    return name.strip().lower(), options


def alternatives(spec: str) -> list[str]:
    """The specs for which one with several values of an option stands.

    Example:
        >>> alternatives("adam:beta2=0.9|0.99")
        ['adam:beta2=0.9', 'adam:beta2=0.99']
    """
    parts = [[part] if "=" not in part else _values(part) for part in spec.split(":")]
    return [":".join(chosen) for chosen in itertools.product(*parts)]


def _values(part: str) -> list[str]:
    key, _, text = part.partition("=")
    return [f"{key}={value}" for value in text.split("|")]


def write(name: str, options: Mapping[str, Any]) -> str:
    """The one way in which a name and its options are written: options in the order of the alphabet."""
    return ":".join([name, *(f"{key}={options[key]}" for key in sorted(options))])


def canonical(spec: str) -> str:
    """The same spec as :func:`write` writes it, so that equal things have equal names."""
    return write(*parse(spec))


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):  # what is no literal is text
        return {"true": True, "false": False, "none": None}.get(text.lower(), text)
