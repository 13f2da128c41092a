"""What all averages of a block of parameters have in common, and the metric that their curvature gives."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations_with_replacement
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import torch
from torch import Tensor

from ..direction import Direction
from ..gradients import Block

if TYPE_CHECKING:
    from typing_extensions import Self

Pair: TypeAlias = tuple[int, int]
Label: TypeAlias = Pair | None
"""What an average is of: the pair (i, j) of g_i g_j. None is the one average of a block of heads, (i, i) with i the
owner of each parameter."""
Norms: TypeAlias = Mapping[int, float]
Curvature: TypeAlias = Callable[[slice | None], Tensor]
"""C_lambda of some coordinates of a block, or of all."""


@dataclass(frozen=True)
class Averaging:
    """How averages of a block are made and read in one step.

    Measured in every tenth step with beta = 0.999, an average decays by 0.999^10 each time.
    """

    beta: float  # the decay of one step
    every: int = 1  # steps from one measurement to the next
    norms: Norms | None = None  # |g_i|, if the averages are of g_i / |g_i|
    bias_correction: bool = True
    shrink: float = 1.0  # what multiplies the weights, and by its square C

    @property
    def decay(self) -> float:
        """From one measurement to the next."""
        return self.beta**self.every

    def bias(self, n: int) -> float:
        """What an average is divided by that started at zero and was measured n times."""
        return 1.0 - self.decay**n if self.bias_correction else 1.0


@dataclass
class Averages(ABC):
    """The averages of a block of parameters, for the pairs i <= j of objectives that reach it.

    ``n[e]`` is the number of updates of ``pairs[e]``; a pair that was never measured has no entry. ``dtype`` is that of
    what is as large as the parameters; None is the dtype in which the gradients come. In a block of heads, ``owners``
    has the objective of each parameter, and the only label is None. ``turned`` says that the coordinates are those of
    a rotated basis.
    """

    rotates_rows: ClassVar[bool] = True
    """Whether the rows have to come in that basis; else the direction alone does."""

    block: Block
    owners: tuple[int, ...] = ()
    dtype: torch.dtype | None = None
    turned: bool = field(default=False, kw_only=True)
    pairs: list[Label] = field(default_factory=list)
    n: list[int] = field(default_factory=list)

    @abstractmethod
    def curvature(self, x: Direction, measured: Sequence[Label], how: Averaging) -> Curvature | None:
        """C_lambda as it will be once the ``measured`` pairs of the rows of x are in; None if there is no average yet.

        The averages stay as they are.
        """

    @abstractmethod
    def update(
        self, x: Direction, measured: Sequence[Label], how: Averaging, noise: torch.Generator | None = None
    ) -> None:
        """Take the ``measured`` pairs of the rows of x in. ``noise`` rounds small dtypes."""

    @abstractmethod
    def grown(self, measured: Sequence[Label], count: int, dtype: torch.dtype, device: torch.device) -> Self:
        """These with an average of zero for each pair that is new, of ``count`` objectives."""

    @abstractmethod
    def reorder(self, places: Tensor) -> None:
        """The same averages with the coordinates in another order: k of the whole block was at ``places[k]`` so far."""

    @abstractmethod
    def tensors(self) -> list[Tensor]:
        """All that takes memory."""

    @abstractmethod
    def split(self) -> list[Self]:
        """Parameter by parameter, each pair by its objectives; tensors are views."""

    @abstractmethod
    def join(self, block: Block, owners: tuple[int, ...], others: Sequence[Self]) -> Self:
        """These and the averages of other parameters, laid end to end in memory of their own."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """The averages of a block of one parameter, in its shape."""

    @abstractmethod
    def check_state_dict(self, state: dict[str, Any]) -> None:
        """Raise ValueError, to be followed by "of parameter 3", if this is no such state."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any], dtype: torch.dtype) -> None:
        """Take on such a state, computing in ``dtype``."""

    def needs_no_floor(self, x: Direction, measured: Sequence[Label]) -> bool:
        """Whether the curvature is above the floor, and above zero, by itself."""
        return False

    def missing(self, measured: Sequence[Label]) -> list[Label]:
        known = self.pairs
        return [pair for pair in measured if pair not in known]

    def _pairs_by_param(self) -> list[list[Label]]:
        return [[(i, i)] if self.pairs else [] for i in self.owners] or [[*self.pairs] for _ in self.block.params]

    @property
    @abstractmethod
    def age(self) -> Any:
        """What is the same for averages that were updated in the same steps."""

    def _joined_pairs(self, owners: tuple[int, ...], others: Sequence[Self]) -> list[Label]:
        """The labels of these and others in one block; all are what :meth:`split` gives."""
        if owners:
            fit = all(a.pairs in ([], [(i, i)]) for a, i in zip((self, *others), owners, strict=True))
        else:
            fit = all(a.pairs == self.pairs for a in others)
        if not fit or any(a.age != self.age for a in others):
            raise RuntimeError("averages of parameters that were updated in different steps cannot be joined")
        return [None] * len(self.pairs) if owners else [*self.pairs]

    def _counts(self, measured: Sequence[Label]) -> dict[Label, int]:
        """The number of updates of each pair, once those in ``measured`` are done."""
        counts = dict(zip(self.pairs, self.n, strict=True))
        for pair in measured:
            counts[pair] = counts.get(pair, 0) + 1
        return counts


Make: TypeAlias = Callable[[Block], Averages]
"""What makes the empty averages of a block."""


def coefficients(
    x: Direction, pairs: Sequence[Label], owners: Sequence[int], bias: Mapping[Label, float], how: Averaging
) -> list[float]:
    """What multiplies each average in C_lambda: one number per pair, or one per parameter in a block of heads."""
    weights, largest = [w * how.shrink for w in effective_weights(x, how.norms)], largest_coefficient(x)
    if owners and pairs:
        return [coefficient((i, i), weights, bias[None], largest) for i in owners]
    return [coefficient(pair, weights, bias[pair], largest) for pair in pairs if pair is not None]


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


def shrink_for(x: Direction, norms: Norms | None) -> float:
    """The power of two, at most 1, by which weights are multiplied so that no sum of curvatures overflows.

    Gradients whose squares are within 1/64 of the largest number were let in, so weights that add up to 4 are safe.
    Multiplying by a power of two is exact: d / M stays the same.
    """
    total = sum(map(abs, effective_weights(x, norms)))
    return 1.0 if total <= 4.0 else 2.0 ** -math.ceil(math.log2(total) - 2)


def all_pairs(objectives: Sequence[int]) -> list[Label]:
    return [*combinations_with_replacement(sorted(objectives), 2)]


def check_pairs(pairs: Sequence[Sequence[int]]) -> None:
    """Raise ValueError unless each pair is one of objectives."""
    for pair in pairs:
        if len(pair) != 2 or not 0 <= pair[0] <= pair[1]:
            raise ValueError(f"have the pair {pair!r}")
