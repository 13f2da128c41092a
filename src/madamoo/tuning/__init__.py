"""Which solver, optimizer and rate for a training run of your own? :func:`tune` finds out, and says how sure that is.

It stands beside the lab: the lab compares methods on benchmarks, this compares them on one problem, the user's. What
is in the extra ``tune`` is imported when a search begins.
"""

from ._contenders import OPTIMIZERS, SOLVERS, Contender
from ._cost import Cost
from ._result import Finalist, TrialError, Tuned
from ._setup import Setup
from ._statistics import Comparison
from ._tune import tune

__all__ = [
    "OPTIMIZERS",
    "SOLVERS",
    "Comparison",
    "Contender",
    "Cost",
    "Finalist",
    "Setup",
    "TrialError",
    "Tuned",
    "tune",
]
