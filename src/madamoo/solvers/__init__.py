"""Room two: losses and Gram matrix in, weights lambda out. One solver a file."""

from __future__ import annotations

import inspect
from typing import Any

from ._base import Solver
from ._cagrad import CAGrad
from ._dwa import DWA
from ._ls import LS
from ._mgda import MGDA
from ._preference import Preference
from ._rlw import RLW
from ._uw import UW

__all__ = [
    "DWA",
    "LS",
    "MGDA",
    "RLW",
    "UW",
    "CAGrad",
    "Preference",
    "Solver",
    "available",
    "get",
]

_SOLVERS: dict[str, type[Solver]] = {s.__name__.lower(): s for s in (LS, RLW, UW, DWA, MGDA, CAGrad, Preference)}


def available() -> list[str]:
    """The names that :func:`get` knows, in lower case and in order."""
    return sorted(_SOLVERS)


def get(name: str, **options: Any) -> Solver:
    """The solver called ``name`` (upper or lower case), built with ``options``.

    Example:
        >>> get("cagrad", c=0.4).c
        0.4
    """
    try:
        solver = _SOLVERS[name.lower()]
    except KeyError:
        raise ValueError(f"no solver is called {name!r}; there are {', '.join(available())}") from None
    known = [p for p in inspect.signature(solver).parameters]
    for option in options:
        if option not in known:
            raise TypeError(f"{solver.__name__} has no option {option!r}; it has {', '.join(known) or 'none'}")
    return solver(**options)
