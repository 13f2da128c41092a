"""From runs to claims, on runs made up so that the answer is known."""

import json

import numpy as np
import pytest

from madamoo.figures import claims, tables
from madamoo.figures.claims import HIGHER, STALLS, Phases, Signs
from madamoo.figures.experiments import (
    ADAM,
    ADAMS,
    COARSE,
    CONDITIONED,
    CONTROL,
    EUCLIDEAN,
    EUCLIDEAN_THERE,
    EXECUTED,
    FIXED,
    MADAM,
    NOISE,
    PAPER,
    PHASES,
    RATE,
    RATES,
    SEEDS,
    SHORT,
    SIGN_START,
    START,
    STEPS,
    UNEVEN,
    A,
    B,
    Switching,
    gap,
    gradients,
    optimum,
)


def made_up(shares, steps=STEPS, rates=RATES):
    """Runs that begin every phase where the last one ended, and go this share of the way to the active optimum."""
    paths = {}
    for variant, share in shares.items():
        way = [np.array(START)]
        for preference in PHASES:
            here = way[-1]
            way += [here + share * k / steps * (optimum(preference) - here) for k in range(1, steps + 1)]
        paths[variant] = np.broadcast_to(np.array(way)[None, :, None], (len(rates), len(way), 1 + 2 * SEEDS, 2)).copy()
    return Switching(steps, tuple(rates), paths)


@pytest.fixture(scope="module")
def phases():
    """Adam goes a tenth of the way in each phase, the control half of it, MAdam nearly all."""
    shares = {ADAM: 0.1, CONTROL: 0.5, MADAM: 0.999}
    return Phases(
        made_up(shares),
        made_up(shares, SHORT, COARSE),
        made_up({PAPER: 0.7}, rates=COARSE),
        made_up({"ramped": 0.8}, rates=(RATE,)),
    )


def test_distances_after_a_switch(phases):
    found = claims.switch_distances(phases, UNEVEN)
    assert set(found) == {ADAM, CONTROL, MADAM, PAPER, "ramped"}
    here = np.array(START) + 0.1 * (optimum(A) - START)
    whole = np.linalg.norm(here - optimum(B))
    assert found[ADAM] == pytest.approx([whole * (1 - 0.1 * step / STEPS) for step in claims.AFTER])


def test_shares_count_the_rates_where_a_claim_holds(phases):
    found = claims.switch_shares(phases, "none")
    assert found[STALLS] == [len(RATES), len(RATES)]
    assert found["MAdam is nearer than the control"] == [len(RATES), len(RATES)]
    swapped = Phases(made_up({ADAM: 0.999, CONTROL: 0.5, MADAM: 0.1}), phases.short, phases.others, phases.ramped)
    assert claims.switch_shares(swapped, "none")[STALLS] == [0, len(RATES)]
    found = claims.phase_shares(swapped, "none")
    assert found[HIGHER] == [len(COARSE), len(RATES) + len(COARSE)]  # in the short phases only
    assert found["MAdam's gap at the ends is 10 times Adam's"] == [len(RATES), len(RATES) + len(COARSE)]


def test_moments_at_a_switch_are_running_averages(phases):
    """Step by step, as Adam and the metric keep them."""
    path, v, F, t = phases.main.paths[ADAM][4, :, 0], np.zeros(2), np.zeros((2, 2, 2)), 0
    squares = {"A": [], "B": []}
    for k, preference in enumerate(PHASES):
        g = gradients(path[t])
        if k:
            C = np.einsum("i,j,ijc->c", preference, preference, F)
            d = np.array(preference) @ g
            squares["AB"[k % 2]].append([(d**2).mean(), *(x.mean() / (1 - 0.999**t) for x in (v, C))])
        for _ in range(STEPS):
            g = gradients(path[t])
            v = 0.999 * v + 0.001 * (np.array(preference) @ g) ** 2
            F = 0.999 * F + 0.001 * g[:, None] * g[None]
            t += 1
    found = claims.switch_moments(phases, "none")
    for to, expected in squares.items():
        assert found[to] == pytest.approx(np.sqrt(np.mean(expected, axis=0)).tolist())


def test_gaps_at_both_ends_of_a_phase(phases):
    found = claims.phase_gaps(phases, "none")[CONTROL]
    path = phases.main.paths[CONTROL][0, :, 0]
    assert found["begin"] == pytest.approx([float(gap(path[k * STEPS + 1], p)) for k, p in enumerate(PHASES)])
    assert found["end"] == pytest.approx([float(gap(path[(k + 1) * STEPS], p)) for k, p in enumerate(PHASES)])


