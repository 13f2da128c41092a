"""Domains: points inside, points on the boundary, and normals, by the divergence theorem."""

import math

import pytest
import torch

from madamoo.pinn import (
    CSGUnion,
    Cuboid,
    Disk,
    GeometryXTime,
    Hypercube,
    Hypersphere,
    Interval,
    Polygon,
    Rectangle,
    Sphere,
    TimeDomain,
)

STEP = Polygon([(0, 0), (4, 0), (4, 2), (2, 2), (2, 1), (0, 1)])
HOLES = Rectangle((-1, -1), (1, 1)) - Disk((0.5, 0.5), 0.2) - Disk((0.4, -0.4), 0.4)
BITE = Rectangle((0, 0), (1, 1)) - Disk((1, 1), 0.5)
PAIR = Disk((0, 0), 1) + Disk((1, 0), 1)
LENS = 2 * math.pi / 3 - math.sqrt(3) / 2

# geometry, volume, boundary
SHAPES = {
    "interval": (Interval(-1, 3), 4, 2),
    "rectangle": (Rectangle((0, 1), (2, 2)), 2, 6),
    "cuboid": (Cuboid((0, 0, 0), (1, 2, 3)), 6, 22),
    "five": (Hypercube([0] * 5, [1] * 5), 1, 10),
    "disk": (Disk((1, 2), 0.5), math.pi / 4, math.pi),
    "sphere": (Sphere((1, 0, 0), 2), 32 * math.pi / 3, 16 * math.pi),
    "ball": (Hypersphere([0] * 5, 1), 8 * math.pi**2 / 15, 8 * math.pi**2 / 3),
    "step": (STEP, 6, 12),
    "clockwise": (Polygon([(0, 0), (0, 1), (1, 0)]), 0.5, 2 + math.sqrt(2)),
    "holes": (HOLES, 4 - math.pi * 0.2, 8 + 1.2 * math.pi),
    "bite": (BITE, 1 - math.pi / 16, 3 + math.pi / 4),
    "pair": (PAIR, 2 * math.pi - LENS, 8 * math.pi / 3),
}


@pytest.mark.parametrize("name", SHAPES)
def test_points_and_normals(name: str):
    geometry, volume, surface = SHAPES[name]
    for sampler in ("pseudo", "hammersley", "lhs"):
        generator = torch.Generator().manual_seed(0)
        inner = geometry.random_points(2000, sampler, generator)
        assert inner.shape == (2000, geometry.dim) and bool(geometry.inside(inner).all())
        assert not bool(geometry.on_boundary(inner).any())
        x, normals = geometry.random_boundary_points(4000, sampler, generator)
        assert x.shape == normals.shape == (4000, geometry.dim)
        assert bool(geometry.on_boundary(x).all())
        torch.testing.assert_close(normals.norm(dim=1), torch.ones(4000, dtype=torch.float64))
        small = 1e-4 * geometry.scale
        # corners apart, a step along the normal leaves the domain and one against it enters
        assert (geometry.distance(x + small * normals) > 0).double().mean() > 0.99
        assert (geometry.distance(x - small * normals) < 0).double().mean() > 0.99
        # divergence theorem: the flux of x - c through the boundary is dim times the volume, for any c
        for c in (0.0, 1.0):
            flux = ((x - c) * normals).sum(1).mean() * surface
            assert abs(float(flux) - geometry.dim * volume) < 0.06 * (geometry.dim * volume + c * surface), sampler
    # the share of the bounding box that is inside gives the volume again
    box = geometry.low + torch.rand(40000, geometry.dim, dtype=torch.float64, generator=generator) * (
        geometry.high - geometry.low
    )
    whole = float((geometry.high - geometry.low).prod())
    assert abs(float(geometry.inside(box).double().mean()) * whole - volume) < 0.02 * whole


def test_in_time():
    domain = HOLES * TimeDomain(1, 3)
    assert isinstance(domain, GeometryXTime) and domain.dim == 3
    for sampler in ("pseudo", "hammersley", "sobol"):
        inner = domain.random_points(500, sampler)
        x, normals = domain.random_boundary_points(500, sampler)
        start = domain.random_initial_points(500, sampler)
        assert bool(HOLES.inside(inner[:, :2]).all()) and bool(HOLES.on_boundary(x[:, :2]).all())
        assert bool((start[:, 2] == 1).all()) and bool((normals[:, 2] == 0).all())
        for times in (inner[:, 2], x[:, 2]):
            assert float(times.min()) >= 1 and float(times.max()) <= 3 and abs(float(times.mean()) - 2) < 0.1
        assert abs(float(torch.corrcoef(torch.stack([x[:, 0], x[:, 2]]))[0, 1])) < 0.2  # place is not tied to time


def test_bad_geometries():
    with pytest.raises(ValueError, match="xmin must be below xmax"):
        Interval(1, 0)
    with pytest.raises(ValueError, match="radius must be positive, got 0"):
        Disk((0, 0), 0)
    with pytest.raises(ValueError, match="center of a Disk must have 2 coordinates, got 3"):
        Disk((0, 0, 0), 1)
    with pytest.raises(ValueError, match="at least 3 points"):
        Polygon([(0, 0), (1, 1)])
    with pytest.raises(ValueError, match="as many dimensions, got 2 and 3"):
        CSGUnion(Disk((0, 0), 1), Sphere((0, 0, 0), 1))
    with pytest.raises(ValueError, match="t0 must be before t1"):
        TimeDomain(1, 1)
    with pytest.raises(ValueError, match="is it empty"):
        (Disk((0, 0), 1) - Disk((0, 0), 2)).random_points(10)
