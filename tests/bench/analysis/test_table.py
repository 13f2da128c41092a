"""Rows of a table: who is compared with whom, at which rate, and the arithmetic, against plain loops."""

import copy
import math
import random
from typing import ClassVar

import numpy as np
import pytest

from madamoo import bench
from madamoo.bench import Metric, Profile
from madamoo.bench.analysis._table import rows
from madamoo.bench.problems.supervised.sarcos import SarcosSmall


class Small(SarcosSmall):
    """Something to make rows for: a score, of which more is better, and an error."""

    name = "small"
    metrics = (Metric("score", True), Metric("error", False))
    profiles: ClassVar = {"cpu": Profile(2, 8, 1e-3, "mlp"), "paper": Profile(4, 8, 1e-4, "mlp")}


class Errors(Small):
    """The same by an error, of which less is better: here what else is the score."""

    metrics = (Metric("score", False), Metric("error", True))


SMALL = Small()


def run(optimizer, seed, score, *, lr=1e-3, validation=None, solver="cagrad", loss=None, status="finished", **config):
    """A record. Its error is 100 minus its score; its validation score is its test score unless given."""
    validation = score if validation is None else validation
    loss = 100.0 - validation if loss is None else loss
    identity = {
        "benchmark": "small",
        "profile": "cpu",
        "solver": solver,
        "optimizer": optimizer,
        "lr": lr,
        "seed": seed,
    }
    done = status == "finished"
    return {
        "config": {**identity, "epochs": 2, "batch": 8, "model": "mlp", "schedule": "constant", **config},
        "status": status,
        "metrics": {"score": score, "error": 100.0 - score} if done else None,
        "validation": {"score": validation, "error": 100.0 - validation} if done else None,
        "validation_loss": loss if done else None,
        "cost": {"seconds": 10.0 + seed, "peak_memory_bytes": 7 + seed, "state_bytes": 5, "curve": [[1.0, 2 * loss]]},
    }


def the(found, rate="equal", metric="score", solver="cagrad"):
    (row,) = (r for r in found if (r["rate"], r["metric"], r["solver"]) == (rate, metric, solver))
    return row


def grid(seed=0, rates=(1e-4, 1e-3, 1e-2), seeds=range(3), optimizers=("adam", "madam", "marginal", "mtadam")):
    draw = random.Random(seed)
    return [
        run(optimizer, s, draw.uniform(80, 90), lr=lr, validation=draw.uniform(80, 90))
        for optimizer in optimizers
        for lr in rates
        for s in seeds
    ]


def quantile(freedom, probability=0.975):
    """Of Student's t, by integrating its density."""
    t = np.linspace(0, 2000, 4_000_001)
    density = (1 + t**2 / freedom) ** (-(freedom + 1) / 2)
    area = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2 * (t[1] - t[0]))])
    total = math.sqrt(freedom * math.pi) * math.gamma(freedom / 2) / math.gamma((freedom + 1) / 2)
    return float(np.interp((probability - 0.5) * total, area, t))


@pytest.mark.parametrize("count", (2, 3, 5, 10))
def test_difference_is_paired_by_seed_with_a_t_interval(count):
    draw = random.Random(count)
    scores = {name: [draw.uniform(80, 90) for _ in range(count)] for name in ("adam", "madam", "marginal")}
    records = [run(name, seed, value) for name, values in scores.items() for seed, value in enumerate(values)]
    draw.shuffle(records)
    row = the(rows(records, SMALL))
    for key, other in (("difference", "adam"), ("difference_to_marginal", "marginal")):
        pairs = [m - o for m, o in zip(scores["madam"], scores[other], strict=True)]
        mean = sum(pairs) / count
        spread = math.sqrt(sum((p - mean) ** 2 for p in pairs) / (count - 1))
        half = quantile(count - 1) * spread / math.sqrt(count)
        expected = {"mean": mean, "low": mean - half, "high": mean + half}
        assert row[key] == pytest.approx(expected, rel=1e-4)
    for name, values in scores.items():
        mean = sum(values) / count
        assert row[name] == pytest.approx(mean)
        assert row["deviation"][name] == pytest.approx(math.sqrt(sum((v - mean) ** 2 for v in values) / (count - 1)))
        assert row["per_seed"][name] == {str(seed): value for seed, value in enumerate(values)}
    assert row["seeds"] == list(range(count))


def test_one_seed_has_a_difference_but_no_interval():
    row = the(rows([run("adam", 0, 80.0), run("madam", 0, 82.0)], SMALL))
    assert row["difference"] == {"mean": 2.0, "low": None, "high": None}
    assert row["deviation"] == {"adam": None, "madam": None, "marginal": None}
    assert row["marginal"] is None and row["difference_to_marginal"] is None