def test_best_rate_is_that_with_the_lowest_mean_gap(phases):
    runs = made_up({ADAM: 0.9, CONTROL: 0.5, MADAM: 0.9})
    runs.paths[ADAM][4] = optimum(A)  # a run that does not move is worse than one that follows
    runs.paths[ADAM][[0, 1, 2, 3, 5, 6, 8, 9, 10]] += 0.5
    found = claims.best_rates(Phases(runs, phases.short, phases.others, phases.ramped), "none")
    assert found[ADAM]["rate"] == RATES[7]
    assert found[ADAM]["mean"] == pytest.approx(found[MADAM]["mean"])
    largest = claims.largest_ratio(Phases(runs, phases.short, phases.others, phases.ramped), "none")
    assert largest[ADAM] / largest[MADAM] == pytest.approx(
        max(claims.ends(runs, ADAM, "none") / claims.ends(runs, MADAM, "none"))
    )


def signs():
    """Two starts: Adam flips the first objective of one in half of the steps, MAdam the second of the other."""
    shape = (len(COARSE), 10, 2, 2)
    effects = {m: np.full(shape, 0.5) for m in (EUCLIDEAN, EUCLIDEAN_THERE, ADAMS, CONDITIONED, EXECUTED)}
    effects[ADAMS][:, 5:, 0, 0] = -0.25
    effects[CONDITIONED][:, :2, 1, 1] = -0.1
    effects[EUCLIDEAN][:, 0, 1, 1] = -0.1  # here it is no flip
    effects[EXECUTED][:, :, 1, 1] = -0.3
    return Signs([SIGN_START, (0.0, 0.0)], effects)


def test_a_flip_is_an_objective_that_rises_and_should_not():
    found = claims.sign_numbers(signs())
    assert found[ADAMS] == {"raised": [0.5, 0.0], "flipped": [0.5, 0.0], "lowest": [-0.25, 0.5]}
    assert found[CONDITIONED]["raised"] == [0.0, 0.0]
    runs, census = 2 * len(COARSE), claims.sign_census(signs())
    assert census["runs"] == runs
    assert census["runs in which the Euclidean effect is never negative"] == [len(COARSE), runs]
    assert census["flipped by Adam"] == [len(COARSE), 2 * runs]
    assert census["flipped steps"] == pytest.approx({ADAMS: 0.5 / 4, CONDITIONED: 0.1 / 4, EXECUTED: 1 / 4})
    assert census[CONDITIONED]["half as often as Adam, of what Adam flips"] == [len(COARSE), len(COARSE)]
    assert census[EXECUTED]["twice as often as Adam, of what it flips"] == [len(COARSE), len(COARSE)]


def test_trajectories_are_compared_panel_by_panel():
    away = {ADAM: 2.0, MADAM: 1.0, PAPER: 3.0}
    paths = {
        p: {v: np.full((len(COARSE), STEPS + 1, 3, 2), 0.0) + optimum(p) + [d, 0.0] for v, d in away.items()}
        for p in FIXED
    }
    paths[FIXED[0]][MADAM][2] += 5.0
    found = claims.trajectory_numbers(paths)
    panels = len(FIXED) * len(claims.SHOWN)
    assert found["MAdam is nearer"] == [panels * len(COARSE) - len(claims.SHOWN), panels * len(COARSE)]
    assert found["the paper's plain form is nearer"] == [0, panels * len(COARSE)]
    assert found["distances"]["(0.5, 0.5)"][ADAM] == pytest.approx([2.0] * len(claims.SHOWN))
    assert found["best rate"][PAPER]["distance"] == pytest.approx(3.0)
    assert found["path difference"] == pytest.approx(np.hypot(4.0, 5.0))  # in the panel where MAdam was moved away
    way = np.linspace(0, 1, STEPS + 1)[:, None, None] * np.ones((3, 2))
    same_way = {
        p: {v: np.stack([way * share] * len(COARSE)) for v, share in ((ADAM, 0.5), (MADAM, 1.0))} for p in FIXED
    }
    assert claims.path_difference(same_way) < 1 / STEPS


def test_gaps_below_the_last_digits_are_not_compared():
    assert claims.geometric(np.array([1e-30, 1e-12])) == pytest.approx(1e-12)
    assert claims.geometric(np.array([1e-4, 1e-2])) == pytest.approx(1e-3)


def test_numbers_are_rounded_everywhere_and_fit_into_json():
    found = claims.rounded({"a": [1.23456, {"b": 0.000987654}], "c": [3, 4], "d": "x", "e": None})
    assert found == {"a": [1.235, {"b": 0.0009877}], "c": [3, 4], "d": "x", "e": None}


def test_tables_show_every_noise_and_every_claim(phases):
    numbers = {"mismatch": claims.mismatch_numbers(phases, signs()), "phases": claims.phases_numbers(phases)}
    json.dumps(numbers, allow_nan=False)
    shown = tables.page(numbers, {"phases": ["phases.svg"]})
    for text in (*NOISE, STALLS, HIGHER, "![phases](phases.svg)", "17 of 17"):
        assert text in shown
    assert "nan" not in shown
    found = [part.splitlines() for part in shown.split("\n\n") if part.startswith("|")]
    assert len(found) == 11
    for lines in found:
        assert len(lines) > 2 and len({line.count("|") for line in lines}) == 1
