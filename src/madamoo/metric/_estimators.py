"""Estimators: which averages are kept, of which gradients, and in which steps they are updated."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import torch

from ..direction import Direction
from ..gradients import Block
from ._averages import Averages, Label, Pair, all_pairs
from ._pairwise import PairAverages
from ._separable import SeparableAverages

MOST_IN_FULL = 8  # objectives for which "auto" keeps all pairs up to date


class Estimator(ABC):
    """Estimates C_lambda from averages. A subclass says which rows and pairs these need, and of which kind they are.

    The averages of one that is ``of_direction`` are of d * d, and it needs no gradient of a single objective.

    Example:
        >>> from madamoo.metric import ESTIMATORS
        >>> class Full(Estimator):
        ...     name = "mine"
        ...     def pairs(self, objectives, drawn):
        ...         return [(i, j) for i in objectives for j in objectives if i <= j]
        >>> Full().pairs([0, 1], None), sorted(ESTIMATORS)
        ([(0, 0), (0, 1), (1, 1)], ['collapsed', 'diagonal', 'full', 'marginal', 'pair', 'separable'])
    """

    name: ClassVar[str]
    averages: ClassVar[type[Averages]] = PairAverages
    every_row: ClassVar[bool] = False
    """Whether it needs the gradient of each objective by itself."""
    draws: ClassVar[bool] = False
    """Whether it draws a pair of objectives for each step: see :meth:`draw`."""
    of_direction: ClassVar[bool] = False
    needs_static: ClassVar[bool] = False
    """Whether it holds for constant weights only."""
    heads_together: ClassVar[bool] = True
    """Whether heads of different objectives are updated in the same steps, so that they may share a block."""

    @abstractmethod
    def pairs(self, objectives: Sequence[int], drawn: Pair | None) -> list[Label]:
        """The averages to update in shared parameters with the gradients of these objectives."""

    def draw(self, count: int, generator: torch.Generator) -> Pair | None:
        """The pair of objectives that this step measures; None is all of them."""
        return None

    def needed(self, present: Sequence[int], drawn: Pair | None) -> tuple[int, ...]:
        """The objectives whose own gradient the averages need in this step."""
        return tuple(present) if self.every_row else ()

    def check_solver(self, *, static: bool) -> None:
        """Raise if it does not hold for a solver whose weights are constant, or change."""
        if self.needs_static and not static:
            raise ValueError(
                f"estimator={self.name!r} holds for constant weights only, and this solver's weights change; "
                "use 'auto', 'full' or 'separable'"
            )

    def sees(self, x: Direction) -> Direction:
        """What it takes for objectives: the real ones, or d as if it were the only one."""
        if not self.of_direction:
            return x
        return Direction(x.block, x.d, (1.0,), (0,), x.d.unsqueeze(0), complete=True)

    def labels(self, x: Direction, drawn: Pair | None) -> list[Label]:
        """The averages to update with such a direction."""
        if not x.owners:
            return self.pairs(x.objectives, drawn)
        if not len(x.rows):
            return []
        return [None] if all(self.pairs([i], drawn) for i in {*x.owners}) else []

    def empty(self, block: Block, dtype: torch.dtype | None, turned: bool = False) -> Averages:
        """The averages of a block, before any update; ``turned`` in a rotated basis."""
        return self.averages(block, () if self.of_direction else block.owners, dtype, turned=turned)


class Full(Estimator):
    """All pairs, each step."""

    name = "full"
    every_row = True

    def pairs(self, objectives: Sequence[int], drawn: Pair | None) -> list[Label]:
        return all_pairs(objectives)


class SampledPair(Estimator):
    """The averages of one pair of objectives drawn at random each step, as in the paper."""

    name = "pair"
    draws = True
    heads_together = False

    def draw(self, count: int, generator: torch.Generator) -> Pair | None:
        i, j = torch.randint(count, (2,), generator=generator, device=generator.device).tolist()
        return min(i, j), max(i, j)

    def needed(self, present: Sequence[int], drawn: Pair | None) -> tuple[int, ...]:
        return tuple(i for i in dict.fromkeys(drawn or ()) if i in present)

    def pairs(self, objectives: Sequence[int], drawn: Pair | None) -> list[Label]:
        return all_pairs([i for i in objectives if drawn is None or i in drawn])


class Diagonal(Estimator):
    """Without cross terms."""

    name = "diagonal"
    every_row = True

    def pairs(self, objectives: Sequence[int], drawn: Pair | None) -> list[Label]:
        return [(i, i) for i in objectives]


class Separable(Full):
    """One buffer for any number of objectives."""

    name = "separable"
    averages = SeparableAverages


class Collapsed(Estimator):
    """The average of d * d, which is all pairs in one as long as the weights are constant."""

    name = "collapsed"
    of_direction = True
    needs_static = True

    def pairs(self, objectives: Sequence[int], drawn: Pair | None) -> list[Label]:
        return all_pairs(objectives)


class Marginal(Collapsed):
    """The average of d * d whatever the weights do: the control."""

    name = "marginal"
    needs_static = False


ESTIMATORS: dict[str, type[Estimator]] = {
    estimator.name: estimator for estimator in (SampledPair, Full, Diagonal, Separable, Collapsed, Marginal)
}


def choose(*, static: bool, count: int, turned: bool) -> Estimator:
    """What "auto" is for such a solver and so many objectives, in the parameters' own basis or another one."""
    if static:
        return Collapsed()
    return Full() if count <= MOST_IN_FULL and not turned else Separable()
