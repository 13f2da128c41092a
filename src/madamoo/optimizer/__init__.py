"""Room five: the user's own torch optimizer, with the other four rooms in front of it."""

from ._adatask import AdaTask
from ._madam import MAdam
from ._mtadam import MTAdam
from ._multi_objective import MultiObjective

__all__ = ["AdaTask", "MAdam", "MTAdam", "MultiObjective"]
