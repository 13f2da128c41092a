"""The benchmark lab: real data, the paper's recipes, runs that survive anything, sweeps and tables.

It stands beside the library and uses its public names; nothing in the library imports it.
"""

from ._benchmark import Benchmark, Data, FrontSpec, Metric, Profile, Split
from ._config import Config, configure
from ._contenders import available_solvers, is_static
from ._data import MissingData
from ._registry import available, available_models, build_model, get

__all__ = [
    "Benchmark",
    "Config",
    "Data",
    "FrontSpec",
    "Metric",
    "MissingData",
    "Profile",
    "Split",
    "available",
    "available_models",
    "available_solvers",
    "build_model",
    "configure",
    "get",
    "is_static",
]
