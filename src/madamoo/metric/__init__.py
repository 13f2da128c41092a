"""Room four: the direction in, d / M out. The metric sees neither losses nor the optimizer."""

from ._averages import Averages
from ._estimators import ESTIMATORS, Estimator
from ._preference import Measured, PreferenceMetric
from ._protocol import Measurement, Metric
from ._reference import ReferenceMetric

__all__ = [
    "ESTIMATORS",
    "Averages",
    "Estimator",
    "Measured",
    "Measurement",
    "Metric",
    "PreferenceMetric",
    "ReferenceMetric",
]
