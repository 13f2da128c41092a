"""Run-level facts from rows made by hand, and the sentences made of them."""

import copy
import math

import numpy as np
import pytest

from helpers import Net, train, wrap
from madamoo import diagnostics


def row(step, **changes):
    base = {
        "step": step,
        "objectives": ["a", "b"],
        "losses": {"a": 1.0, "b": 2.0},
        "weights": {"a": 0.5, "b": 0.5},
        "norms": {"a": 1.0, "b": 1.0},
        "direction_norm": 1.0,
        "cosines": [[1.0, -0.5], [-0.5, 1.0]],
        "conflict_rate": 1.0,
        "effects": {"euclidean": {"a": 1.0, "b": 1.0}, "adam": None, "preference": None, "realised": {}},
        "alignments": {"euclidean": {"a": 0.5, "b": 0.25}, "adam": None, "preference": None, "realised": None},
        "flips": {"adam": None, "preference": None, "realised": {"a": False, "b": False}},
        "positive": {"a": 2.0, "b": 4.0},
        "negative": {"a": 1.0, "b": 0.0},
        "threshold": {"a": 2.0, "b": None},
        "condition": {"adam": None, "preference": None},
        "spread": {"adam": None, "preference": None},
        "predicted": {"a": -1.0, "b": -1.0},
        "observed": None,
        "marginalisation": None,
        "floored": None,
        "below_eps": None,
        "seconds": {"gradients": 0.5},
        "bytes": {"optimizer": 8},
    }
    for key, value in changes.items():
        base[key] = {**base[key], **value} if isinstance(base[key], dict) else value
    return base


def test_flip_rates_are_shares_of_the_steps_that_could_be_flipped():
    rows = [
        row(0, flips={"adam": {"a": True, "b": None}}),
        row(1, flips={"adam": {"a": False, "b": None}}),
        row(2, flips={"adam": {"a": True, "b": True}}),
        row(3),
    ]
    facts = diagnostics.summary(rows)
    assert facts["flip_rate"]["adam"] == {"a": 2 / 3, "b": 1.0}
    assert facts["flip_rates"] == {"adam": 3 / 4, "preference": None, "realised": 0.0}
    assert (facts["rows"], facts["first_step"], facts["last_step"]) == (4, 0, 3)


def test_the_lemma_says_how_often_a_metric_could_flip():
    """The threshold of a is 2, and b has none; where d does not improve an objective it does not count."""
    rows = [
        row(0, condition={"adam": 1.5}),
        row(1, condition={"adam": 8.0}),
        row(2, condition={"adam": 12.0}, effects={"euclidean": {"a": -1.0, "b": 0.5}}),
    ]
    facts = diagnostics.summary(rows)
    assert facts["reach"] == {"adam": 1 / 5, "preference": None}
    assert facts["condition"]["adam"] == pytest.approx((1.5 * 8 * 12) ** (1 / 3))


def test_weights_move_as_far_as_their_distance():
    weights = [{"a": 1.0, "b": 1.0}, {"a": 3.0, "b": 1.0}, {"a": 0.0, "b": 2.0}]
    facts = diagnostics.summary([row(t, weights=w) for t, w in enumerate(weights)])
    assert facts["weights_moved"] == pytest.approx((0.25 + 0.75) / 2)
    assert facts["weights"] == {"a": pytest.approx(4 / 3), "b": pytest.approx(4 / 3)}


def test_predictions_are_correlated_with_what_was_observed():
    rng = np.random.default_rng(0)
    p, o = rng.normal(size=(2, 6))
    rows = [row(t, predicted={"a": p[t]}) | {"observed": {"a": o[t], "b": -1.0}} for t in range(6)]
    facts = diagnostics.summary([*rows, row(6)])
    assert facts["prediction"] == {"a": pytest.approx(np.corrcoef(p, o)[0, 1]), "b": None}
    assert facts["observed"] == 6


def test_means_leave_out_what_is_not_known():
    rows = [
        row(0, floored=0.25, below_eps=0.5) | {"marginalisation": {"log_distance": 1.0, "log_correlation": None}},
        row(1, floored=0.75) | {"marginalisation": {"log_distance": 2.0, "log_correlation": 0.5}},
        row(2, conflict_rate=0.25),
    ]
    facts = diagnostics.summary(rows)
    assert (facts["floored"], facts["below_eps"]) == (0.5, 0.5)
    assert (facts["log_distance"], facts["log_correlation"]) == (1.5, 0.5)
    assert facts["conflict_rate"] == 0.75
    assert facts["alignment"]["euclidean"] == {"a": 0.5, "b": 0.25}
    assert facts["seconds"] == {"gradients": 0.5} and facts["bytes"] == {"optimizer": 8}


