"""The nearest relatives of MAdam, for comparison: optimizers with moments per objective, and Adam in an eigenbasis."""

from ._adatask import AdaTask
from ._mtadam import MTAdam
from ._per_objective import PerObjective
from ._soap import SOAP

__all__ = ["SOAP", "AdaTask", "MTAdam", "PerObjective"]
