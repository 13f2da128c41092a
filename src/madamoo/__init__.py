"""Metric-aware multi-objective training for PyTorch.

The data flows one way through five rooms, one module each: :mod:`madamoo.gradients`, :mod:`madamoo.solvers`,
:mod:`madamoo.direction`, :mod:`madamoo.metric`, :mod:`madamoo.optimizer`.
"""

from typing import TYPE_CHECKING, Any

from . import solvers
from .metric import PreferenceMetric
from .optimizer import MSOAP, MAdam, MultiObjective

__version__ = "0.1.0"
__all__ = ["MSOAP", "MAdam", "MultiObjective", "PreferenceMetric", "__version__", "solvers", "tune"]

if TYPE_CHECKING:
    from .tuning import tune as tune


def __getattr__(name: str) -> Any:
    """``tune`` is built on all of this: it is imported when it is asked for."""
    if name == "tune":
        from .tuning import tune

        return tune
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
