from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ._ntk import NTK
from ._residuals import Residuals, ResidualsT


class NTKPinnacle(NTK):
    """The weights that PINNacle's code calls NTK (`Hao et al., 2024 <https://arxiv.org/abs/2306.08827>`_).

    There are two blocks, all residuals of equations and all conditions. In place of the trace of a block's kernel K
    stands s = |grad of the sum of all its residuals|^2, which is 1'K1: lambda_i = (s_residuals + s_conditions) /
    s_block(i).

    Traces come as in :class:`NTK`: ``opt.solver.observe_traces(pinn.kernel_sums(problem, network))``, of each objective
    the s of its block.

    Args:
        reference: the residuals, by name or by position. None: the names that begin with "pde", as in
            :class:`madamoo.pinn.Problem`, and the first objective where losses have no names.
        every: after so many steps, ``wants_traces`` asks for new ones; PINNacle's code takes them in every step.

    Example:
        >>> import torch
        >>> solver = NTKPinnacle(reference=[0])
        >>> solver.ensure(2)
        >>> solver.observe_traces(torch.tensor([9.0, 1.0]))
        >>> solver.solve(torch.tensor([1.0, 1.0]))
        tensor([ 1.1111, 10.0000])
    """

    kernel = "sum"
    per_objective = (*NTK.per_objective, "residual")

    residual: Tensor

    def __init__(self, reference: ResidualsT = None, *, every: int = 1) -> None:
        super().__init__(every)
        self.residuals = Residuals("NTKPinnacle", reference)

    def setup(self, n_objectives: int) -> None:
        super().setup(n_objectives)
        self.register_buffer("residual", self.residuals.mask(n_objectives, self.objective_names))

    def name_objectives(self, names: Sequence[str], ordered: bool) -> None:
        self.residuals.check_names(names, ordered)
        super().name_objectives(names, ordered)

    def total(self) -> Tensor:
        """The sum over the blocks, each of which has one value."""
        zero = self.traces.new_zeros(1)
        blocks = (self.traces[self.residual], self.traces[~self.residual])
        return sum((block if len(block) else zero).amax() for block in blocks)  # type: ignore[return-value]
