"""Is a finalist better than Adam beyond chance? Paired by seed, and corrected for the number of finalists."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from ..significance import LEVEL, Verdict, holm, t_half_width, t_p_value


@dataclass(frozen=True)
class Comparison:
    """What the seeds say of one finalist; gains are positive where it is better than the baseline.

    Example:
        >>> (found,) = compare([[0.9, 1.1, 1.0, 1.2]])
        >>> found.better, round(found.gain, 2), found.wins
        (True, 1.05, 4)
    """

    gain: float | None  # mean over the seeds; None where a run diverged
    low: float | None
    high: float | None
    p: float  # two-sided, after Holm's correction
    distinct: bool  # told apart from the baseline at the level
    wins: int
    seeds: int

    @property
    def better(self) -> bool:
        return self.distinct and (self.wins > self.seeds / 2 if self.gain is None else self.gain > 0)

    @property
    def worse(self) -> bool:
        return self.distinct and not self.better


def gains(baseline: Sequence[float], values: Sequence[float], higher_is_better: bool) -> list[float]:
    """By seed, how much better than the baseline; infinite where one of the two diverged (NaN), 0 where both did."""
    found = []
    for base, value in zip(baseline, values, strict=True):
        if math.isnan(base) or math.isnan(value):
            lost = math.isnan(value) - math.isnan(base)
            found.append(-lost * math.inf if lost else 0.0)
        else:
            found.append(value - base if higher_is_better else base - value)
    return found


def p_value(gains: Sequence[float]) -> float:
    """How likely gains at least as far from zero would be by chance: the paired t-test, two-sided.

    The sign test where a gain is infinite because a run diverged: that one needs no mean.

    Example:
        >>> round(p_value([1.0, 2.0, 3.0]), 3), p_value([1.0, 2.0, 3.0, math.inf])
        (0.074, 0.125)
    """
    if not all(map(math.isfinite, gains)):
        signs = [gain > 0 for gain in gains if gain != 0.0]
        rarer, count = min(sum(signs), len(signs) - sum(signs)), len(signs)
        return min(1.0, 2 * sum(math.comb(count, k) for k in range(rarer + 1)) / 2**count)
    higher = t_p_value(gains)
    return 2 * min(higher, 1 - higher)


def compare(finalists: Sequence[Sequence[float]], level: float = LEVEL) -> list[Comparison]:
    """Each finalist's gains against zero, with Holm's correction: with probability ``1 - level`` no finalist that is
    in truth level with the baseline is told apart from it.

    A finalist's interval has the level that the correction asks of it: it leaves out zero exactly if the finalist is
    told apart.
    """
    verdicts = holm([p_value(gains) for gains in finalists], level)
    return [_comparison(gains, verdict) for gains, verdict in zip(finalists, verdicts, strict=True)]


def _comparison(gains: Sequence[float], verdict: Verdict) -> Comparison:
    assert verdict.p is not None
    wins = sum(gain > 0 for gain in gains)
    if not all(map(math.isfinite, gains)):
        return Comparison(None, None, None, verdict.p, verdict.rejected, wins, len(gains))
    mean, half = fmean(gains), t_half_width(gains, verdict.level)
    return Comparison(mean, mean - half, mean + half, verdict.p, verdict.rejected, wins, len(gains))
