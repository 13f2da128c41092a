"""MAdam: the metric-aware multi-objective Adam, ready made."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

from torch import Tensor

from ..checks import check_betas
from ..metric import Metric, PreferenceMetric
from ..solvers import Solver
from ._inner import adamw
from ._multi_objective import MultiObjective
from ._options import OptionArguments

if TYPE_CHECKING:
    from typing_extensions import Unpack


class MAdam(MultiObjective):
    """Adam whose steps are taken in the metric of the current preference.

    The same as ``MultiObjective(torch.optim.AdamW(...), solver, metric)``, with torch's fused Adam where there is one.
    Weight decay is decoupled: it acts on the parameters, not on the direction.

    Args:
        params: parameters or parameter groups, as for any torch optimizer.
        lr, betas, eps, weight_decay: Adam's. ``betas[1]`` is the decay of the metric's averages too.
        solver: weighs the objectives; :class:`~madamoo.solvers.LS` if None; a name with options works too,
            ``"cagrad:c=0.2"``.
        metric: :class:`~madamoo.PreferenceMetric` with its defaults; None is no metric, the baseline.
        options: those of :class:`MultiObjective`: objectives, shared, head_weights, max_norm, rows, gram.

    Example:
        >>> import torch
        >>> model = torch.nn.Linear(3, 2)
        >>> opt = MAdam(model.parameters(), lr=1e-3)
        >>> for _ in range(2):
        ...     y = model(torch.ones(4, 3))
        ...     opt.zero_grad()
        ...     opt.backward([y[:, 0].square().mean(), (y[:, 1] - 1).square().mean()])
        ...     opt.step()
        >>> opt.weights
        tensor([0.5000, 0.5000])
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        solver: Solver | str | None = None,
        metric: Metric | Literal["default"] | None = "default",
        **options: Unpack[OptionArguments],
    ) -> None:
        super().__init__(
            adamw(params, lr=lr, betas=check_betas(betas), eps=eps, weight_decay=weight_decay),
            solver,
            PreferenceMetric() if isinstance(metric, str) and metric == "default" else metric,
            **options,
        )
