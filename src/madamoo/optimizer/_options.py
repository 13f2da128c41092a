"""The options of a MultiObjective optimizer, in one place: a new one is a field here, and its use."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from torch import Tensor, nn
from torch.optim import Optimizer
from typing_extensions import TypedDict

from ..checks import check_choice, check_positive
from ..gradients import check_names

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

HeadWeights: TypeAlias = Literal["auto", "lambda"]
RowsKept: TypeAlias = Literal["needed", "all"]
GramOf: TypeAlias = Literal["parameters", "features"]


class OptionArguments(TypedDict, total=False):
    """The options as keyword arguments."""

    objectives: Sequence[str] | None
    shared: nn.Module | Iterable[Tensor] | None
    head_weights: HeadWeights
    max_norm: float | None
    rows: RowsKept
    gram: GramOf
    process_group: ProcessGroup | None


@dataclass(frozen=True)
class Options:
    """The options, checked; see :class:`~madamoo.MultiObjective` for what they mean."""

    objectives: tuple[str, ...] | None = None
    shared: frozenset[Tensor] | None = None
    head_weights: HeadWeights = "auto"
    max_norm: float | None = None
    rows: RowsKept = "needed"
    gram: GramOf = "parameters"
    process_group: ProcessGroup | None = None

    @classmethod
    def read(cls, arguments: OptionArguments, optimizer: Optimizer) -> Options:
        given: dict[str, Any] = {**arguments}
        known = [field.name for field in fields(cls)]
        for name in given:
            if name not in known:
                raise TypeError(f"there is no option {name!r}; there are {', '.join(known)}")
        options = cls(**given)
        check_choice("head_weights", options.head_weights, ("auto", "lambda"))
        check_choice("rows", options.rows, ("needed", "all"))
        check_choice("gram", options.gram, ("parameters", "features"))
        if options.max_norm is not None:
            given["max_norm"] = check_positive("max_norm", options.max_norm)
        if options.objectives is not None:
            given["objectives"] = check_names(options.objectives)
            if not given["objectives"]:
                raise ValueError("objectives must hold at least one name, got none")
        if options.shared is not None:
            given["shared"] = _shared_parameters(given["shared"], optimizer)
        return cls(**given)

    def __deepcopy__(self, memo: dict[int, Any]) -> Options:
        group = self.process_group  # nothing to copy
        given: dict[str, Any] = {k: v if v is group else copy.deepcopy(v, memo) for k, v in vars(self).items()}
        return Options(**given)

    def saved(self) -> dict[str, Any]:
        """Those on which a step depends; a checkpoint made with others is refused."""
        return {name: getattr(self, name) for name in ("head_weights", "max_norm", "rows", "gram")}


def _shared_parameters(shared: nn.Module | Iterable[Tensor], optimizer: Optimizer) -> frozenset[Tensor]:
    if isinstance(shared, Tensor):
        raise TypeError("shared must be a module or an iterable of parameters, got one tensor: give [tensor]")
    result = frozenset(shared.parameters() if isinstance(shared, nn.Module) else shared)
    if not any(p in result for group in optimizer.param_groups for p in group["params"]):
        raise ValueError("shared holds no parameter of the optimizer")
    return result
