"""Benchmarks and models by name: those of this package, and any Python file of the user's own.

A regime is a folder beside this file (``supervised``). Each of its public modules has a ``BENCHMARKS``, a mapping from
names to what makes a benchmark: that is all there is to adding one.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from ..runs import check_options, naming, parse, write
from . import models
from ._benchmark import Benchmark
from ._data import to_option


@cache
def _benchmarks() -> dict[str, Callable[..., Benchmark]]:
    found: dict[str, Callable[..., Benchmark]] = {}
    for regime in pkgutil.iter_modules(sys.modules[__package__].__path__, f"{__package__}."):
        if not regime.ispkg or regime.name == models.__name__:
            continue
        for module in pkgutil.iter_modules(importlib.import_module(regime.name).__path__, f"{regime.name}."):
            if not module.name.rpartition(".")[2].startswith("_"):  # else what several benchmarks share
                found.update(importlib.import_module(module.name).BENCHMARKS)
    return dict(sorted(found.items()))


def available() -> list[str]:
    """The names of the benchmarks."""
    return list(_benchmarks())


def members(names: str) -> list[str]:
    """The benchmarks that were named: one, several separated by commas, or a group such as "pinn", which is all of it.

    Example:
        >>> members("digits,mulan/wq"), len(members("mulan"))
        (['digits', 'mulan/wq'], 14)
    """
    found: list[str] = []
    for name in names.split(","):
        name = name.strip()
        found += [other for other in available() if other.startswith(f"{name.lower()}/")] or [name]
    return list(dict.fromkeys(found))


def get(name: str) -> Benchmark:
    """The benchmark called ``name``; or, if it ends in ``.py``, the only one of that file's ``BENCHMARKS``.

    Such a file is executed: only a name that the user typed may come here. One that was read from a record goes to
    :func:`registered`.
    """
    if name.endswith(".py"):
        found = getattr(_own(name), "BENCHMARKS", {})
        if len(found) != 1:
            raise ValueError(f"{name} must have BENCHMARKS = {{name: class}} with one benchmark, got {len(found)}")
        return next(iter(found.values()))()
    return registered(name)


def registered(name: str) -> Benchmark:
    """The benchmark of this package called ``name``; nothing of the user's is executed, whatever the name.

    Some have options, as ``ph2:deep=2``.
    """
    kind, options = parse(name)
    if kind not in _benchmarks():
        raise ValueError(f"no benchmark is called {name!r}; there are {', '.join(available())}")
    make = _benchmarks()[kind]
    check_options(kind, make, options)
    return make(**options)


def with_folders(name: str, folders: Mapping[str, Path | None]) -> str:
    """The name of a benchmark of a user's own data, with the folders that are given as its options."""
    given = {key: to_option(folder) for key, folder in folders.items() if folder is not None}
    kind, options = parse(name) if given else (name, {})
    if given and kind not in _benchmarks():
        raise ValueError(f"no benchmark is called {name!r}, for which folders could be given")
    return write(kind, {**options, **given}) if given else name


def available_models() -> list[str]:
    """The names that :func:`build_model` knows, in order."""
    return [module.name for module in pkgutil.iter_modules(models.__path__)]


def build_model(spec: str, inputs: tuple[int, ...], outputs: tuple[int, ...]) -> nn.Module:
    """The model of a spec such as ``mlp:width=256``; a name that ends in ``.py`` is a file with a ``build``."""
    with naming("model", spec):
        build, options = check_model(spec)
        try:
            return build(inputs, outputs, **options)
        except (TypeError, RuntimeError) as error:  # a width below zero, say
            raise ValueError(f"it cannot be built for inputs of {list(inputs)}: {error}") from error


def check_model(spec: str) -> tuple[Callable[..., nn.Module], dict[str, Any]]:
    """What builds the model of a spec, and its options; raises ValueError if there is no such model or option."""
    name, options = parse(spec)
    if name.endswith(".py"):
        module: Any = _own(spec.partition(":")[0])
        if not hasattr(module, "build"):
            raise ValueError(f"{name} must have a function build(inputs, outputs, **options)")
    elif name in available_models():
        module = importlib.import_module(f"{models.__name__}.{name}")
        check_options(name, module.build, options, but=("inputs", "outputs"))
    else:
        raise ValueError(f"no model is called {name!r}; there are {', '.join(available_models())}")
    return module.build, options


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
