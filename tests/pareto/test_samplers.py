import copy
import io
import math
import pickle

import numpy as np
import pytest
import torch
from scipy import stats

from madamoo.pareto import AnnealedDirichlet, DeterministicAnnealing, Dirichlet, FixedRays, Uniform, lattice

SAMPLERS = {
    "uniform": lambda **o: Uniform(3, count=2, **o),
    "dirichlet": lambda **o: Dirichlet(3, [0.5, 1.0, 4.0], count=2, **o),
    "annealed": lambda **o: AnnealedDirichlet(3, 2.0, count=2, **o),
    "deterministic": lambda: DeterministicAnnealing(3, count=4),
    "deterministic, two": lambda: DeterministicAnnealing(2, count=5),
    "fixed": lambda **o: FixedRays(lattice(3, 2), count=4, **o),
    "fixed, in order": lambda **o: FixedRays(lattice(3, 2), count=4, shuffle=False, **o),
}
RANDOM = ["uniform", "dirichlet", "annealed", "fixed"]


def draws(sampler, steps, total=None):
    return torch.stack([sampler(t / (total or steps)) for t in range(steps)])


def many(sampler, progress):
    """One step with very many rays."""
    sampler.count = 20_000
    return sampler(progress).double()


def test_rays_lie_on_the_simplex():
    for name in SAMPLERS:
        sampler = SAMPLERS[name]()
        for t in (0.0, 0.3, 0.99, 1.0, 1):
            found = sampler(t)
            assert found.shape == (sampler.count, sampler.n_objectives) and found.dtype == torch.get_default_dtype()
            assert bool((found >= 0).all())
            torch.testing.assert_close(found.sum(1), torch.ones(sampler.count))


@pytest.mark.parametrize("name", SAMPLERS)
def test_resuming_gives_the_same_draws(name):
    sampler = SAMPLERS[name]()
    draws(sampler, 7)
    file = io.BytesIO()
    torch.save(sampler.state_dict(), file)
    file.seek(0)
    expected = draws(sampler, 40)
    again = SAMPLERS[name](**({"seed": 5} if name in RANDOM else {}))
    draws(again, 3)
    again.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(draws(again, 40), expected)


def test_a_state_is_not_changed_by_later_draws():
    for name in SAMPLERS:
        sampler = SAMPLERS[name]()
        state = sampler.state_dict()
        before = copy.deepcopy(state)
        draws(sampler, 3)
        assert str(before) == str(state) and torch.equal(before["generator"], state["generator"])
        again = pickle.loads(pickle.dumps(sampler))
        assert torch.equal(draws(again, 5), draws(sampler, 5))


@pytest.mark.parametrize("name", RANDOM)
def test_the_seed_alone_decides(name):
    torch.manual_seed(0)
    first = draws(SAMPLERS[name](seed=3), 10)
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    assert torch.equal(draws(SAMPLERS[name](seed=3), 10), first)
    assert torch.equal(torch.random.get_rng_state(), before)  # the global generator is left alone
    assert not torch.equal(draws(SAMPLERS[name](seed=4), 10), first)


@pytest.mark.parametrize("n_objectives", [2, 3, 7])
def test_uniform_is_uniform(n_objectives):
    """Each coordinate of a uniform point of the simplex is Beta(1, C - 1)."""
    found = many(Uniform(n_objectives), 0.5).numpy()
    for column in found.T:
        assert stats.kstest(column, stats.beta(1, n_objectives - 1).cdf).pvalue > 1e-3


@pytest.mark.parametrize("concentration", [[0.001] * 3, [0.01, 0.02, 0.07], [0.5, 1.0, 4.0], [30.0, 10.0, 60.0]])
def test_dirichlet_has_its_moments(concentration):
    p = torch.tensor(concentration, dtype=torch.float64)
    found = many(Dirichlet(3, concentration), 0.5)
    mean = p / p.sum()
    covariance = (mean.diag() - mean.outer(mean)) / (p.sum() + 1)
    sigma = covariance.diag().sqrt() / len(found) ** 0.5
    assert bool(((found.mean(0) - mean).abs() < 5 * sigma).all())
    # A variance has a relative error of at most sqrt((kurtosis - 1) / N).
    for k in range(3):
        kurtosis = float(stats.beta(p[k], p.sum() - p[k]).stats(moments="k")) + 3
        assert abs(found.var(0)[k] / covariance[k, k] - 1) < 5 * (kurtosis / len(found)) ** 0.5
    torch.testing.assert_close(found.T.cov(), covariance, atol=0.01, rtol=0)


