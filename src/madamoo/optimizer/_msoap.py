"""MSOAP: SOAP whose second moment is that of the preference which its momentum stands for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..metric import EigenBasis, PreferenceMetric
from ..solvers import Solver
from ._multi_objective import MultiObjective
from ._options import OptionArguments

if TYPE_CHECKING:
    from typing_extensions import Unpack


class MSOAP(MultiObjective):
    """Momentum, curvature and eigenbasis at one preference.

    The same as ``MultiObjective(torch.optim.SGD(params, lr), solver, PreferenceMetric(basis="eigen", momentum=0.95))``.
    While the weights are constant it takes the steps of `SOAP <https://arxiv.org/abs/2409.11321>`_. Where they move,
    SOAP's second moment is that of other preferences than its momentum's; here both are of the same.

    Args:
        params: parameters or parameter groups, as for any torch optimizer.
        lr: the learning rate; search it around Adam's.
        betas: decay of the momentum, and of the averages behind curvature and eigenbasis.
        weight_decay: decoupled, as AdamW's.
        solver: weighs the objectives; :class:`~madamoo.solvers.LS` if None; a name with options works too,
            ``"cagrad:c=0.2"``.
        estimator: of the curvature, as in :class:`~madamoo.PreferenceMetric`.
        options: those of :class:`MultiObjective`: objectives, shared, head_weights, max_norm, rows, gram.

    Example:
        >>> model = torch.nn.Linear(3, 2)
        >>> opt = MSOAP(model.parameters(), lr=1e-2, solver="rlw")
        >>> for _ in range(2):
        ...     y = model(torch.ones(4, 3))
        ...     opt.zero_grad()
        ...     opt.backward([y[:, 0].square().mean(), (y[:, 1] - 1).square().mean()])
        ...     opt.step()
        >>> opt.metric.momentum
        0.95
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 3e-3,
        betas: tuple[float, float] = (0.95, 0.95),
        weight_decay: float = 0.0,
        *,
        solver: Solver | str | None = None,
        estimator: Any = "auto",
        **options: Unpack[OptionArguments],
    ) -> None:
        first, second = betas
        metric = PreferenceMetric(estimator, basis=EigenBasis(beta=second), momentum=first)
        # Without a momentum of its own, SGD's weight decay is decoupled.
        super().__init__(torch.optim.SGD(params, lr=lr, weight_decay=weight_decay), solver, metric, **options)
