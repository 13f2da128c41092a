"""Several torch optimizers as one, each over parameters of its own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.optim import Optimizer

from ._wrapper import Wrapper, evaluates_again

REST = "optimizers"
"""Where a checkpoint has what the state dicts of the optimizers hold besides groups and states of parameters."""


class Chain(Wrapper):
    """Several torch optimizers over disjoint parameters as one: Muon on the matrices and AdamW on the rest, say.

    Its ``param_groups`` are those of the first, then those of the second, and so on, the dictionaries themselves: a
    scheduler on the chain and one on a single optimizer both work. Its state dict is that of one optimizer with all
    these groups.

    Args:
        optimizers: what steps, in this order.

    Example:
        >>> model = torch.nn.Linear(3, 2)
        >>> sgd, adam = torch.optim.SGD([model.weight], lr=0.1), torch.optim.AdamW([model.bias], lr=1e-3)
        >>> [group["lr"] for group in Chain([sgd, adam]).param_groups]
        [0.1, 0.001]
    """

    optimizers: tuple[Optimizer, ...]

    def __init__(self, optimizers: Sequence[Optimizer]) -> None:
        optimizers = tuple(optimizers)
        if not optimizers:
            raise ValueError("optimizers must be at least one torch optimizer, got none")
        for i, inner in enumerate(optimizers):
            if not isinstance(inner, Optimizer) or isinstance(inner, Wrapper):
                raise TypeError(f"optimizers must be plain torch optimizers, number {i} is a {type(inner).__name__}")
            if evaluates_again(inner):
                raise ValueError(
                    f"{type(inner).__name__}, number {i} of the optimizers, evaluates its closure several times per "
                    "step, which would move only its own parameters in between: it has to be the only optimizer"
                )
        super().__init__(optimizers=optimizers)
        self._check_disjoint()

    def _check_disjoint(self) -> None:
        owner: dict[Any, int] = {}
        for i, inner in enumerate(self.optimizers):
            for group in inner.param_groups:
                for p in group["params"]:
                    if owner.setdefault(p, i) != i:
                        first = type(self.optimizers[owner[p]]).__name__
                        raise ValueError(
                            f"a parameter of shape {tuple(p.shape)} is in two of the optimizers, {first} (number "
                            f"{owner[p]}) and {type(inner).__name__} (number {i}): each parameter must be in one"
                        )

    @property
    def param_groups(self) -> list[dict[str, Any]]:  # type: ignore[override]
        return [group for inner in self.optimizers for group in inner.param_groups]

    @property
    def state(self) -> Any:  # type: ignore[override]
        """The states of all parameters, in a dictionary made for this call."""
        return defaultdict(dict, {p: state for inner in self.optimizers for p, state in inner.state.items()})

    @property
    def defaults(self) -> dict[str, Any]:  # type: ignore[override]
        """What every optimizer has a default for: schedulers ask here which settings all groups have."""
        first, *others = (inner.defaults for inner in self.optimizers)
        return {name: value for name, value in first.items() if all(name in other for other in others)}

    def _step(self, closure: Callable[[], Any] | None = None) -> Any:
        self._check_disjoint()  # groups may have been added to one of them since
        result = None
        if closure is not None:
            with torch.enable_grad():
                result = closure()
        for inner in self.optimizers:
            inner.step()
        return result

    def zero_grad(self, set_to_none: bool = True) -> None:
        for inner in self.optimizers:
            inner.zero_grad(set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        names = ", ".join(type(inner).__name__ for inner in self.optimizers)
        raise ValueError(f"add the group to one of the optimizers ({names}): chain.optimizers[0].add_param_group(...)")

    def _save(self) -> dict[str, Any]:
        states: dict[Any, Any] = {}
        groups: list[dict[str, Any]] = []
        rest = []
        for inner in self.optimizers:
            saved = inner.state_dict()
            count = sum(len(group["params"]) for group in groups)
            number = {key: count + i for i, key in enumerate(_keys(saved["param_groups"]))}
            groups += [{**group, "params": [number[key] for key in group["params"]]} for group in saved["param_groups"]]
            states |= {number[key]: state for key, state in saved["state"].items() if key in number}
            others = {key: state for key, state in saved["state"].items() if key not in number}
            more = {key: value for key, value in saved.items() if key not in ("state", "param_groups")}
            rest.append({**more, **({"state": others} if others else {})})
        return {"state": states, "param_groups": groups, **({REST: rest} if any(rest) else {})}

    def _load(self, state_dict: dict[str, Any]) -> None:
        groups = list(state_dict["param_groups"])
        here, saved = ([len(group["params"]) for group in each] for each in (self.param_groups, groups))
        rest = state_dict.get(REST) or [{} for _ in self.optimizers]
        if here != saved or len(rest) != len(self.optimizers):
            raise ValueError(f"the checkpoint's groups hold {saved} parameters, those of the optimizers {here}")
        begin = 0
        for inner, more in zip(self.optimizers, rest, strict=True):
            mine = groups[begin : begin + len(inner.param_groups)]
            states = {key: state_dict["state"][key] for key in _keys(mine) if key in state_dict["state"]}
            inner.load_state_dict({**more, "state": {**states, **more.get("state", {})}, "param_groups": mine})
            begin += len(mine)

    def __getstate__(self) -> dict[str, Any]:
        return {"optimizers": self.optimizers}

    def __repr__(self) -> str:
        return f"Chain({', '.join(map(repr, self.optimizers))})"


def _keys(groups: Sequence[dict[str, Any]]) -> list[Any]:
    """What a state dict calls the parameters, in order."""
    return [key for group in groups for key in group["params"]]
