"""C_lambda as a metric sees it in this step: before the floor, eps and the ramp-up, which hide it in d / M."""

from __future__ import annotations

import torch
from torch import Tensor

from ..direction import Direction
from ..metric import Measurement, PreferenceMetric
from ..metric._averages import Averages


def curvature(metric: PreferenceMetric, x: Direction, beta: float, measurement: Measurement) -> Tensor:
    """C_lambda of one parameter, with this step's gradients in the averages; the averages stay as they are."""
    averages = Averages() if measurement.restart else metric.averages.get(x.param, Averages())
    x = metric._view(x, measurement)
    pairs = measurement.pairs(x.keys) if measurement.active else []
    by_lambda = metric.weighting == "lambda"
    C = averages.curvature(x, pairs, beta**metric.every, metric.bias_correction, by_lambda)
    return torch.zeros_like(x.d) if C is None else C
