"""A user's network that takes a preference: the contract, and what the ways to make one have in common."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, TypeAlias

import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.nn.utils import parametrize

from ._preferences import check_count

Vector: TypeAlias = Sequence[float] | Tensor | npt.NDArray[Any]


def check_preference(preference: Any, count: int) -> Tensor:
    """A point of the simplex, [count], as a float64 tensor on the CPU; a copy, with its graph if it has one."""
    try:
        given = preference
        if not isinstance(preference, Tensor):
            given = torch.tensor(preference, dtype=torch.float64, device="cpu")
        result = given.to("cpu", torch.float64, copy=True)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"preference must be {count} numbers, one for each objective, got {preference!r}") from error
    values = result.detach()
    found = f"got {values.tolist()}"
    if values.shape != (count,):
        raise ValueError(f"preference must be a vector of {count} numbers, one for each objective, {found}")
    if not bool(torch.isfinite(values).all()) or bool((values < 0).any()):
        raise ValueError(f"preference must be finite and not negative, {found}")
    total = float(values.sum())
    if abs(total - 1) > 1e-4:
        raise ValueError(f"preference must sum to 1, {found}, which sums to {total:g}: divide it by its sum")
    return result


class Active:
    """The preference that holds now, if one does: what the layers of a network read. A copy starts without one."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._value: Tensor | None = None
        self._casts: dict[Any, Tensor] = {}

    def get(self) -> Tensor:
        if self._value is None:
            raise ValueError(
                "no preference is given: call model(..., preference=a), or write `with model.at(a):` around what uses "
                "the model (around backward() too if the network recomputes activations there)"
            )
        return self._value

    def like(self, tensor: Tensor) -> Tensor:
        """The preference with the dtype and on the device of another tensor; moved there once."""
        value, key = self.get(), (tensor.device, tensor.dtype)
        if key not in self._casts:
            with torch.inference_mode(False), torch.enable_grad():  # whoever comes next may want gradients
                self._casts[key] = value.to(*key)
        return self._casts[key]

    @contextmanager
    def at(self, preference: Vector) -> Iterator[None]:
        before = self._value
        self._set(check_preference(preference, self.count))
        try:
            yield
        finally:
            self._set(before)

    def _set(self, value: Tensor | None) -> None:
        self._value = value
        self._casts = {}
        getattr(parametrize, "_cache", {}).clear()  # `with parametrize.cached():` knows nothing of preferences

    def __reduce__(self) -> tuple[Any, ...]:
        return Active, (self.count,)


class Conditioned(nn.Module):
    """A network whose output depends on a preference, made of the user's own; the base of the ways to make one.

    Call it as the user's network, with a preference: ``model(x, preference=[0.3, 0.7])``. Code that calls it without
    runs under ``with model.at([0.3, 0.7]):``. A preference has one entry for each objective, none negative, and sums to
    1; one that requires a gradient receives it. It is no part of the state, and copies of the model start without one.

    A subclass makes of ``self.module``, a copy of the user's network, one that reads ``self.active``, and undoes that
    for the active preference in :meth:`settle`.

    Args:
        model: the network; it stays as it is.
        n_objectives: C.

    Example:
        >>> from madamoo.pareto import PaMaL
        >>> model = PaMaL(nn.Linear(3, 1), n_objectives=2)
        >>> isinstance(model, Conditioned), model(torch.ones(5, 3), preference=[0.3, 0.7]).shape
        (True, torch.Size([5, 1]))
    """

    module: nn.Module

    def __init__(self, model: nn.Module, n_objectives: int = 2) -> None:
        super().__init__()
        if not isinstance(model, nn.Module):
            raise TypeError(f"model must be a torch.nn.Module, got {model!r}")
        for name, module in model.named_modules():
            if isinstance(module, Conditioned):
                raise ValueError(f"model takes a preference already: {name or 'it'} is a {type(module).__name__}")
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if is_lazy(tensor):
                raise ValueError(f"model is not complete: {name} has no shape yet; call it on a batch first")
        self.n_objectives = check_count("n_objectives", n_objectives, 2)
        self.active = Active(n_objectives)
        self.module = copy.deepcopy(model)
        self.training = model.training

    def forward(self, *args: Any, preference: Vector | None = None, **kwargs: Any) -> Any:
        """The network's output at a preference, or at that of the enclosing :meth:`at`."""
        if preference is None:
            self.active.get()
            return self.run(*args, **kwargs)
        with self.at(preference):
            return self.run(*args, **kwargs)

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """The network's output at the active preference."""
        return self.module(*args, **kwargs)

    @contextmanager
    def at(self, preference: Vector) -> Iterator[None]:
        """Within this context, calls of the model that give no preference have this one. Contexts nest."""
        with self.active.at(preference):
            yield

    def parameter_groups(self, lr: float) -> list[dict[str, Any]]:
        """What is trained, as groups for an optimizer, with the rates that the method wants at ``lr``."""
        return [{"params": [p for p in self.parameters() if p.requires_grad], "lr": lr}]

    def export(self, preference: Vector) -> nn.Module:
        """The network for one preference: a plain module of the user's class that shares nothing with this one."""
        with torch.inference_mode(False), torch.enable_grad():
            other = copy.deepcopy(self)
            with other.at(check_preference(preference, self.n_objectives).detach()):
                other.settle()
        return other.module

    def settle(self) -> None:
        """Make ``self.module`` a plain network for the active preference; nothing else is of use afterwards."""
        raise NotImplementedError

    def extra_repr(self) -> str:
        return f"n_objectives={self.n_objectives}"


def owners(model: nn.Module) -> dict[nn.Parameter, list[str]]:
    """The names under which the modules of a network hold each parameter: several if they share it."""
    result: dict[nn.Parameter, list[str]] = {}
    for path, module in model.named_modules():
        for name, parameter in module.named_parameters(path, recurse=False):
            result.setdefault(parameter, []).append(name)
    return result


class Slot(NamedTuple):
    """A place in a network that holds a parameter."""

    path: str
    layer: nn.Module
    name: str

    @property
    def names(self) -> list[str]:
        """The names of the modules it is in, from the outermost, and its own."""
        parts = [*self.path.split("."), self.name] if self.path else [self.name]
        return [".".join(parts[: k + 1]) for k in range(len(parts))]

    @property
    def parameter(self) -> nn.Parameter:
        return self.layer.get_parameter(self.name)


def open_slots(model: nn.Module, shared: str | Sequence[str]) -> list[Slot]:
    """The places of the trainable parameters, but for those that ``shared`` names, or a module above them."""
    patterns = [shared] if isinstance(shared, str) else list(shared)
    modules = list(model.named_modules(remove_duplicate=False))
    slots = [Slot(path, layer, name) for path, layer in modules for name, _ in layer.named_parameters(recurse=False)]
    names = {path for path, _ in modules if path}.union(*(slot.names for slot in slots))
    matches = {pattern: {name for name in names if fnmatchcase(name, pattern)} for pattern in patterns}
    for pattern, found in matches.items():
        if not found:
            raise ValueError(f"shared: {pattern!r} matches none of the model's modules and parameters, {sorted(names)}")
    named = set().union(*matches.values())
    closed = {(slot.layer, slot.name) for slot in slots if not named.isdisjoint(slot.names)}
    first = {(slot.layer, slot.name): slot for slot in reversed(slots)}  # a module may have several names
    return [
        slot
        for slot in slots
        if slot is first[slot.layer, slot.name]
        and (slot.layer, slot.name) not in closed
        and slot.parameter.requires_grad
    ]
