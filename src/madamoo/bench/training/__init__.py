"""Training: configurations, what is compared, the loop, one run, many runs, and the processes they run in."""

from ._configure import configure, problem_of, reductions
from ._contenders import OPTIMIZERS, available_solvers, is_madam, is_static
from ._device import choose_device
from ._diagnosis import attach
from ._fronts import FrontTraining
from ._loop import Training
from ._methods import METHODS, front_of, metrics_of, solver_of
from ._predict import predict
from ._run import train
from ._sweep import ENGINES, grid, is_busy, plan, sweep
from ._together import together
from ._workers import cores, gather, workers

__all__ = [
    "ENGINES",
    "METHODS",
    "OPTIMIZERS",
    "FrontTraining",
    "Training",
    "attach",
    "available_solvers",
    "choose_device",
    "configure",
    "cores",
    "front_of",
    "gather",
    "grid",
    "is_busy",
    "is_madam",
    "is_static",
    "metrics_of",
    "plan",
    "predict",
    "problem_of",
    "reductions",
    "solver_of",
    "sweep",
    "together",
    "train",
    "workers",
]
