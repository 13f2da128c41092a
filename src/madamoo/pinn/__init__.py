"""Physics-informed networks: declare an equation and its conditions, and get one named loss for each.

The words are DeepXDE's. ``problem.losses(network)`` is a dict of scalar tensors for ``opt.backward`` of any optimizer
of the library.
"""

from ._constraints import IC, Constraint, DirichletBC, NeumannBC, OperatorBC, PeriodicBC, PointSetBC, RobinBC
from ._fields import Fields
from ._geometry import (
    CSGDifference,
    CSGUnion,
    Cuboid,
    Disk,
    Geometry,
    GeometryXTime,
    Hypercube,
    Hypersphere,
    Interval,
    Polygon,
    Rectangle,
    Sphere,
    TimeDomain,
)
from ._jets import Unsupported
from ._kernels import kernel_sums, kernel_traces, observe_kernel
from ._networks import FNN, AdaptiveTanh, FourierFeatures, PeriodicFeatures
from ._problem import Problem
from ._reference import Reference, read_comsol
from ._sampling import SAMPLERS, unit_points
from ._training import RAR, RARPinnacle, polish, train

__all__ = [
    "FNN",
    "IC",
    "RAR",
    "SAMPLERS",
    "AdaptiveTanh",
    "CSGDifference",
    "CSGUnion",
    "Constraint",
    "Cuboid",
    "DirichletBC",
    "Disk",
    "Fields",
    "FourierFeatures",
    "Geometry",
    "GeometryXTime",
    "Hypercube",
    "Hypersphere",
    "Interval",
    "NeumannBC",
    "OperatorBC",
    "PeriodicBC",
    "PeriodicFeatures",
    "PointSetBC",
    "Polygon",
    "Problem",
    "RARPinnacle",
    "Rectangle",
    "Reference",
    "RobinBC",
    "Sphere",
    "TimeDomain",
    "Unsupported",
    "kernel_sums",
    "kernel_traces",
    "observe_kernel",
    "polish",
    "read_comsol",
    "train",
    "unit_points",
]
