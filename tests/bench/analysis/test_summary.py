import json

import pytest

from madamoo.bench import get
from madamoo.bench.analysis import draw_summary
from madamoo.bench.analysis._summary import Gain, counts, render_summary, summarise

SIZE = {"profile": "cpu", "epochs": 2, "batch": 8, "model": "m", "schedule": "cosine", "lr": 0.1}


def records(benchmark, solver, values, moved=0.25):
    """``values``: optimizer -> primary metric by seed."""
    problem = get(benchmark)
    found = []
    for optimizer, by_seed in values.items():
        for seed, value in enumerate(by_seed):
            metrics = {metric.name: value for metric in problem.metrics}
            config = {"benchmark": benchmark, "solver": solver, "optimizer": optimizer, "seed": seed, **SIZE}
            cost = {"seconds": 1.0, "curve": [[1.0, 1.0]]}
            found.append(
                {
                    "config": config,
                    "status": "finished",
                    "metrics": metrics,
                    "validation": metrics,
                    "validation_loss": 1.0,
                    "weights_moved": moved,
                    "cost": cost,
                }
            )
    return found


def test_an_error_and_an_accuracy_have_one_unit():
    found = records("sarcos-small", "uw", {"adam": [10, 20], "madam": [9, 18], "marginal": [10, 18]})
    found += records("digits", "uw", {"adam": [90, 80], "madam": [91, 82]})  # errors 10, 20 and 9, 18
    digits, sarcos = summarise(found)
    assert digits.over_adam.mean == pytest.approx(10.0) == sarcos.over_adam.mean
    assert (sarcos.over_adam.low, sarcos.over_adam.high) == pytest.approx((10.0, 10.0))
    assert sarcos.over_control.mean == pytest.approx(5.0) and digits.over_control is None
    assert sarcos.paper == pytest.approx(100 * (1 - 9.92 / 10.83)) and digits.paper is None
    assert sarcos.moved == 0.25 and sarcos.seeds == 2


def test_cells_whose_rates_end_where_the_search_ended_are_named():
    found = records("digits", "uw", {"adam": [90, 80], "madam": [91, 82]})
    (cell,) = summarise(found)
    assert cell.doubts == ("adam", "madam")
    assert "In 1 of 1 cells" in render_summary([cell]) and "digits uw (adam, madam)." in render_summary([cell])
    for lr in (0.01, 1.0):
        more = records("digits", "uw", {"adam": [70, 60], "madam": [71, 92 if lr == 1.0 else 62]})
        found += [{**one, "config": {**one["config"], "lr": lr}} for one in more]
    (cell,) = summarise(found)
    assert cell.doubts == ()
    assert "lowest" not in render_summary([cell])


def test_an_improvement_is_a_gain_already():
    (cell,) = summarise(records("nyuv2", "ls", {"adam": [-10, -12], "madam": [-9, -10]}))
    assert cell.over_adam.mean == pytest.approx(1.5)
    assert cell.over_control is None, "under constant weights the control is MAdam itself"


def test_a_variant_stands_in_for_madam():
    found = records("digits", "uw", {"adam": [90, 80], "madam": [80, 60], "madam:normalise=True": [91, 82]})
    (cell,) = summarise(found, optimizer="madam:normalise=true")  # however it is typed
    assert cell.over_adam.mean == pytest.approx(10.0)
    assert "MAdam (normalise=True)" in render_summary([cell])
    assert summarise(found)[0].over_adam.mean == pytest.approx(-100.0)
    assert summarise(found, optimizer="madam:every=2") == []


def test_losses_are_counted_as_plainly_as_wins():
    gains = [Gain(2.0, 1.0, 3.0), Gain(-4.0, -5.0, -3.0), Gain(-1.0, -3.0, 1.0), Gain(0.0, None, None), None]
    assert counts(gains) == {
        "cells": 4,
        "at_least_as_good": 2,
        "significantly_better": 1,
        "significantly_worse": 1,
        "mean_gain": pytest.approx(-0.75),
    }
    assert counts([None])["mean_gain"] is None


def test_a_pair_that_learned_nothing_is_shown_and_not_counted():
    found = records("pinn/wave1d", "lra", {"adam": [0.5, 0.6], "madam": [0.25, 0.3], "marginal": [0.9, 0.95]})
    found += records("pinn/heat5d", "lra", {"adam": [0.99, 0.95], "madam": [0.9, 0.95], "marginal": [0.4, 0.4]})
    found += records("pinn/poisson5d", "lra", {"adam": [1.0, 1.0], "madam": [1.1, 0.7], "marginal": [0.95, 1.0]})
    cells = summarise(found)
    over_adam, over_control = [cell.over_adam for cell in cells], [cell.over_control for cell in cells]
    assert [gain.counted for gain in over_adam] == [False, False, True]  # heat, poisson (mean 0.9), wave
    assert [gain.counted for gain in over_control] == [True, False, True]
    assert counts(over_adam)["cells"] == 1 and counts(over_control)["cells"] == 2
    text = render_summary(cells)
    assert "(+4.5" in text and "In brackets, and not counted" in text and "in 1 of 1 cells" in text


