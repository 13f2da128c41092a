"""MSOAP: SOAP whose second moment is that of the preference which its momentum stands for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from torch import Tensor

from .. import solvers
from ..checks import check_fraction
from ..metric import EigenBasis, PreferenceMetric
from ..solvers import COSMOS, Preference, Solver
from ._inner import sgd
from ._multi_objective import MultiObjective
from ._options import OptionArguments

if TYPE_CHECKING:
    from typing_extensions import Unpack

GIVEN = (Preference, COSMOS)  # solvers whose weights are made of a preference that comes with each step


class MSOAP(MultiObjective):
    """Momentum, curvature and eigenbasis at one preference.

    The same as ``MultiObjective(torch.optim.SGD(params, lr), solver, PreferenceMetric(basis="eigen", momentum=0.95))``.
    While the weights are constant it takes the steps of `SOAP <https://arxiv.org/abs/2409.11321>`_. Where they move,
    SOAP's second moment is that of other preferences than its momentum's; here both are of the same. Where they are
    given with each step, as to a network for every preference, SOAP's is the right one, and it takes SOAP's steps too.

    Args:
        params: parameters or parameter groups, as for any torch optimizer.
        lr: the learning rate; search it around Adam's.
        betas: decay of the momentum, and of the averages behind curvature and eigenbasis.
        weight_decay: decoupled, as AdamW's.
        solver: weighs the objectives; :class:`~madamoo.solvers.LS` if None; a name with options works too,
            ``"cagrad:c=0.2"``.
        estimator: of the curvature, as in :class:`~madamoo.PreferenceMetric`; ``"auto"`` is :meth:`estimator_for`.
        every: compute the gradients of single objectives every so many steps only, under solvers that do not need
            them in each: with 10, a step costs little more than SOAP's.
        options: those of :class:`MultiObjective`: objectives, shared, head_weights, max_norm, rows, gram.

    Example:
        >>> import torch
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
        every: int = 1,
        **options: Unpack[OptionArguments],
    ) -> None:
        first, second = (check_fraction("betas", beta) for beta in betas)
        solver = solvers.get(solver) if isinstance(solver, str) else solver
        estimator = self.estimator_for(solver) if estimator == "auto" else estimator
        metric = PreferenceMetric(estimator, basis=EigenBasis(beta=second), momentum=first, every=every)
        # Without a momentum of its own, SGD's weight decay is decoupled.
        super().__init__(sgd(params, lr=lr, weight_decay=weight_decay), solver, metric, **options)

    @staticmethod
    def estimator_for(solver: Solver | None) -> str:
        """``"marginal"``, which is SOAP, where the preference comes with each step; else PreferenceMetric's ``"auto"``.

        A network that is given another preference in each step takes it as an input, as PaMaL's and PaLoRA's do. Then
        its gradients depend on the preference, and averages of them at several preferences are those of no one.
        """
        return "marginal" if isinstance(solver, GIVEN) else "auto"
