"""Room four: the direction in, d / M out. The metric sees neither losses nor the optimizer."""

from ._averages import Averages
from ._basis import EigenBasis
from ._estimators import ESTIMATORS, Estimator
from ._measured import Measured
from ._preference import PreferenceMetric
from ._protocol import Measurement, Metric
from ._reference import ReferenceMetric

__all__ = [
    "ESTIMATORS",
    "Averages",
    "EigenBasis",
    "Estimator",
    "Measured",
    "Measurement",
    "Metric",
    "PreferenceMetric",
    "ReferenceMetric",
]
