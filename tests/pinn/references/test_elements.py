"""Finite elements: manufactured solutions on curved domains converge at the method's order."""

import numpy as np
import pytest

from madamoo.pinn.references import (
    Dirichlet,
    Robin,
    channel_flow,
    disk_mesh,
    heat_2d,
    poisson_2d,
    poisson_3d,
    square_mesh,
    steady_flow,
)

PI = np.pi


def rate(errors):
    return np.log2(np.array(errors[:-1]) / np.array(errors[1:]))


def everywhere(x):
    return x[0] > -np.inf


def inner(x):
    return np.hypot(*x) < 0.6


def test_a_hole_is_round():
    """The area within a mesh of straight triangles is off by h^2, within one of curved ones by h^4."""
    from skfem import Basis, Functional
    from skfem.element import ElementTriP2

    off = []
    for size in (0.4, 0.2, 0.1):
        basis = Basis(disk_mesh((-1, -1), (1, 1), [(0, 0, 0.5)], size), ElementTriP2())
        area = Functional(lambda w: 1 + 0 * w.x[0]).assemble(basis)
        off.append(abs(area - (4 - PI / 4)))
    assert off[1] < 1e-3 and off[2] < 1e-5


def test_poisson_around_a_hole():
    """log r + y^2: its Laplacian is 2, its values are given on the hole and on the square."""

    def exact(x):
        return np.log(np.hypot(*x)) + x[1] ** 2

    errors = []
    for size in (0.5, 0.25, 0.125):
        mesh = disk_mesh((-1, -1), (1, 1), [(0, 0, 0.5)], size)
        conditions = [Dirichlet(inner, exact), Dirichlet(lambda x: ~inner(x), exact)]
        points, u = poisson_2d(mesh, lambda x: 3 * exact(x) - 2, conditions, reaction=lambda x: 3 + 0 * x[0])
        assert points.shape == (len(u), 2) and abs(np.hypot(*points.T)).min() > 0.5 - 1e-12
        errors.append(np.sqrt(np.mean((u - exact(points.T)) ** 2)))
    assert rate(errors).mean() > 2.7 and errors[-1] < 1e-4


def test_poisson_on_a_square_is_of_third_order_in_the_mean():
    errors = []
    for cells in (4, 8, 16):
        mesh = square_mesh((0, 0), (1, 1), (cells, cells))
        points, u = poisson_2d(
            mesh,
            lambda x: (5 * PI**2 + 2) * np.sin(PI * x[0]) * np.sin(2 * PI * x[1]),
            [Dirichlet(everywhere)],
            reaction=lambda x: 2 + 0 * x[0],
        )
        errors.append(np.sqrt(np.mean((u - np.sin(PI * points[:, 0]) * np.sin(2 * PI * points[:, 1])) ** 2)))
    assert (rate(errors) > 2.8).all()


def test_robin_conditions():
    """-u'' = 0 in x with u' = u at the left (du/dn = -u) and du/dn = 3 - u at the right: u = 1 + x."""
    mesh = square_mesh((0, 0), (1, 1), (3, 3))
    points, u = poisson_2d(
        mesh, lambda x: 0 * x[0], [Robin(lambda x: x[0] < 1e-9, 0.0), Robin(lambda x: x[0] > 1 - 1e-9, 3.0)]
    )
    np.testing.assert_allclose(u, 1 + points[:, 0], atol=1e-12)
    with pytest.raises(ValueError, match="no facet of the boundary fulfils 'on'"):
        poisson_2d(mesh, lambda x: 0 * x[0], [Robin(lambda x: x[0] > 2)])


