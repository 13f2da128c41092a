"""Searches on problems whose best answer is known, and what they promise."""

import math

import pytest
import torch

import madamoo
from madamoo import solvers
from madamoo.tuning import Setup, TrialError
from tuned_problems import accuracy, by_seed, noise, rotated, two_sizes


def test_where_one_loss_is_10000_times_larger_a_balancing_solver_wins():
    names = {"solvers": ["ls", "imtl", "uw"], "optimizers": ["adam"]}
    found = madamoo.tune(two_sizes, budget=8, seeds=4, rates=(1e-2, 1.0), **names)
    assert found.beats_adam and found.use.solver in ("imtl", "uw")
    assert found.winner.mean < 5.0 and found.baseline.mean > 7.0


def test_in_a_bad_basis_the_eigenbasis_wins():
    found = madamoo.tune(rotated, budget=8, seeds=5, solvers=["ls"], rates=(3e-2, 1.0))
    assert found.beats_adam and found.use.optimizer in ("soap", "madam-eigen")
    assert found.winner.mean < 0.5 * found.baseline.mean


def test_where_all_are_level_adam_is_the_answer():
    found = madamoo.tune(by_seed, budget=3, seeds=3)
    assert not found.beats_adam and found.use == found.baseline.contender
    assert [f.comparison.p for f in found.finalists] == [1.0] * len(found.finalists)
    assert "Use Adam with LS" in str(found) and "That is what was found" in str(found)


def test_noise_is_rarely_taken_for_a_difference():
    """Ten searches, of which half a one may be wrong in the mean; benchmarks/tune_false_positives.py does many."""
    names = {"solvers": ["ls", "uw"], "optimizers": ["adam"]}
    found = [madamoo.tune(noise, budget=3, seeds=6, seed=100 * k, **names) for k in range(10)]
    assert sum(one.beats_adam for one in found) <= 2
    means = [f.mean - one.baseline.mean for one in found for f in one.finalists]
    assert min(means) < 0 < max(means)  # there was something to be fooled by


def test_a_higher_number_is_better_where_the_setup_says_so():
    found = madamoo.tune(accuracy, budget=6, seeds=3, solvers=["ls", "uw"], optimizers=["adam"], rates=(1e-3, 1.0))
    assert found.baseline.contender.lr > 0.1  # four steps: the larger the better
    assert all(value < 0 for value in found.baseline.values)


def test_one_worker_gives_the_same_result_each_time():
    first, second = (madamoo.tune(two_sizes, budget=6, seeds=2, solvers=["ls", "rlw"]) for _ in range(2))
    assert [(f.contender, f.values) for f in first.finalists] == [(f.contender, f.values) for f in second.finalists]
    assert first.baseline == second.baseline


def test_the_search_has_a_seed_of_its_own_and_the_same_number_of_trials_for_adam():
    seen = []

    def build(seed):
        seen.append(seed)
        return noise(seed)

    madamoo.tune(build, budget=5, seeds=3, seed=20, finalists=1, solvers=["uw"], optimizers=["adam"])
    assert seen[:11] == [20] * 11  # once to try it out, 5 for Adam, 5 for the other
    assert seen[11:17] == [21, 21, 22, 22, 23, 23]
    assert set(seen[17:]) == {20}  # what a step costs


def test_a_trial_that_diverges_is_a_result():
    def build(seed):
        w = torch.nn.Parameter(torch.ones(2))

        def losses():  # beyond a distance there is no number
            return [torch.where(w.abs().sum() < 3.0, w[0] ** 2, math.nan), w[1] ** 2]

        return Setup([w], losses, lambda: float(w.detach().abs().sum()), steps=10)

    found = madamoo.tune(build, budget=6, seeds=2, solvers=["ls", "uw"], optimizers=["adam"], rates=(1e-3, 1e3))
    assert found.baseline.contender.lr < 4.0 and not found.baseline.diverged


def test_where_adam_always_diverges_that_is_said():
    def build(seed):
        w = torch.nn.Parameter(torch.ones(1))
        return Setup([w], lambda: [w.sum(), w.sum()], lambda: math.nan, steps=1)

    with pytest.raises(ValueError, match=r"Adam with LS diverged at all of 2 rates between 0.0001 and 0.1"):
        madamoo.tune(build, budget=2, seeds=2)


def test_an_error_in_the_users_code_names_its_trial():
    calls = 0

    def build(seed):
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyError("no such column")
        return noise(seed)

    with pytest.raises(TrialError) as caught:
        madamoo.tune(build, budget=4, seeds=2)
    text = str(caught.value)
    assert text.startswith("trial 1 of adam failed (solver ls, optimizer adam, lr ")
    assert "seed 0" in text and "KeyError: 'no such column'" in text
    assert __file__ in text and "_training.py" not in text


def test_what_is_wrong_at_once_is_said_at_once():
    def build(seed):
        w = torch.nn.Parameter(torch.ones(1))
        return Setup([w], lambda: "no losses", lambda: 0.0, steps=1)

    with pytest.raises(TrialError, match="was tried for one step before the search, and failed"):
        madamoo.tune(build, budget=4, seeds=2)


def test_solvers_and_optimizers_of_ones_own():
    made = []

    def mine(params, lr, solver, **options):
        made.append(lr)
        return madamoo.MultiObjective(torch.optim.SGD(params, lr=lr), solver, **options)

    found = madamoo.tune(
        noise,
        budget=2,
        seeds=2,
        solvers={"half": lambda: solvers.LS([0.5, 0.5])},
        optimizers={"mine": mine},
    )
    assert [f.contender.name for f in found.finalists] == ["mine with half"] and made


@pytest.mark.parametrize(
    "options, message",
    [
        ({"solvers": ["nosuch"]}, "no solver is called 'nosuch'"),
        ({"optimizers": ["nosuch"]}, "no optimizer is called 'nosuch'; there are adam, madam, soap"),
        ({"solvers": ["ls"], "optimizers": ["adam"]}, "nothing is left to compare with Adam and LS"),
        ({"budget": 0}, "budget must be an integer, at least 1, got 0"),
        ({"seeds": 1}, "seeds must be an integer, at least 2, got 1"),
        ({"rates": (1e-1, 1e-4)}, "rates must be a lower and a higher one"),
        ({"workers": 2}, "several workers need a folder"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(ValueError, match=message):
        madamoo.tune(noise, **options)


def test_soap_with_and_without_the_relative_metric_is_one_contender_under_constant_weights():
    found = madamoo.tune(noise, budget=6, seeds=2, solvers=["ls"], optimizers=["soap", "msoap"], finalists=5)
    assert [f.contender.optimizer for f in found.finalists] == ["soap"]
