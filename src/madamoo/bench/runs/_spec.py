"""Names with options in one word, as typed on a command line: ``cagrad:c=0.2``, ``madam:rampup=100:ramp=paper``."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any


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


def write(name: str, options: Mapping[str, Any]) -> str:
    """The one way in which a name and its options are written: options in the order of the alphabet."""
    return ":".join([name, *(f"{key}={options[key]}" for key in sorted(options))])


def canonical(spec: str) -> str:
    """The same spec as :func:`write` writes it, so that equal things have equal names."""
    return write(*parse(spec))


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return {"true": True, "false": False, "none": None}.get(text.lower(), text)
