"""Room five: the user's own torch optimizer, with the other four rooms in front of it."""

from ..relatives import AdaTask, MTAdam
from ._chain import Chain
from ._madam import MAdam
from ._msoap import MSOAP
from ._multi_objective import MultiObjective
from ._step import Step, second_moment_decay, trainable
from ._wrapper import evaluates_again

__all__ = [
    "MSOAP",
    "AdaTask",
    "Chain",
    "MAdam",
    "MTAdam",
    "MultiObjective",
    "Step",
    "evaluates_again",
    "second_moment_decay",
    "trainable",
]