def test_poisson_in_three_dimensions():
    """cos(pi x) cos(pi y) has no flux through a cube; a constant solves -Lap u + 4 u = 4 around any hole."""
    from skfem import MeshTet, MeshTet2

    errors = []
    for cells in (2, 4):
        side = np.linspace(0, 1, cells + 1)
        points, u = poisson_3d(
            MeshTet2.from_mesh(MeshTet.init_tensor(side, side, side)),
            lambda x: (2 * PI**2 + 9) * np.cos(PI * x[0]) * np.cos(PI * x[1]),
            [],
            reaction=lambda x: 9 + 0 * x[0],
        )
        errors.append(np.sqrt(np.mean((u - np.cos(PI * points[:, 0]) * np.cos(PI * points[:, 1])) ** 2)))
    assert rate(errors)[0] > 2.5
    points, u = poisson_3d(
        disk_mesh((0, 0, 0), (1, 1, 1), [(0.5, 0.5, 0.5, 0.2)], 0.5), lambda x: 4 + 0 * x[0], [], lambda x: 4 + 0 * x[0]
    )
    np.testing.assert_allclose(u, 1.0, atol=1e-8)
    distance = np.linalg.norm(points - 0.5, axis=1)
    assert distance.min() > 0.2 - 1e-12 and (abs(distance - 0.2) < 1e-12).sum() > 20


def test_heat_is_of_second_order_in_time():
    """u = cos(pi x) (1 + t^2) sin t with capacity 2 on a square without flux."""
    mesh = square_mesh((0, 0), (1, 1), (12, 2))

    def value(t):
        return (1 + t**2) * np.sin(t)

    def source(x, t):
        slope = 2 * t * np.sin(t) + (1 + t**2) * np.cos(t)
        return (2 * slope + PI**2 * value(t)) * np.cos(PI * x[0])

    errors, times = [], [0.0, 1.0, 2.0, 3.0, 4.0]
    for step in (0.5, 0.25, 0.125):
        points, u = heat_2d(mesh, source, [], times, step, capacity=lambda x: 2 + 0 * x[0])
        wanted = value(np.array(times))[:, None] * np.cos(PI * points[:, 0])
        errors.append(np.linalg.norm(u - wanted) / np.linalg.norm(wanted))
    assert rate(errors).mean() > 1.8 and errors[-1] < 1e-3
    # what is held on the boundary stays there, and is reached
    points, u = heat_2d(mesh, None, [Dirichlet(everywhere, 2.0)], [0.0, 5.0], 0.5)
    np.testing.assert_allclose(u[1], 2.0, atol=1e-6)


def test_steady_flow_in_a_channel_is_poiseuilles():
    mesh = square_mesh((0, 0), (2, 1), (8, 4))
    nu = 0.05

    def profile(x):
        return np.stack([4 * x[1] * (1 - x[1]), 0 * x[0]])

    points, w = steady_flow(mesh, lambda x: x[0] < 2 - 1e-9, profile, nu)
    np.testing.assert_allclose(w[:, 0], profile(points.T)[0], atol=1e-10)
    np.testing.assert_allclose(w[:, 1], 0.0, atol=1e-10)
    np.testing.assert_allclose(w[:, 2], 8 * nu * (2 - points[:, 0]), atol=1e-9)


def test_unsteady_flow_is_of_second_order_in_time():
    """A shear u = sin(pi y) sin t, driven by its own force; the outlet is free of stress."""
    nu = 0.1
    mesh = square_mesh((0, 0), (1, 1), (3, 16))

    def velocity(x, t):
        return np.stack([np.sin(PI * x[1]) * np.sin(t), 0 * x[0]])

    def force(x, t):
        return np.stack([np.sin(PI * x[1]) * (np.cos(t) + nu * PI**2 * np.sin(t)), 0 * x[0]])

    errors = []
    for step in (0.5, 0.25, 0.125):
        points, w = channel_flow(mesh, lambda x: x[0] < 1 - 1e-9, velocity, force, nu, [0.0, 1.0, 2.0, 3.0], step)
        errors.append(max(abs(w[k, :, 0] - velocity(points.T, k)[0]).max() for k in (1, 2, 3)))
    assert rate(errors).mean() > 1.7 and errors[-1] < 3e-3
    np.testing.assert_allclose(w[3, :, 1:], 0.0, atol=0.02)
