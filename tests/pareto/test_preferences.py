from itertools import product
from math import comb

import pytest
import torch

from madamoo.pareto import lattice, rays


@pytest.mark.parametrize("n_objectives, order", [(2, 1), (2, 10), (3, 1), (3, 10), (4, 5), (7, 3)])
def test_lattice_has_all_points_once_in_order(n_objectives, order):
    points = torch.round(lattice(n_objectives, order).double() * order).int().tolist()
    every = [p for p in product(range(order, -1, -1), repeat=n_objectives) if sum(p) == order]
    assert [tuple(p) for p in points] == every  # product descends lexicographically
    assert len(points) == comb(order + n_objectives - 1, n_objectives - 1)


def test_lattice_of_the_recipe():
    points = lattice(3, 10)
    assert points.shape == (66, 3) and points.dtype == torch.get_default_dtype()
    torch.testing.assert_close(points.sum(1), torch.ones(66))
    assert points[0].tolist() == [1.0, 0.0, 0.0] and points[-1].tolist() == [0.0, 0.0, 1.0]


@pytest.mark.parametrize("count", [2, 5, 11, 24])
def test_rays_of_two_objectives_are_evenly_spaced(count):
    points = rays(2, count)
    assert points.shape == (count, 2)
    assert points[0].tolist() == [1.0, 0.0] and points[-1].tolist() == [0.0, 1.0]
    torch.testing.assert_close(points[:, 1], torch.linspace(0, 1, count))
    torch.testing.assert_close(points.sum(1), torch.ones(count))


@pytest.mark.parametrize("n_objectives", [3, 7])
def test_one_hot_rays_and_the_uniform_one(n_objectives):
    points = rays(n_objectives, n_objectives + 1)
    assert torch.equal(points[:-1], torch.eye(n_objectives))
    torch.testing.assert_close(points[-1], torch.full((n_objectives,), 1 / n_objectives))


@pytest.mark.parametrize("n_objectives, order", [(3, 1), (3, 10), (4, 3), (7, 2)])
def test_rays_that_fill_a_lattice(n_objectives, order):
    points = lattice(n_objectives, order)
    assert torch.equal(rays(n_objectives, len(points)), points)


@pytest.mark.parametrize(
    "n_objectives, count, nearest",
    [(3, 11, "10 and 15"), (3, 5, "4 and 6"), (7, 11, "8 and 28"), (7, 5, "7"), (3, 65, "55 and 66")],
)
def test_other_counts_are_refused_and_the_nearest_named(n_objectives, count, nearest):
    with pytest.raises(ValueError, match=f"got {count}; the nearest are {nearest}$"):
        rays(n_objectives, count)


@pytest.mark.parametrize("bad", [0, -1, 1.5, True, "3", None])
def test_bad_numbers_are_named(bad):
    for call, name in [
        (lambda: rays(bad, 11), "n_objectives"),
        (lambda: rays(2, bad), "count"),
        (lambda: lattice(bad, 3), "n_objectives"),
        (lambda: lattice(3, bad), "order"),
    ]:
        with pytest.raises(ValueError, match=rf"{name} must be an integer of at least \d, got {bad!r}"):
            call()


def test_default_dtype_is_followed():
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        assert rays(2, 11).dtype == rays(3, 4).dtype == lattice(3, 2).dtype == torch.float64
        assert rays(2, 11)[3].tolist() == [7 / 10, 3 / 10]
    finally:
        torch.set_default_dtype(before)
