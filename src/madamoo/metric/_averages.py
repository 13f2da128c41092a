"""What all averages of a block of parameters have in common, and the metric that their curvature gives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations_with_replacement
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..direction import Direction
from ..gradients import OWN, sizes_of

if TYPE_CHECKING:
    from typing_extensions import Self

Pair = tuple[int, int]
Norms = Mapping[int, float]
Curvature = Callable[[slice | None], Tensor]
"""C_lambda of some coordinates of a block, or of all."""


@dataclass
class Averages(ABC):
    """The averages of a block of parameters, for the pairs i <= j of objectives that reach it.

    ``n[e]`` is the number of updates of ``pairs[e]``; a pair that was never measured has no entry. ``dtype`` is that of
    what is as large as the parameters; None is the dtype in which the gradients come. In a block of heads the only pair
    is (OWN, OWN), which stands for (i, i) with i the owner of a parameter.
    """

    params: tuple[Tensor, ...]
    dtype: torch.dtype | None = None
    pairs: list[Pair] = field(default_factory=list)
    n: list[int] = field(default_factory=list)
    owners: tuple[int, ...] = field(default=(), kw_only=True)

    @abstractmethod
    def curvature(
        self, x: Direction, measured: Sequence[Pair], beta: float, norms: Norms | None, bias_correction: bool
    ) -> Curvature | None:
        """C_lambda as it will be once the ``measured`` pairs of the rows of x are in; None if there is no average yet.

        The averages stay as they are. With ``norms`` |g_i|, the averages are of g_i / |g_i|.
        """

    @abstractmethod
    def update(
        self,
        x: Direction,
        measured: Sequence[Pair],
        beta: float,
        norms: Norms | None = None,
        noise: torch.Generator | None = None,
    ) -> None:
        """Take the ``measured`` pairs of the rows of x in; new pairs start from zero. ``noise`` rounds small dtypes."""

    @abstractmethod
    def allocate(self, measured: Sequence[Pair], count: int, dtype: torch.dtype, device: torch.device) -> None:
        """Make room for pairs that are new, of ``count`` objectives, before an update."""

    @abstractmethod
    def tensors(self) -> list[Tensor]:
        """All that takes memory."""

    @abstractmethod
    def owned(self) -> Self:
        """The same in memory of its own."""

    @abstractmethod
    def split(self) -> list[Self]:
        """Parameter by parameter; tensors are views."""

    @abstractmethod
    def join(self, others: Sequence[Self]) -> Self:
        """These and the averages of other parameters, laid end to end."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """The averages of a block of one parameter, in its shape."""

    @abstractmethod
    def check_state_dict(self, state: dict[str, Any]) -> None:
        """Raise ValueError, to be followed by "of parameter 3", if this is no such state."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any], dtype: torch.dtype) -> None:
        """Take on such a state, computing in ``dtype``."""

    def needs_no_floor(self, x: Direction, measured: Sequence[Pair]) -> bool:
        """Whether the curvature is above the floor, and above zero, by itself."""
        return False

    def missing(self, measured: Sequence[Pair]) -> list[Pair]:
        known = set(self.pairs)
        return [pair for pair in measured if pair not in known]

    def _pairs_by_param(self) -> list[list[Pair]]:
        return [[(i, i)] for i in self.owners] or [[*self.pairs] for _ in self.params]

    @property
    @abstractmethod
    def age(self) -> Any:
        """What is the same for averages that were updated in the same steps."""

    def _joined(self, others: Sequence[Self]) -> dict[str, Any]:
        """Parameters, pairs and owners of these and others; all are what :meth:`split` gives."""
        each = (self, *others)
        alike, one = all(a.pairs == self.pairs for a in others), all(len(a.pairs) == 1 for a in each)
        if any(a.age != self.age for a in others) or not (alike or one):
            raise RuntimeError("averages of parameters that were updated in different steps cannot be joined")
        params = tuple(p for a in each for p in a.params)
        if alike:
            return {"params": params}
        return {"params": params, "pairs": [(OWN, OWN)], "owners": tuple(i for a in each for i, _ in a.pairs)}

    def _counts(self, measured: Sequence[Pair]) -> dict[Pair, int]:
        """The number of updates of each pair, once those in ``measured`` are done."""
        counts = dict(zip(self.pairs, self.n, strict=True))
        for pair in measured:
            counts[pair] = counts.get(pair, 0) + 1
        return counts


Make = Callable[[tuple[Tensor, ...]], Averages]
"""What makes the empty averages of a block."""


def coefficients(
    x: Direction, pairs: Sequence[Pair], owners: Sequence[int], norms: Norms | None, bias: Mapping[Pair, float]
) -> list[float]:
    """What multiplies each average in C_lambda: one number a pair, or one a parameter in a block of heads."""
    weights, largest = effective_weights(x, norms), largest_coefficient(x)
    if owners and pairs:
        return [coefficient((i, i), weights, bias[OWN, OWN], largest) for i in owners]
    return [coefficient(pair, weights, bias[pair], largest) for pair in pairs]


def coefficient(pair: Pair, weights: Sequence[float], bias: float, largest: float) -> float:
    """What multiplies F_ij in C_lambda; within bounds, so that a huge one times an average of zero is zero."""
    i, j = pair
    both = weights[i] * weights[j] * (1.0 if i == j else 2.0) / bias
    return min(max(both, -largest), largest)


def largest_coefficient(x: Direction) -> float:
    return float(torch.finfo(x.d.dtype).max / 8)


def effective_weights(x: Direction, norms: Norms | None) -> Sequence[float]:
    """What stands for lambda before averages of normalised gradients."""
    return x.weights if norms is None else [w * norms.get(i, 0.0) for i, w in enumerate(x.weights)]


def all_pairs(keys: Sequence[int]) -> list[Pair]:
    return list(combinations_with_replacement(sorted(keys), 2))


def metric_of(x: Direction, C: Tensor | None, *, floor: float | None, eps: float, alpha: float, ramp: str) -> Tensor:
    """M = alpha sqrt(C + eps) + (1 - alpha) s; C may be overwritten.

    With all pairs up to date C >= (1 - beta) d^2 holds by itself; ``floor`` = 1 - beta enforces it when they are not,
    so that no entry of d / M exceeds 1 / sqrt(floor). With 0, negative curvature counts as none; None is for curvature
    that is known to be above the floor.
    """
    if C is None:
        C = torch.zeros_like(x.d)
    if floor is not None:
        C = torch.maximum(C, floor * x.d.square()) if floor else C.clamp_(min=0.0)
    M = C.add_(eps).sqrt_()
    if alpha < 1.0:
        for part in M.split(sizes_of(x.params)):  # s is a matter of one tensor
            if part.numel():
                s = part.amax() if ramp == "largest" else part.mean() if ramp == "matched" else 1.0
                part.mul_(alpha).add_((1.0 - alpha) * s)
    return M
