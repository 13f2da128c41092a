"""Options of solvers: those with one value per objective, and how options are written in one line of text."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from torch import Tensor

PerObjectiveNumbers: TypeAlias = Mapping[str, float] | Sequence[float] | Tensor
"""One number per objective, by name or in the order of the objectives."""


class PerObjectiveCheck(Protocol):
    """Turns the values of an option into a tensor [C], or raises; ``count`` is None while C is not known."""

    def __call__(self, name: str, values: Any, count: int | None = None, /) -> Tensor: ...


class PerObjective:
    """An option with one value per objective: in their order, or by name once the objectives are known.

    Example:
        >>> from madamoo.checks import check_vector
        >>> option = PerObjective("LS", "weights", {"reg": 0.1, "cls": 1.0}, check_vector)
        >>> option.resolve(2, ("cls", "reg"))
        tensor([1.0000, 0.1000], dtype=torch.float64)
    """

    def __init__(
        self,
        owner: str,
        name: str,
        given: Mapping[str, Any] | Sequence[Any] | Tensor | None,
        check: PerObjectiveCheck,
    ) -> None:
        self.owner, self.name, self.check = owner, name, check
        self.by_name = dict(given) if isinstance(given, Mapping) else None
        self.in_order = None if given is None or self.by_name is not None else plain(given)
        if given is not None:
            check(name, self.in_order if self.by_name is None else list(self.by_name.values()))

    def resolve(self, count: int, names: tuple[str, ...] | None) -> Tensor | None:
        """One value per objective, in their order; None if the option was not given."""
        if self.by_name is None:
            return None if self.in_order is None else self.check(self.name, self.in_order, count)
        if names is None:
            raise ValueError(
                f"{self.owner}: {self.name} is given by name ({_listed(self.by_name)}), but the losses have no names; "
                f"give the losses as a dict, or {self.name} as a sequence"
            )
        self.check_names(names, ordered=True)
        return self.check(self.name, [self.by_name[name] for name in names], count)

    def check_names(self, names: Sequence[str], ordered: bool) -> None:
        """Raise unless the option fits objectives of these names."""
        if self.in_order is not None and not ordered:
            example = ", ".join(f"{name!r}: ..." for name in names)
            raise ValueError(
                f"{self.owner}: {self.name} is given by position, but the losses come by name, in no fixed order; "
                f"give {self.name}={{{example}}}, or fix the order with objectives={list(names)}"
            )
        if self.by_name is not None and set(self.by_name) != set(names):
            missing = [name for name in names if name not in self.by_name]
            unknown = [name for name in self.by_name if name not in names]
            raise ValueError(
                f"{self.owner}: {self.name} must name each objective: missing {_listed(missing)}, unknown "
                f"{_listed(unknown)}; the objectives are {_listed(names)}"
            )

    def __deepcopy__(self, memo: dict[int, Any]) -> PerObjective:
        return self  # it never changes


def plain(value: Any) -> Any:
    """The value in plain Python types: numbers, strings, lists, dicts; anything else by its ``repr``."""
    if isinstance(value, Tensor):
        return value.tolist()
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if hasattr(value, "tolist"):  # numpy's arrays and numbers
        return value.tolist()
    if isinstance(value, Sequence):
        return [plain(item) for item in value]
    return repr(value)


def parse(text: str) -> tuple[str, dict[str, Any]]:
    """A name in lower case and its options, from one line of text: ``name:option=value,option=value``.

    Options are separated by commas or colons. A value is a Python literal, ``true``, ``false``, ``none`` in any case,
    or else a string.

    Example:
        >>> parse("CAGrad:c=0.2")
        ('cagrad', {'c': 0.2})
        >>> parse("ls:weights={'cls': 1.0, 'reg': 0.1}")
        ('ls', {'weights': {'cls': 1.0, 'reg': 0.1}})
        >>> parse("mlp:hidden=64,64:activation=tanh,bias=true")
        ('mlp', {'hidden': (64, 64), 'activation': 'tanh', 'bias': True})
    """
    name, *parts = _split(text)
    options: dict[str, Any] = {}
    for part in parts:
        key, equals, value = part.partition("=")
        key = key.strip()
        if not equals or not key.isidentifier():
            raise ValueError(f"{text!r} is not of the form name:option=value,option=value: {part!r} is no option=value")
        if key in options:
            raise ValueError(f"{text!r} gives the option {key!r} twice")
        options[key] = _value(value.strip())
    return name.strip().lower(), options


_NEXT_OPTION = re.compile(r",\s*[^\W\d]\w*\s*=")


def _split(text: str) -> list[str]:
    """The name and its options: cut at colons, and at commas before ``option=``, outside brackets and quotes."""
    parts: list[str] = []
    start, depth, quote = 0, 0, ""
    for i, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter in "([{":
            depth += 1
        elif letter in ")]}":
            depth -= 1
        elif depth == 0 and (letter == ":" or (parts and _NEXT_OPTION.match(text, i))):
            parts.append(text[start:i])
            start = i + 1
    return [*parts, text[start:]]


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return {"true": True, "false": False, "none": None}.get(text.lower(), text)


def _listed(names: Any) -> str:
    return ", ".join(map(repr, names)) or "none"
