"""Room two: losses and Gram matrix in, weights lambda out. One solver a file."""

from __future__ import annotations

import inspect
from typing import Any

from ._alignedmtl import AlignedMTL
from ._base import Solver
from ._cagrad import CAGrad
from ._cosmos import COSMOS
from ._dbmtl import DBMTL
from ._dualproj import DualProj
from ._dwa import DWA
from ._epo import EPO
from ._famo import FAMO
from ._ferero import FERERO
from ._geometric_mean import GeometricMean
from ._graddrop import GradDrop
from ._gradnorm import GradNorm
from ._gradvac import GradVac
from ._imtl import IMTL
from ._imtlg import IMTLG
from ._imtll import IMTLL
from ._ls import LS
from ._mgda import MGDA
from ._nashmtl import NashMTL
from ._paretomtl import ParetoMTL
from ._pcgrad import PCGrad
from ._preference import Preference
from ._rlw import RLW
from ._rotograd import RotoGrad
from ._smooth_tchebycheff import SmoothTchebycheff
from ._tchebycheff import Tchebycheff
from ._upgrad import UPGrad
from ._uw import UW

_ALL: tuple[type[Solver], ...] = (
    LS,
    RLW,
    UW,
    DWA,
    IMTLL,
    IMTLG,
    IMTL,
    MGDA,
    PCGrad,
    CAGrad,
    GradNorm,
    GradVac,
    GradDrop,
    NashMTL,
    AlignedMTL,
    UPGrad,
    DualProj,
    FAMO,
    DBMTL,
    GeometricMean,
    Tchebycheff,
    SmoothTchebycheff,
    Preference,
    ParetoMTL,
    EPO,
    FERERO,
    COSMOS,
    RotoGrad,
)
_SOLVERS = {solver.__name__.lower(): solver for solver in _ALL}

__all__ = [*(solver.__name__ for solver in _ALL), "Solver", "available", "get"]


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
