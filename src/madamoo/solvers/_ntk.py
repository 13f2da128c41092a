from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from ..checks import check_integer, check_numbers
from ._base import Solver


class NTK(Solver):
    """Weights from the neural tangent kernel (`Wang et al., 2022 <https://arxiv.org/abs/2007.14527>`_).

    For losses that are mean squares of residuals r_i, as in physics-informed networks. The kernel of objective i is
    K_i = J_i J_i', J_i the Jacobian of its residuals by the parameters; its trace is the sum over points of the squared
    gradients. lambda_i = sum_j tr K_j / tr K_i: all objectives then fall at a similar rate.

    Traces cannot be had from the gradients of the losses, so whoever has the residuals gives them, before ``backward``:
    ``opt.solver.observe_traces(pinn.kernel_traces(problem, network))``. ``pinn.train`` does so. Until then, all weights
    are 1. An objective of trace zero has weight 1.

    Args:
        every: after so many steps, ``wants_traces`` asks for new ones.

    Example:
        >>> solver = NTK()
        >>> solver.ensure(2)
        >>> solver.observe_traces(torch.tensor([9.0, 1.0]))
        >>> solver.solve(torch.tensor([1.0, 1.0]))
        tensor([ 1.1111, 10.0000])
    """

    kernel: ClassVar[str] = "trace"
    """What :meth:`observe_traces` is given: of each objective the trace of its kernel."""
    per_objective: ClassVar[tuple[str, ...]] = ("traces", "wait")

    traces: Tensor  # NaN until observed
    wait: Tensor  # steps that the traces are still to be kept for

    def __init__(self, every: int = 100) -> None:
        super().__init__()
        self.every = check_integer("every", every, 1)

    def setup(self, n_objectives: int) -> None:
        self.register_buffer("traces", torch.full((n_objectives,), torch.nan, dtype=torch.float64))
        self.register_buffer("wait", torch.zeros(n_objectives, dtype=torch.int64))

    @property
    def wants_traces(self) -> bool:
        """Whether new traces are due before the next ``backward``."""
        return self.n_objectives is None or not bool(self.wait.all())

    def observe_traces(self, traces: Mapping[str, float] | Sequence[float] | Tensor) -> None:
        """Take the traces of the kernel, in the order of the objectives or by their names; not negative."""
        if isinstance(traces, Mapping):
            if self.objective_names is None:
                self.name_objectives(tuple(traces), ordered=False)
            names = self.objective_names or ()
            if set(traces) != set(names):
                raise ValueError(f"traces must be of the objectives {', '.join(names)}, got {', '.join(traces)}")
            traces = [float(traces[name]) for name in names]
        found = check_numbers("traces", traces, self.n_objectives)
        if bool((found < 0).any()):
            raise ValueError(f"traces must not be negative, got {found.tolist()}")
        self.ensure(len(found))
        self.traces = found
        self.wait = torch.full_like(self.wait, self.every)

    def weights(self, losses: Tensor, gram: Tensor | None = None, preference: Tensor | None = None) -> Tensor:
        self.ensure(len(losses))
        self.wait = (self.wait - 1).clamp_min(0)
        if bool(self.traces.isnan().any()):
            warnings.warn(
                f"{type(self).__name__} has been given no traces, so its weights are 1: call solver.observe_traces("
                "pinn.kernel_traces(problem, network)) before backward",
                RuntimeWarning,
                stacklevel=2,
            )
            return torch.ones_like(losses)
        return torch.where(self.traces > 0, self.total() / self.traces, 1.0).to(losses)

    def total(self) -> Tensor:
        """The trace of the whole kernel."""
        return self.traces.sum()
