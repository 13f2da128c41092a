"""What the optimizer asks of a metric: the verbs of room four."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from ..direction import Direction
from ..gradients import Layout


class Measurement(Protocol):
    """What a metric does in one step; nothing is kept before the step is taken."""

    def needed(self, present: Sequence[int]) -> tuple[int, ...]:
        """The objectives whose own gradient the metric needs in this step."""

    @property
    def every_row(self) -> bool:
        """Whether these are all of them, whichever are present."""

    @property
    def heads_together(self) -> bool:
        """Whether heads of different objectives may share a block."""


@runtime_checkable
class Metric(Protocol):
    """Divides the direction of a step. :class:`~madamoo.PreferenceMetric` is one; any object with these verbs is.

    In ``backward`` the optimizer calls ``measure``, ``settle`` and, block by block, ``precondition``: they read the
    state and leave it alone. In ``step`` it calls ``commit``, which changes the state and must not fail.
    """

    beta: float | None
    """Decay of the averages; None is the parameter group's ``betas[1]``."""

    def needs_rows(self, *, static: bool) -> bool:
        """Whether it ever needs gradients of single objectives, and whether it fits such a solver: raises if not."""

    def compute_dtype(self, param: Tensor) -> torch.dtype:
        """The precision in which the direction of a parameter is computed."""

    def largest_gradient(self, param: Tensor) -> float:
        """The largest entry of a gradient that it can handle; a step with a larger one is skipped."""

    def measure(self, count: int, *, static: bool, rows: bool) -> Any:
        """Decide what this step measures, of so many objectives under a solver whose weights are constant or not.

        ``rows`` says that the gradient of each objective is computed by itself anyway.
        """

    def settle(
        self,
        measurement: Any,
        weights: Sequence[float],
        present: Sequence[int],
        directions: Sequence[Direction],
        layout: Layout,
    ) -> Any:
        """The measurement, once weights, directions and layout are known; what can be refused is refused here."""

    def precondition(self, x: Direction, beta: float, measurement: Any) -> Tensor:
        """d / M for one block, with this step's gradients in the averages."""

    def commit(
        self,
        measurement: Any,
        directions: Iterable[tuple[Direction, float]],
        weights: Sequence[float],
        present: Sequence[int],
    ) -> None:
        """The step is taken: keep what it measured. Each direction comes with its beta."""

    def options(self) -> dict[str, Any]:
        """The options that its averages depend on; a checkpoint made with others is refused."""

    def state_dict(self, params: Sequence[Tensor]) -> dict[str, Any]:
        """The state, with what belongs to a parameter numbered as in ``params``."""

    def check_state_dict(
        self, state: dict[str, Any], params: Sequence[Tensor], count: int | None, *, static: bool
    ) -> None:
        """Raise if ``state`` lacks a piece, or does not fit."""

    def load_state_dict(
        self, state: dict[str, Any], params: Sequence[Tensor], layout: Layout, count: int | None, *, static: bool
    ) -> None:
        """Take on such a state; after an error, nothing of it."""
