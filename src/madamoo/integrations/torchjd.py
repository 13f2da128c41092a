"""TorchJD's aggregators and weightings as solvers, and our solvers as aggregators and weightings there."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ..solvers import Solver, get

try:
    from torchjd import Stateful
    from torchjd.aggregation import (
        Aggregator,
        ConstantWeighting,
        CRMOGMWeighting,
        ExcessMTLWeighting,
        GramianWeightedAggregator,
        MeanWeighting,
        MoDoWeighting,
        RandomWeighting,
        SDMGradWeighting,
        SumWeighting,
        WeightedAggregator,
        Weighting,
    )
    from torchjd.linalg import PSDMatrix
except ImportError as error:
    raise ImportError(
        "madamoo.integrations.torchjd needs TorchJD 0.18 or later: pip install 'madamoo[torchjd]'"
    ) from error

__all__ = ["SolverAggregator", "SolverWeighting", "TorchJD"]


class TorchJD(Solver):
    """Any `TorchJD <https://torchjd.org>`_ method that makes weights from the Gram matrix, as a solver.

    lambda = weighting(K), so that d = sum_i lambda_i g_i is what TorchJD's aggregator gives for the Jacobian; the
    metric sees that lambda. As with every gradient-balancing solver, K is that of the shared parameters.

    TorchJD draws from torch's global generator. Here it draws from a generator of the solver's own, which is saved with
    it, and the global one stays as it was. What a stateful method keeps in buffers is saved too; but TorchJD cannot let
    the state of some objectives rest, so such a method refuses a batch that lacks objectives.

    Args:
        method: a weighting that takes the Gramian, or an aggregator built on one; with the options of its own. Methods
            that use more than the Gram matrix are refused.
        seed: seed of the generator.

    Example:
        >>> from torchjd.aggregation import MGDA
        >>> TorchJD(MGDA()).weights(torch.ones(2), torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
        tensor([0.5000, 0.5000])
    """

    family = "gradient"
    needs_gram = True

    generator: torch.Generator

    def __init__(self, method: Aggregator | Weighting[Any], *, seed: int = 0) -> None:
        super().__init__()
        self.weighting = _gramian_weighting(method)
        self.seed_generator(seed)

    def weights(self, losses: Tensor, gram: Tensor | None = None, preference: Tensor | None = None) -> Tensor:
        return self._call(self.require(gram).to("cpu", torch.float64)).to(losses)

    def solve(
        self,
        losses: Tensor,
        gram: Tensor | None = None,
        preference: Tensor | None = None,
        present: Sequence[int] | None = None,
        statistics: Mapping[str, Tensor] | None = None,
    ) -> Tensor:
        if present is not None and len(present) < len(losses) and isinstance(self.weighting, Stateful):
            raise ValueError(
                f"TorchJD's {type(self.weighting).__name__} keeps state for all objectives together, and this batch "
                f"has {len(present)} of {len(losses)}; use a solver of madamoo.solvers, which lets the others rest"
            )
        return super().solve(losses, gram, preference, present, statistics)

    @torch.no_grad()
    def _call(self, gram: Tensor) -> Tensor:
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(self.generator.get_state())
            weights: Tensor = self.weighting(gram)
            self.generator.set_state(torch.get_rng_state())
        return weights

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        # A stateful method makes its buffers when it is first called: so call it, before they are filled.
        saved = {key for key in state_dict if key.startswith(f"{prefix}weighting.")}
        own = {f"{prefix}weighting.{key}" for key in self.weighting.state_dict()}
        if saved - own:
            count = state_dict[f"{prefix}_extra_state"]["n_objectives"]
            self._call(torch.eye(count, dtype=torch.float64, device="cpu"))
        elif own - saved and isinstance(self.weighting, Stateful):
            self.weighting.reset()
        super()._load_from_state_dict(state_dict, prefix, *args)


_COUNT_ONLY = (ConstantWeighting, MeanWeighting, RandomWeighting, SumWeighting)
"""Weightings of the Jacobian that look at its number of rows only, and so may as well be given the Gram matrix."""


def _gramian_weighting(method: Any) -> Weighting[Any]:
    """The part of a method that takes the Gram matrix, or an error that says why there is none."""
    if isinstance(method, GramianWeightedAggregator):
        weighting = method.gramian_weighting
    elif isinstance(method, WeightedAggregator):
        weighting = method.weighting
        if not isinstance(_innermost(weighting), _COUNT_ONLY):
            raise _refusal(method, "its weights are made from the Jacobian, not from the Gram matrix")
    elif isinstance(method, Aggregator):
        raise _refusal(
            method, "it makes a direction without weights, so there is no lambda with d = sum_i lambda_i g_i"
        )
    elif isinstance(method, Weighting):
        weighting = method
    else:
        hint = f"; did you mean {method.__name__}()?" if isinstance(method, type) else ""
        raise TypeError(f"method must be an aggregator or a weighting of TorchJD, got {method!r}{hint}")
    innermost = _innermost(weighting)
    if isinstance(innermost, ExcessMTLWeighting) or hasattr(innermost, "fn"):  # fn: `weighting << function of J`
        raise _refusal(method, "its weights are made from the Jacobian, not from the Gram matrix")
    if isinstance(innermost, (MoDoWeighting, SDMGradWeighting)):
        raise _refusal(method, "it needs the products J_1 J_2' of two independent batches, not a Gram matrix")
    return weighting


def _innermost(weighting: Weighting[Any]) -> Weighting[Any]:
    while isinstance(weighting, CRMOGMWeighting):
        weighting = weighting.weighting
    return weighting


def _refusal(method: Any, reason: str) -> ValueError:
    return ValueError(
        f"TorchJD's {type(method).__name__} cannot be a solver: {reason}. Weightings that take the Gramian can, and "
        "aggregators built on them (torchjd.aggregation.GramianWeightedAggregator), Constant, Mean, Random and Sum"
    )


# The other way --------------------------------------------------------------------------------------------------------


class SolverWeighting(Weighting[PSDMatrix], Stateful):
    """A solver of madamoo as a weighting of TorchJD: the Gramian in, the weights lambda out.

    A call is a step: a solver with state moves on with it. That state is in ``state_dict()``, and :meth:`reset` takes
    it back to the beginning.

    Args:
        solver: a gradient-balancing solver (or LS), or its name with options, ``"cagrad:c=0.2"``. TorchJD shows its
            weightings the Gramian alone, so one that needs more is refused: losses (UW), a preference (EPO), single
            entries of the gradients (GradDrop).

    Example:
        >>> SolverWeighting("mgda")(torch.tensor([[4.0, 0.0], [0.0, 1.0]]))
        tensor([0.2000, 0.8000])
    """

    def __init__(self, solver: Solver | str) -> None:
        super().__init__()
        solver = get(solver) if isinstance(solver, str) else solver
        if not isinstance(solver, Solver):
            raise TypeError(f"solver must be a madamoo.solvers.Solver or its name, got {type(solver).__name__}")
        reasons = {
            "weighs single entries of the gradients": solver.per_coordinate,
            "needs statistics of the gradients": bool(solver.row_statistics),
            "needs a preference": solver.uses_preference,
            "balances losses": not (solver.family == "gradient" or solver.static),
            "needs the losses": solver.uses_losses,
        }
        for reason, applies in reasons.items():
            if applies:
                raise _no_weighting(solver, reason)
        self.solver = solver
        self._start = copy.deepcopy(solver.state_dict())

    @torch.no_grad()
    def forward(self, gramian: PSDMatrix, /) -> Tensor:
        known = gramian.to("cpu", torch.float64)
        weights = self.solver.solve(torch.full((len(known),), torch.nan, dtype=torch.float64), known)
        if bool(weights.isnan().any()) and bool(known.isfinite().all()):
            raise _no_weighting(self.solver, "needs the losses")
        return weights.to(gramian)

    def reset(self) -> None:
        self.solver.load_state_dict(self._start)


class SolverAggregator(GramianWeightedAggregator, Stateful):
    """A solver of madamoo as an aggregator of TorchJD: see :class:`SolverWeighting`.

    Example:
        >>> SolverAggregator("mgda")(torch.tensor([[2.0, 0.0], [0.0, 2.0]]))
        tensor([1., 1.])
    """

    gramian_weighting: SolverWeighting

    def __init__(self, solver: Solver | str) -> None:
        super().__init__(SolverWeighting(solver))

    def reset(self) -> None:
        self.gramian_weighting.reset()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.gramian_weighting.solver!r})"


def _no_weighting(solver: Solver, reason: str) -> ValueError:
    return ValueError(
        f"{type(solver).__name__} cannot be a weighting of TorchJD: it {reason}, and TorchJD shows the Gramian alone. "
        "Train with madamoo.MultiObjective(optimizer, solver) instead"
    )