def test_only_seeds_that_all_have_are_compared():
    records = [run("adam", s, 80.0 + s) for s in (0, 1, 2, 3)]
    records += [run("madam", s, 90.0 + s) for s in (1, 2, 3, 4)]
    records += [run("marginal", s, 85.0 + s) for s in (0, 2, 3)]
    records += [run("mtadam", 9, 1.0)]
    row = the(rows(records, SMALL))
    assert row["seeds"] == [2, 3]
    assert (row["adam"], row["madam"], row["marginal"]) == (82.5, 92.5, 87.5)
    assert row["others"]["mtadam"]["per_seed"] == {"9": 1.0}


@pytest.mark.parametrize("better", (1, -1))
def test_a_best_rate_that_may_not_be_the_best_is_doubted(better):
    """Validation scores by rate, or errors: of every seed alike."""
    small = SMALL if better == 1 else Errors()

    def tried(optimizer, scores, seeds=(0, 1)):
        score = {lr: 50.0 + better * value for lr, value in scores.items()}
        return [run(optimizer, seed, score[lr], lr=lr) for lr in scores for seed in seeds]

    found = [
        *tried("adam", {1e-3: 1, 1e-2: 3, 1e-1: 2}),
        *tried("madam", {1e-3: 3, 1e-2: 2}),
        *tried("marginal", {1e-3: 1, 1e-2: 2}),
        *tried("soap", {1e-3: 2}),
        *tried("muon", {1e-3: 1, 1e-2: 2, 1e-1: 1}),
        *tried("muon", {3e-2: 3}, seeds=(1,)),
        *tried("sgd", {1e-3: 1, 1e-2: 2, 1e-1: 1}),
        *tried("sgd", {3e-2: 1, 1e-4: 9}, seeds=(7,)),  # on no seed of the best rate: nothing can be said
    ]
    assert the(rows(found, small), "best")["doubts"] == {
        "adam": None,
        "madam": "lowest",
        "marginal": "highest",
        "soap": "only",
        "muon": "fewer",
        "sgd": None,
    }
    assert the(rows(found, small), "equal")["doubts"] == {}


def test_a_rate_at_which_all_diverged_is_one_that_was_tried():
    found = [run("adam", 0, 80.0), run("adam", 0, 81.0, lr=1e-2), run("adam", 0, 0.0, lr=1e-1, status="diverged")]
    row = the(rows([*found, run("madam", 0, 82.0)], SMALL), "best")
    assert row["lr"]["adam"] == 1e-2 and row["doubts"] == {"adam": None, "madam": "only"}


def test_better_follows_the_metric_and_a_tie_has_none():
    found = rows([run("adam", 0, 80.0), run("madam", 0, 82.0)], SMALL)
    assert the(found)["better"] == the(found, metric="error")["better"] == "madam"
    found = rows([run("adam", 0, 83.0), run("madam", 0, 82.0)], SMALL)
    assert the(found)["better"] == the(found, metric="error")["better"] == "adam"
    assert the(rows([run("adam", 0, 82.0), run("madam", 0, 82.0)], SMALL))["better"] is None
    assert the(rows([run("adam", 0, 82.0)], SMALL))["better"] is None


def test_best_rates_are_best_on_validation_data_by_the_primary_metric():
    records = grid()
    row = the(rows(records, SMALL), "best", "error")
    for optimizer in ("adam", "madam", "marginal", "mtadam"):
        means = {}
        for lr in (1e-4, 1e-3, 1e-2):
            mine = [r for r in records if (r["config"]["optimizer"], r["config"]["lr"]) == (optimizer, lr)]
            means[lr] = sum(r["validation"]["score"] for r in mine) / len(mine)
        best = max(means, key=means.get)
        assert (row["others"]["mtadam"]["lr"] if optimizer == "mtadam" else row["lr"][optimizer]) == best


def test_test_values_decide_nothing():
    """Whatever the test data say, the same runs are chosen; and other validation values do choose others."""

    def choices(records):
        return [(r["solver"], r["metric"], r["rate"], r["lr"], r["seeds"], r["target"]) for r in rows(records, SMALL)]

    for seed in range(10):
        records = grid(seed)
        draw = random.Random(seed)
        other = copy.deepcopy(records)
        metrics = [r["metrics"] for r in records]
        draw.shuffle(metrics)
        for record, swapped in zip(other, metrics, strict=True):
            record["metrics"] = {name: draw.choice((1, -1e3, 1e6)) * value for name, value in swapped.items()}
        assert choices(other) == choices(records)
        assert [r["adam"] for r in rows(other, SMALL)] != [r["adam"] for r in rows(records, SMALL)]
        for record in other:
            record["validation"] = {name: -value for name, value in record["validation"].items()}
        assert choices(other) != choices(records)


