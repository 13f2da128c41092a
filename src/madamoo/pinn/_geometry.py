"""Domains: which points are inside, and points of their boundaries with outward normals."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ._sampling import unit_points

TOLERANCE = 1e-6
"""How far from a boundary, relative to the size of the geometry, a point still counts as on it (float32 rounds)."""
_ROUNDS = 60


class Geometry(ABC):
    """A bounded domain of ``dim`` dimensions; points are rows of a float64 tensor ``[n, dim]``.

    ``a - b`` and ``a + b`` are the difference and the union, ``geometry * TimeDomain(0, 1)`` is the domain in time.

    Example: ``Rectangle((-1, -1), (1, 1)) - Disk((0.5, 0.5), 0.2)``.

    Example:
        >>> from madamoo.pinn import Interval
        >>> points = Interval(0, 1).random_points(3)
        >>> points.shape, points.dtype
        (torch.Size([3, 1]), torch.float64)
    """

    dim: int
    low: Tensor
    high: Tensor

    @abstractmethod
    def distance(self, x: Tensor) -> Tensor:
        """Negative inside, positive outside, zero on the boundary, and there the distance to first order."""

    @property
    @abstractmethod
    def boundary_measure(self) -> float:
        """Length or area of the boundary; of a combination, what its parts have together."""

    @abstractmethod
    def boundary_from_unit(self, unit: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Points of the boundary from points of the unit cube ``[n, dim]``, evenly; normals; which of them count."""

    @property
    def scale(self) -> float:
        return float((self.high - self.low).max())

    def inside(self, x: Tensor) -> Tensor:
        """Which points are in the domain, its boundary included."""
        return self.distance(x) <= TOLERANCE * self.scale

    def on_boundary(self, x: Tensor) -> Tensor:
        return self.distance(x).abs() <= TOLERANCE * self.scale

    def random_points(self, count: int, sampler: str = "pseudo", generator: torch.Generator | None = None) -> Tensor:
        """``count`` points of the interior ``[count, dim]``."""

        def draw(size: int) -> Tensor:
            x = self.low + unit_points(size, self.dim, sampler, generator) * (self.high - self.low)
            return x[self.distance(x) < -TOLERANCE * self.scale]

        return _until(draw, count, f"the interior of {type(self).__name__}")

    def random_boundary_points(
        self, count: int, sampler: str = "pseudo", generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """``count`` points of the boundary and the outward normals there, ``[count, dim]`` each."""

        def draw(size: int) -> Tensor:
            x, normals, counts = self.boundary_from_unit(unit_points(size, self.dim, sampler, generator))
            return torch.cat([x, normals], 1)[counts]

        both = _until(draw, count, f"the boundary of {type(self).__name__}")
        return both[:, : self.dim], both[:, self.dim :]

    def __sub__(self, other: Geometry) -> CSGDifference:
        return CSGDifference(self, other)

    def __add__(self, other: Geometry) -> CSGUnion:
        return CSGUnion(self, other)

    def __mul__(self, time: TimeDomain) -> GeometryXTime:
        return GeometryXTime(self, time)


def _until(draw: Callable[[int], Tensor], count: int, what: str) -> Tensor:
    """``count`` rows of what ``draw(size)`` keeps, from one design that is large enough, thinned evenly."""
    size = count
    for _ in range(_ROUNDS):
        rows = draw(size)
        if len(rows) >= count:
            return rows[torch.arange(count, device="cpu") * len(rows) // count]
        size = max(size + 1, math.ceil(1.05 * size * count / max(len(rows), 1)) if len(rows) else 2 * size)
        if size > 1000 * count + 1_000_000:
            break
    raise ValueError(f"no {count} points could be drawn on {what}: is it empty?")


class Hypercube(Geometry):
    """The box between two corners, in any number of dimensions.

    Example:
        >>> Hypercube([0] * 5, [1] * 5).dim
        5
    """

    def __init__(self, xmin: Sequence[float], xmax: Sequence[float]) -> None:
        self.low, self.high = (
            torch.tensor(xmin, dtype=torch.float64, device="cpu"),
            torch.tensor(xmax, dtype=torch.float64, device="cpu"),
        )
        if self.low.shape != self.high.shape or self.low.dim() != 1 or not bool((self.low < self.high).all()):
            raise ValueError(f"xmin must be below xmax in each dimension, got {tuple(xmin)} and {tuple(xmax)}")
        self.dim = len(self.low)

    def distance(self, x: Tensor) -> Tensor:
        beyond = torch.maximum(self.low - x, x - self.high)
        outside = beyond.clamp(min=0).norm(dim=1)
        return torch.where(outside > 0, outside, beyond.amax(1))

    @property
    def boundary_measure(self) -> float:
        return float(2 * self._faces().sum())

    def _faces(self) -> Tensor:
        """The area of the faces that stand on each axis, one of the two."""
        sides = self.high - self.low
        return sides.prod() / sides

    def boundary_from_unit(self, unit: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        faces = self._faces().repeat_interleave(2)
        face, _ = _split(unit[:, 0], faces)
        axis, upper = face // 2, (face % 2).bool()
        rows = torch.arange(len(unit), device="cpu")
        # the coordinates along the face are those of the other columns; in one dimension there are none
        along = torch.empty_like(unit)
        for k in range(self.dim):
            others = [j for j in range(self.dim) if j != k]
            along[axis == k] = along.new_zeros(())
            for column, j in enumerate(others, start=1):
                along[axis == k, j] = unit[axis == k, column]
        x = self.low + along * (self.high - self.low)
        x[rows, axis] = torch.where(upper, self.high[axis], self.low[axis])
        normals = torch.zeros_like(x)
        normals[rows, axis] = torch.where(upper, 1.0, -1.0).to(x)
        return x, normals, torch.ones(len(x), dtype=torch.bool, device="cpu")


class Interval(Hypercube):
    """An interval of the line; its boundary has two points.

    Example:
        >>> Interval(0, 1).on_boundary(torch.tensor([[0.0], [0.5], [1.0]], dtype=torch.float64))
        tensor([ True, False,  True])
    """

    def __init__(self, left: float, right: float) -> None:
        super().__init__([left], [right])


class Rectangle(Hypercube):
    """A rectangle with sides along the axes.

    Example:
        >>> Rectangle((0, 0), (2, 1)).dim
        2
    """

    def __init__(self, xmin: Sequence[float], xmax: Sequence[float]) -> None:
        super().__init__(xmin, xmax)
        if self.dim != 2:
            raise ValueError(f"xmin of a Rectangle must have 2 coordinates, got {self.dim}")


class Cuboid(Hypercube):
    """A box in three dimensions with sides along the axes.

    Example:
        >>> Cuboid((0, 0, 0), (1, 1, 2)).dim
        3
    """

    def __init__(self, xmin: Sequence[float], xmax: Sequence[float]) -> None:
        super().__init__(xmin, xmax)
        if self.dim != 3:
            raise ValueError(f"xmin of a Cuboid must have 3 coordinates, got {self.dim}")


class Hypersphere(Geometry):
    """A ball, in any number of dimensions.

    Example:
        >>> Hypersphere([0] * 5, 1.0).dim
        5
    """

    def __init__(self, center: Sequence[float], radius: float) -> None:
        if radius <= 0:
            raise ValueError(f"radius must be positive, got {radius}")
        self.center, self.radius = torch.tensor(center, dtype=torch.float64, device="cpu"), float(radius)
        self.dim = len(self.center)
        self.low, self.high = self.center - radius, self.center + radius

    def distance(self, x: Tensor) -> Tensor:
        return (x - self.center).norm(dim=1) - self.radius

    @property
    def boundary_measure(self) -> float:
        return 2 * math.pi ** (self.dim / 2) / math.gamma(self.dim / 2) * self.radius ** (self.dim - 1)

    def boundary_from_unit(self, unit: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if self.dim == 2:
            angle = 2 * math.pi * unit[:, 0]
            normals = torch.stack([angle.cos(), angle.sin()], 1)
        else:  # a normal vector has no preferred direction
            normals = torch.special.ndtri(unit.clamp(1e-12, 1 - 1e-12))
            normals = normals / normals.norm(dim=1, keepdim=True).clamp(min=1e-12)
        counts = (normals.norm(dim=1) - 1).abs() < 1e-9
        return self.center + self.radius * normals, normals, counts


class Disk(Hypersphere):
    """A ball in two dimensions.

    Example:
        >>> Disk((0, 0), 1.0).inside(torch.tensor([[0.5, 0.5], [1.0, 1.0]], dtype=torch.float64))
        tensor([ True, False])
    """

    def __init__(self, center: Sequence[float], radius: float) -> None:
        super().__init__(center, radius)
        if self.dim != 2:
            raise ValueError(f"center of a Disk must have 2 coordinates, got {self.dim}")


class Sphere(Hypersphere):
    """A ball in three dimensions.

    Example:
        >>> Sphere((0, 0, 0), 1.0).dim
        3
    """

    def __init__(self, center: Sequence[float], radius: float) -> None:
        super().__init__(center, radius)
        if self.dim != 3:
            raise ValueError(f"center of a Sphere must have 3 coordinates, got {self.dim}")


class Polygon(Geometry):
    """A polygon that does not cross itself; its vertices in either order.

    Example:
        >>> Polygon([(0, 0), (1, 0), (0, 1)]).inside(torch.tensor([[0.2, 0.2], [0.8, 0.8]], dtype=torch.float64))
        tensor([ True, False])
    """

    dim = 2

    def __init__(self, vertices: Sequence[Sequence[float]]) -> None:
        v = torch.tensor(vertices, dtype=torch.float64, device="cpu")
        if v.dim() != 2 or v.shape[1] != 2 or len(v) < 3:
            raise ValueError(f"vertices must be at least 3 points of the plane, got shape {tuple(v.shape)}")
        after = v.roll(-1, 0)
        if float((v[:, 0] * after[:, 1] - after[:, 0] * v[:, 1]).sum()) < 0:  # make it counter-clockwise
            v = v.flip(0)
        self.vertices = v
        self.edges = v.roll(-1, 0) - v
        self.low, self.high = v.amin(0), v.amax(0)

    def distance(self, x: Tensor) -> Tensor:
        to = x[:, None, :] - self.vertices
        share = ((to * self.edges).sum(2) / self.edges.square().sum(1)).clamp(0, 1)
        distance = (to - share[:, :, None] * self.edges).norm(dim=2).amin(1)
        # a ray to the right crosses the edges of a polygon around the point an odd number of times
        y, a, b = x[:, 1:2], self.vertices, self.vertices.roll(-1, 0)
        crossing = (a[:, 1] > y) != (b[:, 1] > y)
        at = a[:, 0] + (y - a[:, 1]) / torch.where(self.edges[:, 1] == 0, 1.0, self.edges[:, 1]) * self.edges[:, 0]
        odd = (crossing & (x[:, :1] < at)).sum(1) % 2 == 1
        return torch.where(odd, -distance, distance)

    @property
    def boundary_measure(self) -> float:
        return float(self.edges.norm(dim=1).sum())

    def boundary_from_unit(self, unit: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        lengths = self.edges.norm(dim=1)
        edge, share = _split(unit[:, 0], lengths)
        x = self.vertices[edge] + share[:, None] * self.edges[edge]
        tangent = self.edges[edge] / lengths[edge, None]
        normals = torch.stack([tangent[:, 1], -tangent[:, 0]], 1)
        return x, normals, torch.ones(len(x), dtype=torch.bool, device="cpu")


class _Combination(Geometry):
    def __init__(self, first: Geometry, second: Geometry) -> None:
        if first.dim != second.dim:
            raise ValueError(f"both geometries must have as many dimensions, got {first.dim} and {second.dim}")
        self.first, self.second, self.dim = first, second, first.dim

    @property
    def boundary_measure(self) -> float:
        return self.first.boundary_measure + self.second.boundary_measure

    def boundary_from_unit(self, unit: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        measures = torch.tensor(
            [self.first.boundary_measure, self.second.boundary_measure], dtype=torch.float64, device="cpu"
        )
        part, share = _split(unit[:, 0], measures)
        unit = torch.cat([share[:, None], unit[:, 1:]], 1)
        x, normals = torch.empty_like(unit), torch.empty_like(unit)
        counts = torch.empty(len(unit), dtype=torch.bool, device="cpu")
        for k, (one, other) in enumerate([(self.first, self.second), (self.second, self.first)]):
            here = part == k
            x[here], normals[here], counts[here] = one.boundary_from_unit(unit[here])
            counts[here] &= self._seen(k, other.distance(x[here]), TOLERANCE * other.scale)
            if k == 1:
                normals[here] *= self._sign
        return x, normals, counts

    _sign: float

    @abstractmethod
    def _seen(self, part: int, distance: Tensor, tolerance: float) -> Tensor:
        """Which points of one part's boundary are of the whole's, by their distance to the other part."""


class CSGDifference(_Combination):
    """What is in the first and not in the second.

    Example:
        >>> from madamoo.pinn import Disk, Rectangle
        >>> hole = Rectangle((0, 0), (2, 2)) - Disk((1, 1), 0.5)
        >>> type(hole).__name__, hole.inside(torch.tensor([[1.0, 1.0], [0.1, 0.1]], dtype=torch.float64))
        ('CSGDifference', tensor([False,  True]))
    """

    _sign = -1.0

    def __init__(self, first: Geometry, second: Geometry) -> None:
        super().__init__(first, second)
        self.low, self.high = first.low, first.high

    def distance(self, x: Tensor) -> Tensor:
        return torch.maximum(self.first.distance(x), -self.second.distance(x))

    def _seen(self, part: int, distance: Tensor, tolerance: float) -> Tensor:
        return distance > tolerance if part == 0 else distance < -tolerance


class CSGUnion(_Combination):
    """What is in either.

    Example:
        >>> from madamoo.pinn import Disk, Rectangle
        >>> both = Rectangle((0, 0), (1, 1)) + Disk((1, 1), 0.5)
        >>> type(both).__name__, both.inside(torch.tensor([[1.2, 1.2], [2.0, 2.0]], dtype=torch.float64))
        ('CSGUnion', tensor([ True, False]))
    """

    _sign = 1.0

    def __init__(self, first: Geometry, second: Geometry) -> None:
        super().__init__(first, second)
        self.low, self.high = torch.minimum(first.low, second.low), torch.maximum(first.high, second.high)

    def distance(self, x: Tensor) -> Tensor:
        return torch.minimum(self.first.distance(x), self.second.distance(x))

    def _seen(self, part: int, distance: Tensor, tolerance: float) -> Tensor:
        return distance > tolerance


def _split(unit: Tensor, measures: Tensor) -> tuple[Tensor, Tensor]:
    """Cut [0, 1) in parts of these sizes: the part of each number, and where in its part it is."""
    ends = measures.cumsum(0) / measures.sum()
    part = torch.searchsorted(ends, unit.contiguous(), right=True).clamp(max=len(measures) - 1)
    start = torch.cat([ends.new_zeros(1), ends[:-1]])
    return part, ((unit - start[part]) / (ends - start)[part]).clamp(0, 1)


class TimeDomain:
    """From a first to a last moment.

    Example:
        >>> from madamoo.pinn import Disk
        >>> (Disk((0, 0), 1.0) * TimeDomain(0, 1)).dim
        3
    """

    def __init__(self, t0: float, t1: float) -> None:
        if not t0 < t1:
            raise ValueError(f"t0 must be before t1, got {t0} and {t1}")
        self.t0, self.t1 = float(t0), float(t1)


class GeometryXTime:
    """A geometry over a time domain: time is the last coordinate. ``geometry * TimeDomain(0, 1)`` makes one.

    Example:
        >>> from madamoo.pinn import Interval
        >>> (Interval(0, 1) * TimeDomain(0, 2)).dim
        2
    """

    def __init__(self, geometry: Geometry, time: TimeDomain) -> None:
        if not isinstance(time, TimeDomain):
            raise TypeError(f"time must be a TimeDomain, got {type(time).__name__}")
        self.geometry, self.time, self.dim = geometry, time, geometry.dim + 1
        self.low = torch.cat([geometry.low, geometry.low.new_tensor([time.t0])])
        self.high = torch.cat([geometry.high, geometry.high.new_tensor([time.t1])])

    def random_points(self, count: int, sampler: str = "pseudo", generator: torch.Generator | None = None) -> Tensor:
        space = self.geometry

        def draw(size: int) -> Tensor:
            x = self.low + unit_points(size, self.dim, sampler, generator) * (self.high - self.low)
            return x[space.distance(x[:, :-1]) < -TOLERANCE * space.scale]

        return _until(draw, count, f"the interior of {type(space).__name__}")

    def random_boundary_points(
        self, count: int, sampler: str = "pseudo", generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """Points of the boundary in space at all times; the normals have no part along the time axis."""
        space = self.geometry

        def draw(size: int) -> Tensor:
            unit = unit_points(size, self.dim, sampler, generator)
            x, normals, counts = space.boundary_from_unit(unit[:, 1:] if sampler == "hammersley" else unit[:, :-1])
            # Hammersley's first column is sorted: as the place on the boundary it would tie place to time
            moment = unit[:, :1] if sampler == "hammersley" else unit[:, -1:]
            t = self.time.t0 + moment * (self.time.t1 - self.time.t0)
            return torch.cat([x, t, normals, torch.zeros_like(t)], 1)[counts]

        both = _until(draw, count, f"the boundary of {type(space).__name__}")
        return both[:, : self.dim], both[:, self.dim :]

    def random_initial_points(
        self, count: int, sampler: str = "pseudo", generator: torch.Generator | None = None
    ) -> Tensor:
        """Points of the interior at the first moment."""
        x = self.geometry.random_points(count, sampler, generator)
        return torch.cat([x, x.new_full((count, 1), self.time.t0)], 1)