@pytest.mark.parametrize("concentration", [0.3, 1.0, 2.5])
def test_dirichlet_has_its_distribution(concentration):
    found = many(Dirichlet(4, concentration), 0.0).numpy()
    for column in found.T:
        assert stats.kstest(column, stats.beta(concentration, 3 * concentration).cdf).pvalue > 1e-3


@pytest.mark.parametrize("concentration", [5e-324, 1e-200, 1e-3, 1e6, 1e300])
def test_no_concentration_breaks_it(concentration):
    for sampler in (Dirichlet(3, concentration, count=1000), AnnealedDirichlet(3, concentration, count=1000)):
        for t in (0.0, 1.0):
            found = sampler(t)
            assert bool((torch.isfinite(found) & (found >= 0)).all())
            torch.testing.assert_close(found.sum(1), torch.ones(1000))


def test_corners_come_in_the_right_proportions():
    found = many(Dirichlet(3, [1e-6, 2e-6, 7e-6]), 0.0)
    assert float(found.amax(1).min()) > 0.99
    shares = torch.bincount(found.argmax(1), minlength=3) / len(found)
    torch.testing.assert_close(shares, torch.tensor([0.1, 0.2, 0.7]), atol=0.015, rtol=0)


@pytest.mark.parametrize("progress", [0.0, 0.25, 0.9, 1.0])
def test_annealing_follows_its_formula(progress):
    p = torch.tensor([1.0, 3.0], dtype=torch.float64) * (1 - progress) + 0.001
    found = many(AnnealedDirichlet(2, [1.0, 3.0]), progress)[:, 0]
    variance = float(p[0] * p[1] / (p.sum() ** 2 * (p.sum() + 1)))
    assert float(found.mean()) == pytest.approx(float(p[0] / p.sum()), abs=5 * (variance / 20_000) ** 0.5)
    assert float(found.var()) == pytest.approx(variance, rel=0.06)


def test_annealing_spreads_towards_the_corners():
    spread = [float(many(AnnealedDirichlet(3, 5.0), t).amax(1).mean()) for t in (0.0, 0.5, 0.9, 1.0)]
    assert spread == sorted(spread) and spread[0] < 0.55 and spread[-1] > 0.99


def test_deterministic_annealing_of_two_objectives():
    for progress in [0.0, 0.1, 0.6, 1.0]:
        for count in [2, 3, 5, 25]:
            sampler = DeterministicAnnealing(2, count)
            x = np.linspace(0.01, 0.99, count)
            expected = np.stack([x, 1 - x], axis=1) ** (5 * progress)
            expected /= expected.sum(axis=1, keepdims=True)
            for _ in range(3):  # the same in every step
                np.testing.assert_allclose(sampler(progress).double(), expected, atol=1e-6)


def test_deterministic_annealing_starts_in_the_middle():
    for n_objectives, count in ((2, 5), (3, 4), (7, 3)):
        found = DeterministicAnnealing(n_objectives, count)(0.0)
        torch.testing.assert_close(found, torch.full((count, n_objectives), 1 / n_objectives))


@pytest.mark.parametrize("count", [2, 3, 7, 8])
def test_deterministic_annealing_covers_the_whole_simplex(count):
    """At a power of 1 the rays are the lattice itself: every part of the triangle has its share, inside and edges."""
    sampler = DeterministicAnnealing(3, count)
    steps = 91 // math.gcd(91, count)
    found = torch.cat([sampler(0.2) for _ in range(steps)]).double()
    expected = 0.98 * lattice(3, 12).double() + 0.02 / 3
    seen = torch.cdist(expected, found) < 1e-5
    assert bool((seen.sum(1) == steps * count / 91).all())  # each as often as any other
    torch.testing.assert_close(found.mean(0), torch.full((3,), 1 / 3, dtype=torch.float64), atol=1e-6, rtol=0)
    # At the end too: the corners, the middle, and the middle of every edge.
    late = torch.cat([sampler(1.0) for _ in range(steps)])
    for target in (*torch.eye(3), torch.full((3,), 1 / 3), *(0.5 - torch.eye(3) / 2)):
        assert float((late - target).norm(dim=1).min()) < 0.2