def test_a_rate_with_fewer_seeds_is_not_eligible_and_a_diverged_one_is_not_best():
    records = [run("adam", s, 80.0) for s in (0, 1, 2)]
    records += [run("adam", s, 99.0, lr=1e-2) for s in (0, 1)]
    records += [run("adam", s, 98.0, lr=1e-4, status="diverged" if s == 1 else "finished") for s in (0, 1, 2)]
    assert the(rows(records, SMALL), "best")["lr"]["adam"] == 1e-3


def test_equal_rates():
    def rate(records, **options):
        lrs = {v for v in the(rows(records, SMALL, **options))["lr"].values() if v is not None}
        assert len(lrs) == 1
        return lrs.pop()

    both = ("adam", "madam")
    many = [run(name, s, 1.0, lr=1e-2) for name in both for s in range(3)]
    own = [run(name, 0, 1.0, lr=1e-3) for name in both]
    assert rate(many + own) == 1e-3, "the profile's own"
    assert rate(many + own[:1]) == 1e-2, "not the profile's own, which MAdam lacks"
    assert rate(many + own, lr=1e-2) == 1e-2, "what is asked for"
    few = [run("adam", s, 1.0, lr=1e-5) for s in range(9)] + [run("madam", 8, 1.0, lr=1e-5)]
    assert rate(many + few) == 1e-2, "most common seeds, not most seeds"
    low = [run(name, s, 1.0, lr=1e-4) for name in both for s in range(3)]
    assert rate(many + low) == 1e-4, "the lowest of equals"
    assert not [r for r in rows(many, SMALL, lr=0.5) if r["rate"] == "equal"], "no runs there, no row"


def test_under_a_static_solver_the_control_is_madam():
    records = [
        run(name, s, 80.0 + s, solver=solver) for name in ("adam", "madam") for s in (0, 1) for solver in ("ls", "uw")
    ]
    found = rows(records, SMALL)
    row = the(found, solver="ls")
    assert row["marginal_is_madam"] and row["marginal"] == row["madam"] and row["lr"]["marginal"] == 1e-3
    assert row["per_seed"]["marginal"] == row["per_seed"]["madam"]
    assert row["difference_to_marginal"] == {"mean": 0.0, "low": 0.0, "high": 0.0}
    assert "marginal" not in row["seconds"], "nobody measured it"
    assert not the(found, solver="uw")["marginal_is_madam"] and the(found, solver="uw")["marginal"] is None
    measured = the(rows([*records, run("marginal", 0, 70.0, solver="ls")], SMALL), solver="ls")
    assert measured["marginal"] == 70.0 and not measured["marginal_is_madam"] and measured["seeds"] == [0]
    restless = [run(name, 0, 80.0, solver="restless") for name in ("adam", "madam")]
    assert not the(rows(restless, SMALL), solver="restless")["marginal_is_madam"]


def test_diverged_runs_are_infinitely_bad():
    records = [run("adam", s, 80.0, loss=4.0) for s in (0, 1)]
    records += [run("madam", 0, 90.0, loss=3.0), run("madam", 1, 0.0, status="diverged")]
    found = rows(records, SMALL)
    row = the(found)
    assert row["madam"] == -math.inf and the(found, metric="error")["madam"] == math.inf
    assert row["better"] == the(found, metric="error")["better"] == "adam"
    assert row["diverged"] == {"adam": 0, "madam": 1}
    assert row["deviation"]["madam"] is None and row["difference"] == {"mean": -math.inf, "low": None, "high": None}
    assert row["target"] == 4.0 and row["seconds_to_target"]["madam"] == math.inf
    assert row["seconds"]["madam"] == 10.0, "a run that broke off early saved nothing"
    both = [run(name, 0, 0.0, status="diverged") for name in ("adam", "madam")]
    row = the(rows(both, SMALL))
    assert row["difference"] is None and row["better"] is None and row["target"] is None


