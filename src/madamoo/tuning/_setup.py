"""What a user brings: a function that builds a training run, from Python or from a file."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import random
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

WANTED = "a function build(seed) that returns madamoo.tuning.Setup(model, losses, validate, steps)"


@dataclass(frozen=True)
class Setup:
    """One training run, ready to start: what ``build(seed)`` returns.

    Args:
        model: the module to train, or its parameters or parameter groups (rates are set by the search).
        losses: called once per step; returns the losses of that step, as for :meth:`madamoo.MultiObjective.backward`:
            a 1-D tensor, a sequence or a dict of scalar tensors. It draws its own batch.
        validate: returns the number to judge the model by, on data that it is not trained on. It is called without
            gradients; it switches the model to evaluation and back where that matters.
        steps: how many steps to train.
        higher_is_better: of the validation number: an accuracy rather than a loss.
        schedule: from the optimizer to a scheduler of the learning rate, which is stepped after each step.
        options: of :class:`madamoo.MultiObjective`, ``{"shared": trunk}`` for example.

    Example:
        >>> model = torch.nn.Linear(3, 2)
        >>> def losses():
        ...     y = model(torch.randn(8, 3))
        ...     return {"small": y[:, 0].square().mean(), "one": (y[:, 1] - 1).square().mean()}
        >>> Setup(model, losses, validate=lambda: float(sum(losses().values())), steps=100).steps
        100
    """

    model: nn.Module | Iterable[Any]
    losses: Callable[[], Any]
    validate: Callable[[], float]
    steps: int
    higher_is_better: bool = False
    schedule: Callable[[Optimizer], Any] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.model, nn.Module):
            object.__setattr__(self, "model", _parameters(self.model))
        for name in ("losses", "validate", "schedule"):
            value = getattr(self, name)
            if not callable(value) and not (name == "schedule" and value is None):
                hint = "; of an iterator, give its __next__" if hasattr(value, "__next__") else ""
                raise TypeError(f"Setup: {name} must be a function, got {type(value).__name__}{hint}")
        if isinstance(self.steps, bool) or not isinstance(self.steps, int) or self.steps < 1:
            raise ValueError(f"Setup: steps must be an integer, at least 1, got {self.steps!r}")

    @property
    def parameters(self) -> list[Any]:
        """Parameters, or groups of them."""
        return list(self.model.parameters() if isinstance(self.model, nn.Module) else self.model)

    @property
    def size(self) -> int:
        """How many numbers are trained."""
        tensors = [q for p in self.parameters for q in (p["params"] if isinstance(p, dict) else [p])]
        return sum(p.numel() for p in tensors)


def _parameters(given: Any) -> list[Any]:
    found = list(given) if isinstance(given, Iterable) and not isinstance(given, Tensor | str | Mapping) else []
    if not found or not all(isinstance(p, Tensor | dict) for p in found):
        raise TypeError(f"Setup: model must be a torch module, or a list of parameters, got {type(given).__name__}")
    return found


Build: TypeAlias = Callable[[int], Setup]


@dataclass(frozen=True)
class Source:
    """Where runs come from: a function, or a file that has one, with solvers and optimizers of the user's own."""

    given: Build | Path
    build: Build
    name: str
    solvers: Mapping[str, Any] = field(default_factory=dict)
    optimizers: Mapping[str, Any] = field(default_factory=dict)
    digest: str = ""  # of the file, to notice that it changed

    def __reduce__(self) -> tuple[Any, ...]:
        return open_source, (self.given,)  # what a file defines can not be sent to another process, its path can


def open_source(given: Build | str | Path) -> Source:
    """The source of a function ``build``, or of a file: executed, with its folder on the path as Python has it."""
    if callable(given):
        return Source(given, _checked_build(given, "build"), getattr(given, "__name__", type(given).__name__))
    path = Path(given).absolute()
    if path.suffix != ".py" or not path.is_file():
        found = "a folder" if path.is_dir() else "no Python file" if path.exists() else "not there"
        raise ValueError(f"{given} is {found}; give a Python file with {WANTED}")
    module = _load(path)
    if not hasattr(module, "build"):
        names = [n for n, v in vars(module).items() if callable(v) and getattr(v, "__module__", "") == module.__name__]
        raise ValueError(f"{given} has no build; it has {', '.join(names) or 'no functions'}. It needs {WANTED}")
    return Source(
        path,
        _checked_build(module.build, f"{given}: build"),
        path.name,
        _named(module, "SOLVERS", given),
        _named(module, "OPTIMIZERS", given),
        hashlib.sha256(path.read_bytes()).hexdigest(),
    )


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"madamoo_tuned_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look for it there
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ValueError(f"{path.name} cannot be loaded.\n{user_traceback(error)}") from None
    return module


def _named(module: ModuleType, name: str, file: Any) -> dict[str, Any]:
    """The file's own solvers or optimizers: a dictionary from names to functions."""
    found = getattr(module, name, {})
    if not isinstance(found, dict) or not all(isinstance(k, str) and callable(v) for k, v in found.items()):
        raise ValueError(f"{file}: {name} must be a dictionary from names to functions, got {found!r}")
    return found


def _checked_build(build: Any, name: str) -> Build:
    if not callable(build):
        raise ValueError(f"{name} is {type(build).__name__}; it must be {WANTED}")
    try:
        inspect.signature(build).bind(0)
    except TypeError:
        raise ValueError(f"{name}{inspect.signature(build)} must take one argument, the seed: {WANTED}") from None
    except ValueError:  # a signature is not known of some callables
        pass
    return build


def make(build: Build, seed: int) -> Setup:
    """What ``build`` makes for a seed; call it within :func:`seeded`."""
    found = build(seed)
    if not isinstance(found, Setup):
        shown = f"a {type(found).__name__}" if found is not None else "None"
        raise TypeError(f"build({seed}) returned {shown}; it must return madamoo.tuning.Setup(...)")
    return found


def as_number(value: Any) -> float:
    """The validation number; NaN and infinity are allowed, for they are a result."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number | Tensor | np.ndarray):
        raise TypeError(f"validate() must return a number, got {type(value).__name__}: {value!r}")
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"validate() must return one number, got shape {tuple(value.shape)}") from None  # type: ignore[union-attr]


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Within it, the generators of torch, numpy and Python begin at ``seed``; afterwards they are as they were."""
    before, numbers = random.getstate(), np.random.get_state()  # noqa: NPY002
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002
        try:
            yield
        finally:
            random.setstate(before)
            np.random.set_state(numbers)  # noqa: NPY002


def user_traceback(error: BaseException) -> str:
    """The traceback without the frames of this package and of what loads modules: what the user can read and mend."""
    ours = (str(Path(__file__).parent), "<frozen importlib")
    shown = traceback.TracebackException.from_exception(error)
    kept = [frame for frame in shown.stack if not frame.filename.startswith(ours)]
    shown.stack = traceback.StackSummary.from_list(kept)
    return "".join(shown.format(chain=False)).rstrip()
