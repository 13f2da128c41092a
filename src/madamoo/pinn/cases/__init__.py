"""The 20 forward problems of PINNacle with their references, and corrected variants under names of their own.

``get("burgers1d").problem()`` is a :class:`~madamoo.pinn.Problem` with the published points; ``.network()`` is the
published network. Files are read from the folder that ``MADAMOO_DATA`` names; computed references are kept in the cache
(``MADAMOO_CACHE``).
"""

from . import burgers, chaotic, flow, heat, poisson, wave
from ._case import Case, View
from ._data import LAYOUT, Data, MissingFile, load, save
from ._maps import Map, maps

_CASES = {case.name: case for module in (burgers, poisson, heat, flow, wave, chaotic) for case in module.CASES}


def available() -> list[str]:
    """The names of all cases."""
    return list(_CASES)


def get(name: str) -> Case:
    """A case by name.

    >>> get("wave1d").label
    'Wave 1d-C'
    """
    if name not in _CASES:
        raise ValueError(f"name must be one of {', '.join(_CASES)}, got {name!r}")
    return _CASES[name]


__all__ = ["LAYOUT", "Case", "Data", "Map", "MissingFile", "View", "available", "get", "load", "maps", "save"]
