"""The nearest relatives of MAdam, for comparison: optimizers that keep moments per objective."""

from ._adatask import AdaTask
from ._mtadam import MTAdam
from ._per_objective import PerObjective

__all__ = ["AdaTask", "MTAdam", "PerObjective"]
