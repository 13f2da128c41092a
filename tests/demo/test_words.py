import math

import pytest

from madamoo.demo.summary import as_record, closeness, estimate, front_table, gains, physics_table, plain_table
from madamoo.demo.words import (
    AHEAD,
    BEHIND,
    LEVEL,
    conflict_findings,
    findings,
    front_findings,
    physics_findings,
    plain_finding,
    standing,
    times,
)


def test_estimate_of_one_seed_claims_no_precision() -> None:
    assert estimate([3.0]).mean == 3.0 and math.isnan(estimate([3.0]).error) and estimate([3.0]).sign == 0
    e = estimate([1.0, 2.0, 3.0])
    assert (e.mean, e.deviation, e.error, e.sign) == pytest.approx((2.0, 1.0, 1 / math.sqrt(3), 1))


def test_standing_follows_the_numbers() -> None:
    assert standing([0.1, 0.11, 0.12]) == AHEAD
    assert standing([-0.1, -0.11, -0.12]) == BEHIND
    assert standing([0.5, -0.4, 0.1]) == LEVEL and standing([0.0, 0.0]) == LEVEL
    assert [standing([x]) for x in (1.0, 0.0, -1.0)] == [AHEAD, LEVEL, BEHIND]


@pytest.mark.parametrize("gain, word, factor, verdict", [
    (5.0, AHEAD, "32 times smaller", "a gain"),
    (-5.0, BEHIND, "32 times larger", "a loss"),
    (0.0, LEVEL, "about the same", "nothing is gained"),
])  # fmt: skip
def test_every_claim_turns_with_the_numbers(make_results, gain, word, factor, verdict) -> None:
    results = make_results(gain)
    fronts, physics = front_findings(results.fronts), physics_findings(results.physics)
    assert f"is {word} Adam" in fronts[0] and f"is {word} SOAP" in fronts[2]
    assert "MAdam is level with Adam" in fronts[1]  # which gains nothing in any of the three
    assert f"reads {65.1 + gain:.0f} % of the left digits (Adam: 65 %)" in fronts[0]
    assert all(f"is {word} {name}" in line for name, line in zip(("Adam", "SOAP"), physics, strict=True))
    assert factor in physics[0]
    assert f"better on {3 if gain > 0 else 0} of 3 seeds" in fronts[0]
    assert verdict in plain_finding(results.plain).rpartition(":")[2]
    told = " ".join(findings(results))
    assert (AHEAD in told) == (gain > 0) and (BEHIND in told) == (gain < 0)


def test_one_seed_is_called_a_direction(make_results) -> None:
    results = make_results(5.0, seeds=1)
    assert "a direction and no more" in front_findings(results.fronts)[0]
    assert "±" not in str(front_table(results.fronts).rows + plain_table(results.plain).rows)


def test_gains_are_paired_by_seed_whatever_the_order(make_results) -> None:
    runs = make_results(1.0).physics[::-1]
    assert gains(runs, "MSOAP", "Adam", closeness) == pytest.approx([math.log(2)] * 3)


def test_a_diverged_run_is_shown_and_counts_as_lost(make_results) -> None:
    results = make_results(5.0)
    results.physics[3].errors[-1] = math.nan  # MSOAP, first seed
    assert math.isfinite(closeness(results.physics[3]))
    assert "ahead of" not in physics_findings(results.physics)[0]
    assert as_record(results)["physics"][3]["optimizer"] == "MSOAP"
    assert len(physics_table(results.physics).rows) == 3


def test_factors() -> None:
    assert times(math.log(3)) == "3 times smaller" and times(-math.log(3)) == "3 times larger"
    assert times(0.01) == "about the same"


def row(step: int, cosine: float, flipped: bool):
    names = ("pde", "boundary")
    effects = {name: 1.0 for name in names}
    flips = {"pde": False, "boundary": flipped}
    metrics = ("euclidean", "adam", "preference", "realised")
    return {
        "step": step,
        "objectives": list(names),
        "losses": effects,
        "weights": effects,
        "conflict_rate": float(cosine < 0),
        "effects": {m: effects for m in metrics},
        "flips": {"adam": flips, "preference": None, "realised": flips},
        "alignments": {m: effects for m in metrics},
        "threshold": {name: None for name in names},
        "condition": {m: 1.0 for m in metrics},
        "spread": {m: 1.0 for m in metrics},
        "floored": None,
        "below_eps": None,
        "marginalisation": None,
        "observed": None,
        "predicted": None,
    }


def test_conflict_and_flips_are_said_as_they_were_measured() -> None:
    calm = conflict_findings({"Adam": [row(k, 1.0, False) for k in range(4)]})
    assert "in 0 % of 4" in calm[0] and "none by Adam's metric" in calm[0] and "rare" in calm[1]
    rough = conflict_findings({"Adam": [row(k, -1.0, True) for k in range(4)]})
    assert "in 100 % of 4" in rough[0] and "50 % (most often of boundary)" in rough[0]
    assert "undoes up to 50 %" in rough[1]