def test_a_cell_needs_both_of_a_pair():
    assert summarise(records("digits", "uw", {"adam": [90.0]})) == []
    assert "No cells" in render_summary([])


def test_text_data_and_figures(tmp_path):
    cells = summarise(
        records("sarcos-small", "ls", {"adam": [10, 20], "madam": [11, 22]}, moved=0.0)
        + records("sarcos-small", "uw", {"adam": [10, 20], "madam": [9, 18], "marginal": [10, 18]})
    )
    text = render_summary(cells)
    assert "at least as good in 1 of 2 cells, significantly better in 1, significantly worse in 1" in " ".join(
        text.split()
    )
    assert [cell["over_adam"]["mean"] for cell in json.loads(render_summary(cells, "json"))] == pytest.approx([-10, 10])
    with pytest.raises(ValueError, match="format must be one of"):
        render_summary(cells, "xml")
    for path in draw_summary(cells, tmp_path / "figures"):
        drawn = path.read_text()
        assert drawn.lstrip().startswith("<?xml") and "uw" in drawn


def test_the_best_other_is_chosen_on_validation_data():
    values = {
        "adam": [10.0, 12.0, 11.0],
        "madam-paper": [1.0, 1.0, 1.0],  # a form of MAdam
        "marginal": [9.0, 9.0, 9.0],
        "madam": [8.0, 9.6, 8.8],
        "soap": [7.0, 8.0, 7.5],
        "muon": [5.0, 6.0],  # lacks a seed
        "madam:every=2": [1.0, 1.0, 1.0],  # a variant is no control
    }
    found = records("sarcos-small", "uw", values)
    (cell,) = summarise(found)
    assert cell.best == "soap"
    gains = [100 * (1 - m / s) for m, s in zip(values["madam"], values["soap"], strict=True)]
    assert cell.over_best.mean == pytest.approx(sum(gains) / 3)
    for record in found:
        if record["config"]["optimizer"] == "soap":
            record["validation"] = {name: 99.0 for name in record["validation"]}
    assert summarise(found)[0].best == "marginal"
    static = records("sarcos-small", "ls", {"adam": [10.0, 12.0], "madam": [8.0, 9.0]})
    assert summarise(static)[0].best == "adam", "under constant weights the control is MAdam itself"
    text = render_summary(summarise(static))
    assert "over the best other" not in text and "over control" not in text


def test_not_worse_than_adam_by_more_than_the_margin():
    found = records("sarcos-small", "uw", {"adam": [100.0] * 4, "madam": [99.9, 100.1, 100.0, 99.8]})
    found += records("sarcos-small", "dwa", {"adam": [100.0] * 4, "madam": [104.0, 104.1, 104.2, 104.0]})
    found += records("digits", "uw", {"adam": [90.0, 91.0, 92.0, 93.0], "madam": [92.0, 90.0, 93.0, 92.0]})
    text = " ".join(render_summary(summarise(found)).split())
    assert (
        "Not worse than Adam by more than 1 %: shown in 1 of 3 cells; worse by more than that: sarcos-small dwa" in text
    )
    single = " ".join(render_summary(summarise(records("digits", "uw", {"adam": [90.0], "madam": [91.0]}))).split())
    assert "Not worse" not in single


def test_the_training_loss_is_a_part_of_adams():
    found = records("sarcos-small", "uw", {"adam": [10.0, 12.0], "madam": [8.0, 9.0]})
    for record in found:
        losses = (4.0, 1.0, 0.2) if record["config"]["optimizer"] == "madam" else (4.0, 3.0, 2.0)
        record["cost"]["training"] = [[5 * k, 3.0 * k, loss] for k, loss in enumerate(losses, 1)]
    (cell,) = summarise(found)
    assert (cell.train_loss, cell.steps, cell.seconds) == pytest.approx((0.1, 2 / 3, 2 / 3))
    heading, _, line = render_summary([cell]).splitlines()[1:4]
    assert "train loss" in heading and "0.67" in line


def test_a_benchmark_with_options_is_one_of_this_package(capsys):
    """Its name in a record executes nothing; options that it does not have are left out, and said."""
    found = records("ph2:deep=2", "uw", {"adam": [90, 80], "madam": [91, 82]})
    assert [cell.benchmark for cell in summarise(found)] == ["ph2:deep=2"]
    for record in found:
        record["config"]["benchmark"] = "ph2:depth=2"
    assert summarise(found) == [] and "ph2:depth=2 are left out" in capsys.readouterr().err
