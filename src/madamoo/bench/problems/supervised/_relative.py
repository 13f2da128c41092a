"""Delta-m: several metrics in one number, the mean relative improvement over fixed bases, in percent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .. import Metric


def delta_m(values: Mapping[str, float], bases: Mapping[str, float], metrics: Sequence[Metric]) -> float:
    """The mean of 100 (M - B) / B over the metrics in ``bases``, its sign turned where lower is better."""
    sign = {metric.name: 1.0 if metric.higher_is_better else -1.0 for metric in metrics}
    return sum(100.0 * sign[name] * (values[name] - base) / base for name, base in bases.items()) / len(bases)
