"""Room five: the user's own torch optimizer, with the other four rooms in front of it."""

from ._madam import MAdam
from ._multi_objective import MultiObjective

__all__ = ["MAdam", "MultiObjective"]
