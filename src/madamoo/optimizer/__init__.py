"""Room five: the user's own torch optimizer, with the other four rooms in front of it."""

from ..relatives import AdaTask, MTAdam
from ._guards import evaluates_again
from ._madam import MAdam
from ._multi_objective import MultiObjective
from ._step import Step, second_moment_decay, trainable

__all__ = [
    "AdaTask",
    "MAdam",
    "MTAdam",
    "MultiObjective",
    "Step",
    "evaluates_again",
    "second_moment_decay",
    "trainable",
]
