"""Metric-aware multi-objective training for PyTorch.

The data flows one way through five rooms, one module each: :mod:`madamoo.gradients`, :mod:`madamoo.solvers`,
:mod:`madamoo.direction`, :mod:`madamoo.metric`, :mod:`madamoo.optimizer`.
"""

from . import solvers
from .metric import PreferenceMetric
from .optimizer import MAdam, MultiObjective

__version__ = "0.1.0"
__all__ = ["MAdam", "MultiObjective", "PreferenceMetric", "__version__", "solvers"]