def test_seconds_to_the_loss_that_all_reach():
    curves = {
        ("adam", 0): [[1.0, None], [2.0, 9.0], [3.0, 5.0], [4.0, 5.5]],
        ("adam", 1): [[1.0, 8.0], [2.0, 6.0], [3.0, 3.0]],
        ("madam", 0): [[2.0, 6.0], [4.0, 4.0], [6.0, 1.0]],
        ("madam", 1): [[2.0, 5.5], [4.0, 2.0]],
        ("mtadam", 0): [[1.0, 7.0]],
    }
    records = []
    for (name, seed), curve in curves.items():
        records.append(run(name, seed, 80.0, loss=curve[-1][1]))
        records[-1]["cost"]["curve"] = curve
    row = the(rows(records, SMALL))
    assert row["target"] == 5.5, "the slow one, mtadam, is not compared and sets no target"
    assert row["seconds_to_target"] == {"adam": 3.0, "madam": 3.0, "mtadam": math.inf}
    assert row["seconds"] == {"adam": 10.5, "madam": 10.5, "mtadam": 10.0}
    assert row["peak_memory_bytes"] == {"adam": 8, "madam": 8, "mtadam": 7}
    assert row["state_bytes"] == {"adam": 5, "madam": 5, "mtadam": 5}


def test_other_optimizers_stand_beside():
    records = [run(name, s, 80.0 + s) for name in ("adam", "madam", "madam:rampup=100:ramp=paper") for s in (0, 1)]
    records[-1]["config"]["optimizer"] = "madam:ramp=paper:rampup=100"
    row = the(rows(records, SMALL))
    assert set(row["others"]) == {"madam:ramp=paper:rampup=100"}, "one spec, in whatever order it was written"
    other = row["others"]["madam:ramp=paper:rampup=100"]
    assert other["mean"] == 80.5 and other["per_seed"] == {"0": 80.0, "1": 81.0} and other["lr"] == 1e-3
    assert other["deviation"] == pytest.approx(math.sqrt(0.5))


def test_a_table_is_of_one_setting():
    cpu = [run(name, s, 80.0) for name in ("adam", "madam") for s in range(3)]
    long = [run(name, 0, 70.0, epochs=9) for name in ("adam", "madam")]
    paper = [run("adam", 0, 60.0, profile="paper", lr=1e-4)]
    other = [run("adam", 0, 1.0, benchmark="another")]
    row = the(rows(other + long + cpu, SMALL))
    assert (row["profile"], row["epochs"], row["adam"], row["left_out"]) == ("cpu", 2, 80.0, 2)
    row = the(rows(cpu + paper, SMALL))
    assert (row["profile"], row["adam"], row["left_out"]) == ("paper", 60.0, 6)
    assert the(rows(cpu + paper, SMALL, profile="cpu"))["adam"] == 80.0
    assert rows(cpu, SMALL, profile="paper") == rows([], SMALL) == []
    assert the(rows(other, SMALL, name="another"))["adam"] == 1.0


def test_every_solver_metric_and_rate_has_its_row():
    records = [run(name, 0, 80.0, solver=solver) for name in ("adam", "madam") for solver in ("mgda", "cagrad", "ls")]
    found = rows(records, SMALL)
    expected = [(s, m, r) for s in ("ls", "cagrad", "mgda") for m in ("score", "error") for r in ("equal", "best")]
    assert [(r["solver"], r["metric"], r["rate"]) for r in found] == expected, "the paper's solvers first"
    assert [r["primary"] for r in found] == [r["metric"] == "score" for r in found]
    assert all(r["paper"] is None for r in found)


def test_the_papers_figures_stand_beside_ours():
    benchmark = bench.get("sarcos-small")
    metrics = {metric.name: 1.0 for metric in benchmark.metrics}
    records = [run(name, 0, 1.0, benchmark="sarcos-small", solver="imtl") for name in ("adam", "madam")]
    for record in records:
        record["metrics"] = record["validation"] = metrics
    row = the(rows(records, benchmark), metric="avg_err", solver="imtl")
    assert row["paper"] == {"adam": [12.10, 0.29], "madam": [11.05, 0.39], "of": "sarcos"}


def test_a_run_without_the_metric_is_named_and_left_out(capsys):
    record = run("adam", 3, 80.0)
    del record["metrics"]["error"]
    found = the(rows([record, run("adam", 4, 70.0)], SMALL), rate="best")
    assert found["adam"] == 70.0 and found["seeds"] == [4]
    assert "seed 3 lacks metrics.error and is left out" in capsys.readouterr().err


def test_validation_data_are_shown_on_request():
    both = [run("adam", 0, 10.0, validation=20.0), run("madam", 0, 8.0, validation=30.0)]
    shown = {split: rows(both, SMALL, split=split)[0] for split in ("test", "validation")}
    assert (shown["test"]["adam"], shown["test"]["madam"]) == (10.0, 8.0)
    assert (shown["validation"]["adam"], shown["validation"]["madam"]) == (20.0, 30.0)
    with pytest.raises(ValueError, match="split must be test or validation"):
        rows(both, SMALL, split="train")