@pytest.mark.parametrize("n_objectives, count", [(3, 2), (3, 3), (4, 3), (7, 4)])
def test_the_rays_of_a_step_are_far_from_each_other(n_objectives, count):
    """Farther than as many points of the same lattice drawn at random."""
    sampler = DeterministicAnnealing(n_objectives, count)
    steps = len(sampler.points)
    apart = np.mean([float(torch.pdist(sampler(0.2)).min()) for _ in range(steps)])
    generator = torch.Generator().manual_seed(0)
    subsets = [sampler.points[torch.randperm(steps, generator=generator)[:count]] for _ in range(500)]
    by_chance = np.mean([float(torch.pdist(points).min()) for points in subsets])
    assert apart > 1.15 * by_chance


def test_the_order_of_the_lattice():
    assert DeterministicAnnealing(3, 4).order == 12
    assert DeterministicAnnealing(7, 4).order == 3  # 84 points; the next has 210
    assert DeterministicAnnealing(20, 4).order == 2
    assert DeterministicAnnealing(3, 92).order == 13  # at least count
    assert len(DeterministicAnnealing(2, 3, order=10).points) == 11
    sampler = DeterministicAnnealing(3, 6, order=2)
    assert torch.equal(sampler(0.7), sampler(0.7))  # the whole lattice each time
    with pytest.raises(ValueError, match="the lattice of order 2 has 6 points, count must not exceed it: 7"):
        DeterministicAnnealing(3, 7, order=2)


def test_fixed_rays_come_once_before_any_comes_again():
    for shuffle in [True, False]:
        for count in [1, 2, 4, 7, 11]:
            rays = lattice(3, 2)
            sampler = FixedRays(rays, count, shuffle)
            found = torch.cat([sampler(0.0) for _ in range(6)])
            order = (torch.cdist(found, rays) < 1e-6).int().argmax(1)
            passes = [order[k : k + 6].tolist() for k in range(0, 6 * count, 6)]
            assert all(sorted(p) == list(range(6)) for p in passes)
            if not shuffle:
                assert all(p == list(range(6)) for p in passes)
            elif len(passes) > 3:
                assert len(set(map(tuple, passes))) > 1


def test_fixed_rays_are_divided_by_their_sums():
    sampler = FixedRays([[1, 3], [1e308, 1e308]], count=2, shuffle=False)
    torch.testing.assert_close(sampler(0.0), torch.tensor([[0.25, 0.75], [0.5, 0.5]]))


def test_progress_is_checked():
    for name in SAMPLERS:
        for progress in [-0.1, 1.01, float("nan")]:
            with pytest.raises(ValueError, match="progress must lie between 0 and 1"):
                SAMPLERS[name]()(progress)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Uniform(1), "n_objectives must be an integer of at least 2, got 1"),
        (lambda: Uniform(2, count=0), "count must be an integer of at least 1, got 0"),
        (lambda: Dirichlet(3, 0.0), "concentration must be positive and finite, got 0.0"),
        (lambda: Dirichlet(3, [1.0, float("inf"), 1.0]), "concentration must be positive and finite"),
        (lambda: Dirichlet(3, [1.0, 1.0]), "concentration must be one number or 3, got"),
        (lambda: DeterministicAnnealing(2, 1), "count must be an integer of at least 2, got 1"),
        (lambda: FixedRays([0.5, 0.5]), r"rays must have the shape \[rays, objectives\], got \[2\]"),
        (lambda: FixedRays([[0.5, -0.5]]), "rays must be finite and not negative"),
        (lambda: FixedRays([[1.0, 0.0], [0.0, 0.0]]), "rays must not have a row of zeros"),
    ],
)
def test_bad_arguments_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_state_of_another_sampler_is_refused():
    with pytest.raises(ValueError, match="a sampler with n_objectives=2, this one has 3"):
        Uniform(3).load_state_dict(Uniform(2).state_dict())
    with pytest.raises(ValueError, match="a sampler with count=2, this one has 1"):
        Uniform(3).load_state_dict(Uniform(3, count=2).state_dict())
    with pytest.raises(ValueError, match="a sampler with order=4, this one has 5"):
        DeterministicAnnealing(3, order=5).load_state_dict(DeterministicAnnealing(3, order=4).state_dict())
    longer = FixedRays(lattice(2, 8), shuffle=False)
    longer(0.0)
    with pytest.raises(ValueError, match="more than the 2 rays of this one"):
        FixedRays(lattice(2, 1)).load_state_dict(longer.state_dict())
