"""MSOAP: SOAP whose second moment is that of the preference which its momentum stands for, under gradient balancing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from torch import Tensor

from .. import solvers
from ..checks import check_betas
from ..metric import EigenBasis, PreferenceMetric
from ..solvers import Solver
from ._inner import sgd
from ._multi_objective import MultiObjective
from ._options import OptionArguments

if TYPE_CHECKING:
    from typing_extensions import Unpack


class MSOAP(MultiObjective):
    """Momentum, curvature and eigenbasis at one preference.

    The same as ``MultiObjective(torch.optim.SGD(params, lr), solver, PreferenceMetric(basis="eigen", momentum=0.95))``
    under gradient balancing (CAGrad, MGDA). There the second moment of `SOAP <https://arxiv.org/abs/2409.11321>`_ is
    that of other preferences than its momentum's; here both are of the same. Under every other solver it takes SOAP's
    steps: see :meth:`estimator_for`.

    Args:
        params: parameters or parameter groups, as for any torch optimizer.
        lr: the learning rate; search it around Adam's.
        betas: decay of the momentum, and of the averages behind curvature and eigenbasis.
        weight_decay: decoupled, as AdamW's.
        solver: weighs the objectives; :class:`~madamoo.solvers.LS` if None; a name with options works too,
            ``"cagrad:c=0.2"``.
        estimator: of the curvature, as in :class:`~madamoo.PreferenceMetric`; ``"auto"`` is :meth:`estimator_for`.
        every: compute the gradients of single objectives every so many steps only, where an ``estimator`` that was
            asked for needs them and the solver does not.
        options: those of :class:`MultiObjective`: objectives, shared, head_weights, max_norm, rows, gram.

    Example:
        >>> import torch
        >>> model = torch.nn.Linear(3, 2)
        >>> opt = MSOAP(model.parameters(), lr=1e-2, solver="cagrad")
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
        every: int = 1,
        **options: Unpack[OptionArguments],
    ) -> None:
        first, second = check_betas(betas)
        solver = solvers.get(solver) if isinstance(solver, str) else solver
        estimator = self.estimator_for(solver) if estimator == "auto" else estimator
        metric = PreferenceMetric(estimator, basis=EigenBasis(beta=second), momentum=first, every=every)
        # Without a momentum of its own, SGD's weight decay is decoupled.
        super().__init__(sgd(params, lr=lr, weight_decay=weight_decay), solver, metric, **options)

    @staticmethod
    def estimator_for(solver: Solver | None) -> str:
        """PreferenceMetric's ``"auto"`` under gradient balancing and constant weights; else ``"marginal"``.

        ``"marginal"`` is SOAP. Weights that are drawn (RLW), that follow the losses (UW, FAMO) or the sizes of the
        gradients (LRA), or that are given with each step (Preference) gain little or nothing over it, some at a
        backward pass per objective. And a network that takes the preference as an input, as PaMaL's and PaLoRA's do,
        has gradients that depend on it: averages of them at several preferences are those of no one.
        """
        return "auto" if solver is None or solver.static or solver.family == "gradient" else "marginal"
