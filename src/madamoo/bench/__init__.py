"""The benchmark lab: real data, the paper's recipes, runs that survive anything, sweeps and tables.

It stands beside the library and uses its public names; nothing in the library imports it. Its layers, each of which
knows only those before it: ``runs`` (files and records), ``problems`` (benchmarks, models, data), ``training`` and
``analysis``; ``commands`` is the command line over all of them.
"""

from .problems import (
    Batches,
    Benchmark,
    Data,
    Drawn,
    Evaluation,
    FrontSpec,
    LazySplit,
    Metric,
    MissingData,
    Profile,
    Shuffled,
    Split,
    Supervised,
    available,
    available_models,
    build_model,
    get,
)
from .runs import Config
from .training import available_solvers, configure, is_static, train

__all__ = [
    "Batches",
    "Benchmark",
    "Config",
    "Data",
    "Drawn",
    "Evaluation",
    "FrontSpec",
    "LazySplit",
    "Metric",
    "MissingData",
    "Profile",
    "Shuffled",
    "Split",
    "Supervised",
    "available",
    "available_models",
    "available_solvers",
    "build_model",
    "configure",
    "get",
    "is_static",
    "train",
]
