"""Room four: the direction in, d / M out. The metric sees neither losses nor the optimizer."""

from ._preference import ESTIMATORS, Measurement, PreferenceMetric
from ._reference import ReferenceMetric

__all__ = ["ESTIMATORS", "Measurement", "PreferenceMetric", "ReferenceMetric"]
