"""Spectral solutions: closed forms, symmetry, and the order of the time steps."""

import numpy as np
import pytest

from madamoo.pinn.references import burgers_2d, etdrk4, gray_scott, heat_with_source, kuramoto_sivashinsky

PI = np.pi


def rate(errors):
    """By what power of two each error is smaller than the one before."""
    return np.log2(np.array(errors[:-1]) / np.array(errors[1:]))


def test_the_time_steps_are_of_fourth_order():
    """v' = -v + v^2 (logistic) beside a stiff linear mode."""
    linear = np.array([-1.0, -1000.0])

    def nonlinear(v, t):
        return np.array([v[0] ** 2, np.cos(t)])

    start = np.array([0.5, 0.0])
    exact = 1 / (1 + np.exp(1.0))
    errors = [abs(etdrk4(linear, nonlinear, start, [0.0, 1.0], h)[-1][0] - exact) for h in (0.2, 0.1, 0.05, 0.025)]
    assert (rate(errors) > 3.7).all()
    stiff = etdrk4(linear, nonlinear, start, [0.0, 0.37, 1.0], 0.05)
    assert len(stiff) == 3
    assert abs(stiff[1][1] - (1000 * np.cos(0.37) + np.sin(0.37)) / (1e6 + 1)) < 1e-8


def test_kuramoto_sivashinsky_grows_as_its_linear_part_and_converges():
    small = 1e-7
    x, u = kuramoto_sivashinsky(lambda x: small * np.cos(3 * x), [0.0, 0.5], n=64, step=1e-2)
    growth = np.exp(0.5 * (9 * 100 / 256 - 81 * 100 / 65536))
    np.testing.assert_allclose(u[1], small * growth * np.cos(3 * x), atol=small * 1e-4)

    def end(step, n=128):
        return kuramoto_sivashinsky(lambda x: np.cos(x) * (1 + np.sin(x)), [0.0, 0.2], n, step)[1][-1]

    finest = end(2.5e-4)
    assert rate([np.linalg.norm(end(h) - finest) for h in (4e-3, 2e-3, 1e-3)]).mean() > 3.4
    assert np.linalg.norm(end(5e-4, 256)[::2] - end(5e-4)) < 2e-3 * np.linalg.norm(finest)


def test_burgers_in_one_direction_is_the_travelling_front():
    """Cole-Hopf: a front (1 - tanh((x - t / 2) / 4 nu)) / 2, and far from it one the other way round."""
    nu, length = 0.02, 4.0

    def front(x, t):
        return 0.5 * (np.tanh((x - 0.5) / (4 * nu)) - np.tanh((x - 2.5 - t / 2) / (4 * nu)))

    errors = []
    for n in (64, 128):
        x, u = burgers_2d(lambda x, y: (0 * x, front(y, 0.0)), [0.0, 0.4], n, 5e-3, nu, length)
        near = (x > 2) & (x < 3.5)  # the other side is a rarefaction
        errors.append(abs(u[1, 1][:, near] - front(x, 0.4)[near]).max())
        assert abs(u[1, 0]).max() < 1e-12
    assert errors[1] < 1e-2 and errors[1] < errors[0] / 4


def test_gray_scott_without_space_is_its_ordinary_differential_equation():
    from scipy.integrate import solve_ivp

    _, found = gray_scott(lambda x, y: (0 * x + 0.6, 0 * x + 0.3), [0.0, 30.0], n=8, step=0.25)
    wanted = solve_ivp(
        lambda t, w: [0.04 * (1 - w[0]) - w[0] * w[1] ** 2, -0.1 * w[1] + w[0] * w[1] ** 2],
        (0, 30),
        [0.6, 0.3],
        rtol=1e-10,
        atol=1e-12,
    ).y[:, -1]
    np.testing.assert_allclose(found[1, :, 3, 5], wanted, rtol=1e-6)


def test_heat_by_sine_series_is_exact_on_a_sine():
    x, u = heat_with_source(
        lambda x, y: np.sin(PI * x) * np.sin(2 * PI * y), lambda u, x, y, t: u * 0, [0.0, 1.0], 16, 0.1, 0.1
    )
    wanted = np.exp(-0.5 * PI**2) * np.outer(np.sin(PI * x), np.sin(2 * PI * x))
    np.testing.assert_allclose(u[1], wanted, atol=1e-12)
    # and u_t = u^2 where nothing diffuses
    x, u = heat_with_source(lambda x, y: x * y, lambda u, x, y, t: u**2, [0.0, 0.5], 8, 0.02, 0.0)
    v = np.outer(x, x)
    np.testing.assert_allclose(u[1], v / (1 - v / 2), rtol=1e-5)


def test_waves_in_a_uniform_medium_and_their_order():
    from madamoo.pinn.references import heterogeneous_wave

    errors = []
    for n in (16, 32, 64):
        x, u = heterogeneous_wave(
            lambda x, y: 0 * x + 3.0, lambda x, y: np.cos(PI * (x + 1) / 2) * np.cos(PI * (y + 1)), [0.0, 0.5, 1.0], n
        )
        wanted = np.outer(np.cos(PI * (x + 1) / 2), np.cos(PI * (x + 1))) * np.cos(np.sqrt(3 * 1.25) * PI * 1.0)
        errors.append(np.linalg.norm(u[2] - wanted) / n)
    assert (rate(errors) > 1.8).all() and errors[-1] < 1e-4
    with pytest.raises(ValueError, match="evenly spaced"):
        heterogeneous_wave(lambda x, y: 0 * x + 1, lambda x, y: x, [0.0, 0.1, 1.0], 8)
