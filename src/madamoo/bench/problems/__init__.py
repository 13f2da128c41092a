"""The problems: what a benchmark is, the benchmarks themselves, their models, and how data are found and cached."""

from ._benchmark import Batches, Benchmark, DataSource, Drawn, Evaluation, FrontSpec, Metric, Profile
from ._data import (
    CACHE_VARIABLE,
    DATA_VARIABLE,
    MissingData,
    cache_root,
    cached,
    data_root,
    find,
    from_option,
    shuffled,
)
from ._registry import available, available_models, build_model, check_model, get, members, registered, with_folders
from ._supervised import Data, LazySplit, Shuffled, Split, Supervised, Tally

__all__ = [
    "CACHE_VARIABLE",
    "DATA_VARIABLE",
    "Batches",
    "Benchmark",
    "Data",
    "DataSource",
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
    "Tally",
    "available",
    "available_models",
    "build_model",
    "cache_root",
    "cached",
    "check_model",
    "data_root",
    "find",
    "from_option",
    "get",
    "members",
    "registered",
    "shuffled",
    "with_folders",
]
