"""Beyond chance? Student's t over results that are paired by seed, and Holm's correction for several at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

LEVEL = 0.05


def t_p_value(values: Sequence[float], mean: float = 0.0) -> float:
    """How likely a mean at least as high would be, were the true one ``mean``: one-sided, of two values or more.

    Example:
        >>> round(t_p_value([1.0, 2.0, 3.0]), 3), t_p_value([1.0, 3.0], mean=2.0)
        (0.037, 0.5)
    """
    above, spread = fmean(values) - mean, stdev(values)
    if spread == 0.0:
        return 0.5 if above == 0.0 else float(above < 0.0)
    from scipy.special import stdtr

    return float(stdtr(len(values) - 1, -above * math.sqrt(len(values)) / spread))


def t_half_width(values: Sequence[float], level: float = LEVEL) -> float:
    """Of the interval around the mean that misses the true one with probability ``level``."""
    from scipy.special import stdtrit

    return float(stdtrit(len(values) - 1, 1 - level / 2)) * stdev(values) / math.sqrt(len(values))


@dataclass(frozen=True)
class Verdict:
    """What Holm's correction says of one hypothesis."""

    p: float | None  # its p-value, multiplied by what the correction asks for
    rejected: bool
    level: float  # its own share: an interval of this level leaves out the hypothesis exactly if it is rejected


def holm(p_values: Sequence[float | None], level: float = LEVEL) -> list[Verdict]:
    """Which hypotheses are rejected so that, with probability ``1 - level``, none of them is true (Holm 1979).

    One without a p-value is not rejected, but counts.

    Example:
        >>> [verdict.rejected for verdict in holm([0.01, 0.04, 0.03, None])]
        [True, False, False, False]
    """
    known = [math.inf if p is None else p for p in p_values]
    found: dict[int, Verdict] = {}
    corrected, share, rejects = 0.0, level, True
    for rank, i in enumerate(sorted(range(len(known)), key=known.__getitem__)):
        left = len(known) - rank
        corrected = max(corrected, min(1.0, left * known[i]))
        if rejects:
            share, rejects = level / left, known[i] <= level / left
        found[i] = Verdict(None if p_values[i] is None else corrected, rejects, share)
    return [found[i] for i in range(len(known))]
