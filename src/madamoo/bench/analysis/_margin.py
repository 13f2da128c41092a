"""Not worse by more than a margin: a one-sided test per cell, corrected for the number of cells."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev

MARGIN = 1.0
"""In the unit of gains: per cent of the error, or points."""
LEVEL = 0.05


def p_value(gains: Sequence[float], margin: float = MARGIN) -> float | None:
    """How likely gains at least as high would be, were their true mean ``-margin``: Student's t, one-sided.

    None where there is one seed, or a gain is not finite because a run diverged.
    """
    if len(gains) < 2 or not all(map(math.isfinite, gains)):
        return None
    above, spread = fmean(gains) + margin, stdev(gains)
    if spread == 0.0:
        return 0.5 if above == 0.0 else float(above < 0.0)
    from scipy.special import stdtr

    return float(stdtr(len(gains) - 1, -above * math.sqrt(len(gains)) / spread))


def holm(p_values: Sequence[float | None], level: float = LEVEL) -> list[bool]:
    """Which hypotheses are rejected so that, with probability ``1 - level``, none of them is true (Holm 1979).

    One without a p-value is not rejected, but counts.

    Example:
        >>> holm([0.01, 0.04, 0.03, None])
        [True, False, False, False]
    """
    order = sorted(range(len(p_values)), key=lambda i: math.inf if p_values[i] is None else p_values[i])  # type: ignore[arg-type,return-value]
    rejected = [False] * len(p_values)
    for rank, i in enumerate(order):
        p = p_values[i]
        if p is None or p > level / (len(order) - rank):
            break
        rejected[i] = True
    return rejected
