"""What optimizers around other optimizers have in common."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Callable
from functools import cache
from typing import Any, cast

from torch.optim import Optimizer


class Wrapper(Optimizer):
    """A torch optimizer that leaves parameters to others: their groups and states are its own.

    It calls the hooks that are registered on it; those of all optimizers are called by the inner ones.
    """

    _step_supports_amp_scaling = False  # a GradScaler divides .grad before step(), as for any optimizer

    def __init__(self, **pieces: Any) -> None:
        super().__setstate__(pieces)  # the base class's __init__ would make parameter groups of its own

    @abstractmethod
    def _step(self, closure: Callable[[], Any] | None = None) -> Any: ...

    @abstractmethod
    def _save(self) -> dict[str, Any]: ...

    @abstractmethod
    def _load(self, state_dict: dict[str, Any]) -> None: ...

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        arguments: tuple[Any, Any] = (self, closure), {}
        for before in self._optimizer_step_pre_hooks.values():
            arguments = cast(Any, before(self, *arguments)) or arguments
        result = self._step(*arguments[0][1:], **arguments[1])
        for after in self._optimizer_step_post_hooks.values():
            after(self, *arguments)
        return result

    # torch wraps step() in its hooks, the global ones too, which the inner optimizer's step() calls already.
    step.hooked = True  # type: ignore[attr-defined]

    def state_dict(self) -> dict[str, Any]:
        for before in self._optimizer_state_dict_pre_hooks.values():
            before(self)
        state = self._save()
        for hook in self._optimizer_state_dict_post_hooks.values():
            state = hook(self, state) or state
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        state_dict = dict(state_dict)
        for before in self._optimizer_load_state_dict_pre_hooks.values():
            state_dict = before(self, state_dict) or state_dict
        self._load(state_dict)
        for after in self._optimizer_load_state_dict_post_hooks.values():
            after(self)


def evaluates_again(optimizer: Optimizer) -> bool:
    """Whether the optimizer cannot do without a closure, as L-BFGS, which calls it several times per step."""
    return _needs_closure(type(optimizer).step)


@cache
def _needs_closure(step: Callable[..., Any]) -> bool:
    closure = inspect.signature(step).parameters.get("closure")
    return closure is not None and closure.default is inspect.Parameter.empty