def test_rows_are_left_as_they_are_and_none_are_refused():
    rows = [row(0), row(1)]
    before = copy.deepcopy(rows)
    diagnostics.summary(iter(rows))
    assert rows == before
    with pytest.raises(ValueError, match="at least one row"):
        diagnostics.summary([])


def test_a_description_says_what_the_facts_say():
    rows = [
        row(
            t,
            flips={"adam": {"a": True, "b": False}},
            condition={"adam": 100.0},
            spread={"adam": 10.0},
            floored=0.125,
            predicted={"a": -float(t)},
        )
        | {
            "marginalisation": {"log_distance": math.log(3), "log_correlation": 0.5},
            "observed": {"a": -float(t), "b": 0.0},
        }
        for t in range(4)
    ]
    text = diagnostics.describe(diagnostics.summary(rows))
    for words in (
        "4 steps were measured, from 0 to 3, on 2 objectives (a, b)",
        "In 100 % of all pairs",
        "Under Adam's metric, 50 %",
        "most often a: 100 %",
        "condition number is 100 (10 between",
        "a flip in 50 % of cases",
        "Nothing is known of the preference-conditioned metric",
        "really taken flip 0 %",
        "by a factor of 3",
        "12.5 % of coordinates",
        "1.00 (a)",
    ):
        assert words in text, words
    assert "(b)" not in text


def flipping(adam, preference, **changes):
    """Rows in which the metrics flip the first objective in so many of ten steps."""
    return [
        row(
            t,
            flips={
                name: None if count is None else {"a": t < count, "b": False}
                for name, count in (("adam", adam), ("preference", preference))
            },
            **changes,
        )
        for t in range(10)
    ]


def test_the_verdict_says_which_metric_keeps_more_and_what_to_do():
    for adam, preference, text, advice in (
        (4, 0, "metric keeps more of what the direction promises: it flips 0 %", "Train with MAdam"),
        (0, 4, "keeps less of what", "before you choose MAdam"),
        (2, 2, "treat the objectives alike", "validation losses and their time per step"),
        (4, None, "Adam's metric flips 20 %", "MAdam is worth a trial"),
        (0, None, "little for another metric to mend", "Stay with Adam"),
        (None, 4, "preference-conditioned metric flips 20 %", "exact=True"),
        (None, None, "say nothing of the metrics", "exact=True"),
    ):
        facts = diagnostics.summary(flipping(adam, preference))
        found, what_to_do = diagnostics.verdict(facts)
        assert text in found and any(advice in line for line in what_to_do), (adam, preference, found, what_to_do)
        assert diagnostics.describe(facts).endswith(f"Verdict: {found} Advice: {' '.join(what_to_do)}")


def test_advice_is_given_where_the_numbers_ask_for_it():
    def advice(**changes):
        return " ".join(diagnostics.verdict(diagnostics.summary(flipping(2, 2, **changes)))[1])

    plain = advice()
    for word in ("works against", "hardly conflict", "hardly move", "at the floor", "predict"):
        assert word not in plain
    assert "works against b in 100 %" in advice(effects={"euclidean": {"a": 1.0, "b": -1.0}})
    assert "hardly conflict" in advice(conflict_rate=0.0)
    assert "Most coordinates are at the floor" in advice(floored=0.75)
    rows = flipping(2, 2)
    for t, one in enumerate(rows):
        one |= {"weights": {"a": 1.0 + t / 500, "b": 1.0}, "predicted": {"a": -t, "b": t}}
        one |= {"observed": {"a": float(t), "b": float(t)}}
    text = " ".join(diagnostics.verdict(diagnostics.summary(rows))[1])
    assert "The weights hardly move" in text and "predict the change of a badly" in text


@pytest.mark.parametrize(
    "solver, estimator, options", [("ls", None, {}), ("uw", "full", {"exact": True}), ("mgda", None, {})]
)
def test_a_real_run_can_be_summed_up_from_memory_and_from_disk(solver, estimator, options, tmp_path):
    net = Net()
    opt = wrap(net, solver, estimator)
    with diagnostics.attach(opt, every=2, sinks=tmp_path, **options) as probe:
        train(net, opt, 7)
    facts = diagnostics.summary(probe.rows)
    assert facts == diagnostics.summary(diagnostics.read(tmp_path))
    assert "objectives (0, 1, 2)" in diagnostics.describe(facts)
    assert (facts["weights_moved"] == 0) == (solver == "ls")
