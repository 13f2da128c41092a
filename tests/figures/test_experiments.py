"""The runs behind the figures, against closed forms and a second way to compute the same steps."""

import numpy as np
import pytest
import torch

from madamoo.figures import experiments as lab
from madamoo.figures.experiments import (
    ADAM,
    ADAMS,
    CONDITIONED,
    CONTROL,
    EUCLIDEAN,
    EXACT,
    EXECUTED,
    MADAM,
    NOISE,
    PAPER,
    RAMPED,
    UNEVEN,
    VARIANTS,
    A,
    B,
    alternating,
    census_starts,
    descend,
    gap,
    gradients,
    optimum,
    signed_effects,
    switching,
)

PREFERENCES = [(1.0, 0.0), A, (0.5, 0.5), B]
STARTS = [(0.0, 2.5), (-2.0, -1.0), (1.0, -2.5)]
MIXED = [A] * 7 + [B] * 6 + [(0.5, 0.5)] * 4


def losses(x):
    """The paper's formulas, written out."""
    x1, x2 = x[..., 0], x[..., 1]
    return np.stack(
        [
            0.55 * (x1 - 1.5) ** 2 + 0.9 * (x1 - 1.5) * x2 + 0.55 * x2**2,
            0.55 * (x1 + 1.5) ** 2 - 0.9 * (x1 + 1.5) * x2 + 0.55 * x2**2,
        ],
        axis=-1,
    )


def by_hand(variant, start, schedule, rate, noise=None):
    """Path [step, 2] of the optimizers as the paper and Adam's paper write them, in numpy."""
    chosen = VARIANTS[variant]
    plain = variant == PAPER
    x, m, v, average, F = np.array(start), np.zeros(2), np.zeros(2), np.zeros(2), np.zeros((2, 2, 2))
    path, b1, b2 = [x], chosen.momentum, 0.999
    for t, preference in enumerate(schedule, 1):
        g = gradients(x) + (0 if noise is None else noise[t - 1])
        d = np.array(preference) @ g
        F = b2 * F + (1 - b2) * g[:, None] * g[None]
        average = b2 * average + (1 - b2) * d * d
        C = average if variant == CONTROL else np.einsum("i,j,ijk->k", preference, preference, F)
        C = C if plain else C / (1 - b2**t)
        M = np.sqrt(C + (1e-8 if plain else 1e-16))
        if variant in (PAPER, RAMPED):
            alpha = min(1.0, (t - 1) / 300)
            M = alpha * M + (1 - alpha) * (1.0 if plain else M.max())
        u = d if chosen.contender == ADAM else d / M
        if variant == EXACT:
            x = x - rate * u
        else:
            m, v = b1 * m + (1 - b1) * u, b2 * v + (1 - b2) * u * u
            x = x - rate * m / (1 - b1**t) / (np.sqrt(v / (1 - b2**t)) + 1e-8)
        path.append(x)
    return np.array(path)


def test_gap_is_the_loss_above_its_minimum():
    for preference in PREFERENCES:
        check_gap(preference)


def check_gap(preference):
    at = optimum(preference)
    assert gap(at, preference) == pytest.approx(0, abs=1e-30)
    np.testing.assert_allclose(np.array(preference) @ gradients(at), 0, atol=1e-14)
    points = np.random.default_rng(0).normal(size=(20, 2))
    np.testing.assert_allclose(gap(points, preference), (losses(points) - losses(at)) @ preference, rtol=1e-10)
    assert (gap(points, preference) > 0).all()


def test_optima_of_the_two_preferences_mirror_each_other():
    """x*(A) solves (0.9 H_1 + 0.1 H_2) x = (0.9 H_1 - 0.1 H_2) (1.5, 0); B swaps the objectives, x_1 changes sign."""
    curvature = np.array([[1.1, 0.72], [0.72, 1.1]])
    np.testing.assert_allclose(optimum(A), np.linalg.solve(curvature, [1.5 * 0.88, 1.5 * 0.9]))
    np.testing.assert_allclose(optimum(B), optimum(A) * [-1, 1])


