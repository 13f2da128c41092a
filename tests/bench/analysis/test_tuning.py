"""Rates tuned on a few seeds: validation data of the trials choose, and nothing else."""

import random
from dataclasses import asdict

import pytest

from madamoo.bench import get
from madamoo.bench.analysis import finalists, wider
from madamoo.bench.training import grid

NAMES = [metric.name for metric in get("multimnist").metrics]
RATES = (1e-3, 1e-2, 1e-1)


def record(config, accuracy, *, test=50.0, status="finished"):
    done = status == "finished"
    return {
        "config": asdict(config),
        "status": status,
        "metrics": dict.fromkeys(NAMES, test) if done else None,
        "validation": dict.fromkeys(NAMES, accuracy) if done else None,
    }


def trials(seeds=(0, 1), rates=RATES, optimizers=("adam", "madam")):
    return grid("multimnist", solvers=["uw"], optimizers=optimizers, seeds=seeds, rates=rates)


@pytest.mark.parametrize("seed", range(10))
def test_the_best_mean_on_validation_data_is_chosen_whatever_else_is_there(seed):
    draw = random.Random(seed)
    tried, more = trials(), trials(seeds=(2, 3, 4))
    values = {config: draw.uniform(80, 90) for config in tried}
    records = [record(config, value, test=draw.uniform(0, 100)) for config, value in values.items()]
    records += [record(config, draw.uniform(0, 100)) for config in more]  # of an earlier sweep
    draw.shuffle(records)
    found = finalists(records, tried, (0, 1, 2, 3, 4), say=lambda _: None)
    for optimizer in ("adam", "madam"):
        means = {lr: sum(v for c, v in values.items() if (c.optimizer, c.lr) == (optimizer, lr)) for lr in RATES}
        mine = [config for config in found if config.optimizer == optimizer]
        assert {config.lr for config in mine} == {max(means, key=means.get)}
        assert [config.seed for config in mine] == [0, 1, 2, 3, 4]
    assert [config.optimizer for config in found] == ["adam", "madam"] * 5, "pair by pair"


def test_the_ends_of_the_rates_are_told_and_a_rate_that_diverged_loses():
    said = []
    tried = trials(seeds=(0,), optimizers=("adam", "madam", "marginal"))
    best = {"adam": 1e-3, "madam": 1e-1, "marginal": 1e-2}
    records = [record(config, 90.0 if config.lr == best[config.optimizer] else 80.0) for config in tried]
    finalists(records, tried, (0,), say=said.append)
    assert said == [
        "uw adam: rate 0.001, the lowest that was tried (3 trials)",
        "uw madam: rate 0.1, the highest that was tried (3 trials)",
        "uw marginal: rate 0.01 (3 trials)",
    ]
    records = [
        {**r, "status": "diverged"} if r["config"]["lr"] == best[r["config"]["optimizer"]] else r for r in records
    ]
    found = finalists(records, tried, (0,), say=lambda _: None)
    assert {c.optimizer: c.lr for c in found} == {"adam": 1e-2, "madam": 1e-3, "marginal": 1e-3}, "the lowest of equals"


def test_a_record_without_the_metric_is_named():
    tried = trials(seeds=(0,), rates=(1e-3,), optimizers=("adam",))
    lacking = record(tried[0], 80.0)
    del lacking["validation"]["avg_acc"]
    said = []
    with pytest.raises(ValueError, match="uw adam: some of its runs cannot be compared"):
        finalists([lacking], tried, (0,), say=said.append)
    assert "lacks validation.avg_acc" in said[0]


@pytest.mark.parametrize("seed", range(5))
def test_options_are_tuned_like_the_rate(seed):
    draw = random.Random(seed)
    specs = [f"adam:beta2={beta}" for beta in (0.9, 0.99, 0.999)]
    tried = trials(optimizers=("madam", *specs))
    values = {config: draw.uniform(80, 90) for config in tried}
    records = [record(config, value) for config, value in values.items()]
    contenders = dict.fromkeys(specs, "adam:beta2=0.9|0.99|0.999")
    said = []
    found = finalists(records, tried, (0, 1, 2), contenders, said.append)
    means = {}
    for config, value in values.items():
        if config.optimizer != "madam":
            means[config.optimizer, config.lr] = means.get((config.optimizer, config.lr), 0.0) + value
    best = max(means, key=means.get)
    adams = [config for config in found if config.optimizer != "madam"]
    assert {(config.optimizer, config.lr) for config in adams} == {best} and len(adams) == 3 == len(found) - 3
    assert any(line.startswith(f"uw {best[0]}: rate") and "(9 trials)" in line for line in said)


@pytest.mark.parametrize(
    ("rates", "best", "further"),
    [
        (RATES, {"adam": 1e-3, "madam": 1e-2}, {("adam", 5e-4)}),
        (RATES, {"adam": 1e-1, "madam": 1e-3}, {("adam", 2e-1), ("madam", 5e-4)}),
        (RATES, {"adam": 1e-2, "madam": 1e-2}, set()),
        ((1e-2,), {"adam": 1e-2, "madam": 1e-2}, {(name, lr) for name in ("adam", "madam") for lr in (5e-3, 2e-2)}),
    ],
)
def test_what_is_best_at_an_end_is_tried_beyond_it(rates, best, further):
    tried = trials(rates=rates)
    records = [record(config, 90.0 if config.lr == best[config.optimizer] else 80.0) for config in tried]
    found = wider(records, tried)
    assert {(config.optimizer, config.lr) for config in found} == further
    assert len(found) == 2 * len(further), "on all seeds of the trials"
    assert {config.seed for config in found} <= {0, 1}


def test_all_options_of_a_contender_get_the_further_rate():
    specs = [f"adam:beta2={beta}" for beta in (0.9, 0.99)]
    tried = trials(seeds=(0,), optimizers=specs)
    records = [record(config, 90.0 if (config.optimizer, config.lr) == (specs[0], 1e-1) else 80.0) for config in tried]
    found = wider(records, tried, dict.fromkeys(specs, "adam:beta2=0.9|0.99"))
    assert {(config.optimizer, config.lr) for config in found} == {(spec, 2e-1) for spec in specs}


def test_each_benchmark_has_rates_of_its_own():
    tried = [
        *trials(seeds=(0,), optimizers=("adam",)),
        *grid("digits", solvers=["uw"], optimizers=["adam"], seeds=[0], rates=RATES),
    ]
    best = {"multimnist": 1e-1, "digits": 1e-3}
    values = {config: 90.0 if config.lr == best[config.benchmark] else 80.0 for config in tried}
    said = []
    found = finalists([record(config, value) for config, value in values.items()], tried, (0, 1), say=said.append)
    assert {(config.benchmark, config.lr) for config in found} == set(best.items()) and len(found) == 4
    assert {config.model for config in found} == {config.model for config in tried}
    assert said[1].startswith("digits uw adam: rate 0.001")
