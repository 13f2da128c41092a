"""Which objectives are residuals of equations: an option of solvers for physics-informed networks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

ResidualsT: TypeAlias = str | int | Sequence[str] | Sequence[int] | None
PREFIX = "pde"
"""The names of residuals begin with it, unless the option says otherwise."""


class Residuals:
    """The residuals among the objectives: by name, by position, or None for what their names say.

    Example:
        >>> Residuals("LRA", None).mask(3, ("pde_u", "pde_v", "initial"))
        tensor([ True,  True, False])
        >>> Residuals("LRA", "ode").mask(2, ("initial", "ode"))
        tensor([False,  True])
    """

    def __init__(self, owner: str, given: ResidualsT) -> None:
        chosen: tuple[Any, ...] | None = None
        if given is not None:
            chosen = (given,) if isinstance(given, str | int) else tuple(given)
            kinds = {type(item) for item in chosen}
            if kinds not in ({str}, {int}) or len(set(chosen)) < len(chosen):
                raise ValueError(f"{owner}: reference must be different names, or different positions, got {given!r}")
        self.owner, self.chosen = owner, chosen

    def check_names(self, names: Sequence[str], ordered: bool) -> None:
        """Raise unless the option fits objectives of these names."""
        if self.chosen and isinstance(self.chosen[0], int) and not ordered:
            raise ValueError(
                f"{self.owner}: reference is given by position, but the losses come by name, in no fixed order; give "
                f"names among {', '.join(map(repr, names))}, or fix the order with objectives={list(names)}"
            )
        self.mask(len(names), tuple(names))

    def mask(self, count: int, names: tuple[str, ...] | None) -> Tensor:
        """[C], True where an objective is a residual."""
        if self.chosen is None:
            if names is None:
                found = [i == 0 for i in range(count)]
            elif not any(found := [name.startswith(PREFIX) for name in names]):
                raise ValueError(
                    f"{self.owner}: which objectives are residuals of equations? No name begins with {PREFIX!r}: give "
                    f"reference=, one or more of {', '.join(map(repr, names))}"
                )
            return torch.tensor(found)
        labels: Sequence[Any] = range(count) if isinstance(self.chosen[0], int) else names or ()
        unknown = [item for item in self.chosen if item not in labels]
        if unknown:
            known = ", ".join(map(repr, labels)) or "without names: give positions"
            raise ValueError(f"{self.owner}: reference names {unknown[0]!r}, but the objectives are {known}")
        return torch.tensor([label in self.chosen for label in labels])

    def __deepcopy__(self, memo: dict[int, Any]) -> Residuals:
        return self  # it never changes
