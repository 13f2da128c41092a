"""The solvers: from the losses and the Gram matrix of the gradients to the weights lambda. One file per solver.

Example:
    >>> from madamoo import solvers
    >>> solvers.get("cagrad:c=0.2")
    CAGrad(c=0.2)
"""

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
from ._lra import LRA
from ._ls import LS
from ._mgda import MGDA
from ._nashmtl import NashMTL
from ._ntk import NTK
from ._ntkpinnacle import NTKPinnacle
from ._options import parse
from ._paretomtl import ParetoMTL
from ._pcgrad import PCGrad
from ._preference import Preference
from ._rlw import RLW
from ._rotograd import RotoGrad
from ._smooth_tchebycheff import SmoothTchebycheff
from ._tchebycheff import Tchebycheff
from ._upgrad import UPGrad
from ._uw import UW

__all__ = [
    "COSMOS",
    "DBMTL",
    "DWA",
    "EPO",
    "FAMO",
    "FERERO",
    "IMTL",
    "IMTLG",
    "IMTLL",
    "LRA",
    "LS",
    "MGDA",
    "NTK",
    "RLW",
    "UW",
    "AlignedMTL",
    "CAGrad",
    "DualProj",
    "GeometricMean",
    "GradDrop",
    "GradNorm",
    "GradVac",
    "NTKPinnacle",
    "NashMTL",
    "PCGrad",
    "ParetoMTL",
    "Preference",
    "RotoGrad",
    "SmoothTchebycheff",
    "Solver",
    "Tchebycheff",
    "UPGrad",
    "available",
    "get",
    "parse",
]

_SOLVERS: dict[str, type[Solver]] = {
    name.lower(): globals()[name] for name in __all__ if name not in ("Solver", "available", "get", "parse")
}


def available() -> list[str]:
    """The names that :func:`get` knows, in lower case and in order."""
    return sorted(_SOLVERS)


def get(name: str, **options: Any) -> Solver:
    """The solver called ``name`` (upper or lower case) with its options: in the text, as keywords, or both.

    Example:
        >>> get("cagrad", c=0.4)
        CAGrad(c=0.4)
        >>> get("nashmtl:update_every=10,max_norm=none")
        NashMTL(max_norm=None, update_every=10)
    """
    key, written = parse(name)
    try:
        solver = _SOLVERS[key]
    except KeyError:
        raise ValueError(f"no solver is called {key!r}; there are {', '.join(available())}") from None
    known = inspect.signature(solver).parameters
    for option in (*written, *options):
        if option not in known:
            raise TypeError(f"{solver.__name__} has no option {option!r}; it has {', '.join(known) or 'none'}")
    if twice := written.keys() & options.keys():
        raise TypeError(f"{solver.__name__}: {', '.join(sorted(twice))} given twice, in {name!r} and as a keyword")
    try:
        return solver(**written, **options)
    except (TypeError, ValueError) as error:
        raise ValueError(f"cannot build the solver {name!r}: {error}") from None