def test_gradients_are_those_of_autograd():
    x = torch.randn(5, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    for k in range(2):
        (g,) = torch.autograd.grad(lab.PROBLEM.losses(x)[:, k].sum(), x)
        np.testing.assert_allclose(gradients(x.detach().numpy())[:, k], g)


def test_every_run_goes_where_it_would_go_by_hand():
    """So rows of one tensor do not see each other, and the optimizers are what the papers say."""
    for variant in VARIANTS:
        check_by_hand(variant)


def check_by_hand(variant):
    rates = (0.003, 0.1)
    paths = descend(variant, STARTS, MIXED, rates=rates)
    assert paths.shape == (2, len(MIXED) + 1, len(STARTS), 2)
    for r, rate in enumerate(rates):
        for k, start in enumerate(STARTS):
            np.testing.assert_allclose(paths[r, :, k], by_hand(variant, start, MIXED, rate), rtol=1e-6, atol=1e-9)


def test_noise_is_added_to_the_gradients_and_is_the_same_for_all():
    for variant in (ADAM, MADAM, RAMPED):
        check_noise(variant)


def check_noise(variant):
    spread = np.array([NOISE[UNEVEN], (0.3, 0.3), (0.0, 0.0)])
    draw = torch.Generator().manual_seed(3)
    drawn = [torch.randn(3, 2, 2, generator=draw, dtype=torch.float64).numpy() for _ in MIXED]
    paths = descend(variant, STARTS, MIXED, rates=(0.01, 0.05), noise=spread.tolist(), seed=3)
    for r, rate in enumerate((0.01, 0.05)):
        for k, start in enumerate(STARTS):
            noise = [xi[k] * spread[k][:, None] for xi in drawn]
            np.testing.assert_allclose(
                paths[r, :, k], by_hand(variant, start, MIXED, rate, noise), rtol=1e-6, atol=1e-9
            )


def test_adam_is_torchs_own():
    x = torch.nn.Parameter(torch.tensor(STARTS[0], dtype=torch.float64))
    adam = torch.optim.Adam([x], lr=0.02)
    for preference in MIXED:
        adam.zero_grad()
        (torch.tensor(preference, dtype=torch.float64) @ lab.PROBLEM.losses(x)).backward()
        adam.step()
    np.testing.assert_allclose(descend(ADAM, STARTS[:1], MIXED, rates=(0.02,))[0, -1, 0], x.detach(), rtol=1e-9)


def test_under_a_fixed_preference_madam_is_its_control():
    control, madam = (descend(v, STARTS, [A] * 30) for v in (CONTROL, MADAM))
    np.testing.assert_allclose(madam, control, rtol=1e-8, atol=1e-12)


def test_switching_cuts_runs_and_phases_where_they_are():
    runs = switching((ADAM,), steps=3, rates=(0.01, 0.1))
    assert [*alternating(3)] == [A] * 3 + [B] * 3 + [A] * 3 + [B] * 3 + [A] * 3 + [B] * 3
    path = runs.paths[ADAM]
    assert path.shape == (2, 19, 1 + 2 * lab.SEEDS, 2)
    places = [i for noise in NOISE for i in range(*runs.runs(noise).indices(path.shape[2]))]
    assert places == list(range(path.shape[2]))
    gaps = runs.gaps(ADAM, UNEVEN)
    assert gaps.shape == (2, 6, 4, lab.SEEDS)
    np.testing.assert_allclose(gaps[:, 1, 0], gap(path[:, 3, runs.runs(UNEVEN)], B))
    np.testing.assert_allclose(gaps[:, 2, -1], gap(path[:, 9, runs.runs(UNEVEN)], A))
    distances = runs.distances(ADAM, "none")
    np.testing.assert_allclose(distances[:, 0, 0], np.linalg.norm(path[:, 3, 0] - optimum(B), axis=-1))
    silent = path[:, :, runs.runs("none")]
    np.testing.assert_allclose(silent[0, :, 0], by_hand(ADAM, lab.START, alternating(3), 0.01), rtol=1e-9)


def test_what_adam_remembers_at_a_switch_is_its_own_state():
    """The averages computed from the path, against the state of an Adam that went there."""
    runs = switching((ADAM,), steps=4, rates=(lab.RATE,))
    points = lab._Points(ADAM, [lab.START] * len(lab.KINDS), (lab.RATE,))
    for preference, shift in zip(
        alternating(4)[:4], lab._noise(torch.tensor(lab.KINDS, dtype=torch.float64), 4, 0), strict=True
    ):
        points.step(preference, shift)
    seen = runs.seen(ADAM, 0)[:4]
    weights = 0.999 ** np.arange(3, -1, -1)
    v = np.einsum("t,tnj->nj", weights / weights.sum(), np.einsum("i,tnij->tnj", A, seen) ** 2)
    np.testing.assert_allclose(points.scale()[0], np.sqrt(v) + 1e-8, rtol=1e-9)


@pytest.fixture(scope="module")
def effects():
    """From a few starts, through a switch: the cosines, and the starts."""
    starts = [*census_starts(4), (1.4, 0.05)]
    return starts, signed_effects(starts, [A] * 20 + [B] * 20, rates=(0.01, 0.1))


def test_signed_effects_are_cosines_along_the_runs(effects):
    starts, found = effects
    path = descend(ADAM, starts, [A] * 20 + [B] * 20, rates=(0.01, 0.1))
    g = gradients(path[:, :-1])
    for t, preference in ((0, A), (19, A), (20, B), (39, B)):
        d = np.einsum("i,rnij->rnj", preference, g[:, t])
        for k in range(2):
            lengths = np.linalg.norm(g[:, t, :, k], axis=-1) * np.linalg.norm(d, axis=-1)
            np.testing.assert_allclose(found[EUCLIDEAN][:, t, :, k], (g[:, t, :, k] * d).sum(-1) / lengths, atol=1e-9)


def test_metrics_are_adams_second_moment_and_the_conditioned_one(effects):
    starts, found = effects
    path = descend(ADAM, starts, [A] * 20 + [B] * 20, rates=(0.01, 0.1))[:, :-1]
    weights = np.array([A] * 20 + [B] * 20)
    g = gradients(path)  # [rate, step, run, objective, 2]
    d = np.einsum("ti,rtnij->rtnj", weights, g)
    age = 0.999 ** np.arange(39, -1, -1)  # the average at the last step, up to a factor
    adams = np.sqrt(np.einsum("t,rtnj->rnj", age, d**2) / age.sum())
    conditioned = np.sqrt(np.einsum("t,rtnj->rnj", age, np.einsum("i,rtnij->rtnj", B, g) ** 2))
    for metric, M in ((ADAMS, adams), (CONDITIONED, conditioned)):
        s = d[:, -1] / M
        lengths = np.linalg.norm(g[:, -1], axis=-1) * np.linalg.norm(s, axis=-1)[..., None]
        np.testing.assert_allclose(found[metric][:, -1], np.einsum("rnij,rnj->rni", g[:, -1], s) / lengths, atol=1e-6)


def test_what_theory_says_of_signs(effects):
    """sum_i lambda_i g_i . M^-1 d = d . M^-1 d >= 0: never all objectives rise, under no metric."""
    _, found = effects
    for metric in (EUCLIDEAN, ADAMS, CONDITIONED, EXECUTED):
        assert (found[metric].max(axis=-1) >= -1e-12).all(), metric
    # Until the preference changes, the average of d^2 is the conditioned curvature: the metrics are one.
    np.testing.assert_allclose(found[ADAMS][:, :20], found[CONDITIONED][:, :20], atol=1e-6)
    assert np.abs(found[ADAMS][:, 20:] - found[CONDITIONED][:, 20:]).max() > 0.1


def test_euclidean_effects_are_positive_where_gradients_agree_and_need_not_be_elsewhere():
    x = np.random.default_rng(0).uniform(-3, 3, size=(2000, 2))
    g = gradients(x)
    agree = np.einsum("nj,nj->n", g[:, 0], g[:, 1]) >= 0
    assert 100 < agree.sum() < 1900
    for preference in PREFERENCES:
        d = np.einsum("i,nij->nj", preference, g)
        effects = np.einsum("nij,nj->ni", g, d)
        assert (effects[agree] >= 0).all()
        assert (effects @ np.array(preference) >= 0).all()
        assert (effects < 0).any()
    # Near its own minimum an objective has to rise when the other has the weight.
    at = gradients(np.array([1.4, 0.05]))
    assert at[0] @ (np.array(B) @ at) < 0


def test_the_first_objective_rises_on_any_way_from_one_optimum_to_the_other():
    assert losses(optimum(B))[0] > losses(optimum(A))[0]
