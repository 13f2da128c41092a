"""Benchmarks and models by name: those of this package, and any Python file of the user's own."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from . import benchmarks, models
from ._benchmark import Benchmark
from ._spec import parse


@cache
def _benchmarks() -> dict[str, Callable[[], Benchmark]]:
    found: dict[str, Callable[[], Benchmark]] = {}
    for module in pkgutil.iter_modules(benchmarks.__path__):
        if module.name.startswith("_"):  # what several benchmarks share
            continue
        found.update(importlib.import_module(f"{benchmarks.__name__}.{module.name}").BENCHMARKS)
    return dict(sorted(found.items()))


def available() -> list[str]:
    """The names of the benchmarks."""
    return list(_benchmarks())


def get(name: str) -> Benchmark:
    """The benchmark called ``name``; or, if it ends in ``.py``, the only one of that file's ``BENCHMARKS``."""
    if name.endswith(".py"):
        found = getattr(_own(name), "BENCHMARKS", {})
        if len(found) != 1:
            raise ValueError(f"{name} must have BENCHMARKS = {{name: class}} with one benchmark, got {len(found)}")
        return next(iter(found.values()))()
    try:
        return _benchmarks()[name.lower()]()
    except KeyError:
        raise ValueError(f"no benchmark is called {name!r}; there are {', '.join(available())}") from None


def available_models() -> list[str]:
    return [module.name for module in pkgutil.iter_modules(models.__path__)]


def build_model(spec: str, inputs: tuple[int, ...], outputs: tuple[int, ...]) -> nn.Module:
    """The model of a spec such as ``mlp:width=256``; a name that ends in ``.py`` is a file with a ``build``."""
    name, options = parse(spec)
    if name.endswith(".py"):
        module: Any = _own(spec.partition(":")[0])
        if not hasattr(module, "build"):
            raise ValueError(f"{name} must have a function build(inputs, outputs, **options)")
    elif name in available_models():
        module = importlib.import_module(f"{models.__name__}.{name}")
    else:
        raise ValueError(f"no model is called {name!r}; there are {', '.join(available_models())}")
    try:
        return module.build(inputs, outputs, **options)
    except TypeError as error:
        raise ValueError(f"cannot build the model {spec!r}: {error}") from error


def _own(file: str) -> ModuleType:
    """A file of the user's, as a module."""
    path = Path(file)
    if not path.is_file():
        raise ValueError(f"there is no file {file}")
    found = importlib.util.spec_from_file_location(f"madamoo_own_{path.stem}", path)
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[found.name] = module  # dataclasses look for it there
    found.loader.exec_module(module)
    return module
