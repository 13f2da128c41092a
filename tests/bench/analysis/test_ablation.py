"""The ablation: its variants, and a table whose figures are those of the runs, by plain loops."""

import json
import statistics

import pytest

import toy_benchmark
from madamoo.bench import configure, get
from madamoo.bench.analysis._ablation import VARIANTS, ablation_rows, render_ablation
from madamoo.bench.runs._spec import canonical, parse

TOY = toy_benchmark.__file__


def test_variants_are_different_valid_and_change_one_thing_each():
    assert len({v.optimizer for v in VARIANTS}) == len(VARIANTS)
    for variant in VARIANTS:
        assert canonical(variant.optimizer) == variant.optimizer
        configure("digits", solver="uw", optimizer=variant.optimizer)
    options = {v.label: parse(v.optimizer)[1] for v in VARIANTS if v.paper}
    full = options["paper's form"]
    assert options["  without ramp-up"] == {**full, "rampup": 0}
    assert options["  without pair sampling"] == {**full, "estimator": "full"}
    assert options["  without off-diagonals"] == {**full, "estimator": "diagonal"}


def record(config, error, validation=None, status="finished"):
    done = status == "finished"
    validation = error if validation is None else validation
    return {
        "config": {**config.__dict__},
        "status": status,
        "metrics": {"error": error, "right": 1 - error} if done else None,
        "validation": {"error": validation, "right": 1 - validation} if done else None,
        "validation_loss": validation if done else None,
        "cost": {"seconds": 1.0, "peak_memory_bytes": 1, "state_bytes": 1, "curve": [[1.0, 1.0]]},
    }


def runs(optimizer, errors, lr=1e-2, **more):
    return [
        record(configure(TOY, solver="uw", optimizer=optimizer, seed=k, lr=lr), error, **more)
        for k, error in enumerate(errors)
    ]


def configs(records):
    return [configure(**{**r["config"]}) for r in records]


def test_figures_are_means_and_deviations_at_each_variants_best_rate_on_validation_data():
    records = [
        *runs("adam", [0.30, 0.50, 0.40]),
        *runs("madam", [0.10, 0.20, 0.60]),
        *runs("madam", [0.01, 0.01, 0.01], lr=0.5, validation=0.9),  # best by test data, worst by validation data
        *runs("madam:estimator=pair", [0.2, 0.2, 0.2]),
    ]
    found = {row["optimizer"]: row for row in ablation_rows(records, get(TOY), configs(records))}
    assert set(found) == {"adam", "madam", "madam:estimator=pair"}
    mean, deviation = found["madam"]["metrics"]["error"]
    assert mean == pytest.approx(0.3) and deviation == pytest.approx(statistics.stdev([0.1, 0.2, 0.6]))
    assert found["madam"]["lr"] == 1e-2
    assert found["adam"]["metrics"]["right"][0] == pytest.approx(0.6)


def test_runs_that_were_not_asked_for_do_not_count():
    records = [*runs("adam", [0.1, 0.3]), *runs("madam", [0.2, 0.2])]
    found = ablation_rows(records, get(TOY), configs(records[:2]))
    assert [row["optimizer"] for row in found] == ["adam"]


@pytest.mark.parametrize("format", ["text", "markdown", "latex", "csv", "json"])
def test_every_format_can_be_written_with_and_without_runs(format):
    records = [
        *runs("adam", [0.1, 0.3]),
        *runs("madam", [0.25, 0.25]),
        *runs("madam:estimator=pair", [0.0], status="diverged"),
    ]
    found = ablation_rows(records, get(TOY), configs(records))
    text = render_ablation(found, get(TOY), format)
    assert "0.25" in text and "adam" in text.lower()
    if format == "json":
        assert json.loads(text)[0]["metrics"]["error"][0] == pytest.approx(0.2)
    render_ablation([], get(TOY), format)
    with pytest.raises(ValueError, match="format must be one of"):
        render_ablation(found, get(TOY), "xml")
