"""What stands in the table of a benchmark; how it is written is tested with the tables."""

import csv
import io
import json
import math
import re

import pytest

from madamoo import bench
from madamoo.bench.analysis import render_table, rows

SARCOS = bench.get("sarcos-small")
SCORES = {("ls", "adam"): 11.0, ("ls", "madam"): 10.0, ("cagrad", "adam"): 10.5, ("cagrad", "madam"): 10.75}


def records(extra=(), seeds=2, **config):
    """Runs whose values are their score plus a tenth of their seed; MAdam is better at 1e-2."""
    found = []
    for (solver, optimizer), score in {**SCORES, **dict(extra)}.items():
        for lr in (1e-3, 1e-2):
            for seed in range(seeds):
                value = score + seed / 10 - (lr == 1e-2 and optimizer == "madam")
                metrics = {metric.name: value for metric in SARCOS.metrics}
                identity = {"benchmark": SARCOS.name, "profile": "cpu", "solver": solver, "optimizer": optimizer}
                found.append(
                    {
                        "config": {
                            **identity,
                            "lr": lr,
                            "seed": seed,
                            "epochs": 2,
                            "batch": 8,
                            "model": "m",
                            "schedule": "constant",
                            **config,
                        },
                        "status": "finished",
                        "metrics": metrics,
                        "validation": metrics,
                        "validation_loss": value,
                        "cost": {"seconds": 2.0, "curve": [[1.0 if optimizer == "madam" else 4.0, value]]},
                    }
                )
    return found


def table(text, rate):
    """The lines of a block, without title and rule."""
    (block,) = (b for b in text.split("\n\n") if rate in b and "other optimizers" not in b)
    return block.splitlines()[1:2] + block.splitlines()[3:]


def test_text_by_eye():
    text = render_table(rows(records([(("cagrad", "marginal"), 10.6)]), SARCOS), "text")
    heading, ls, cagrad = table(text, "all at the same")
    assert re.split(r"  +", heading) == [
        *("solver", "Adam", "control", "MAdam", "MAdam - Adam", "paper", "lr", "time", "seeds"),
    ]
    assert re.split(r"  +", ls) == [
        *("ls", "11.05 ± 0.07", "= MAdam", "*10.05 ± 0.07", "-1.00 [-1.00, -1.00]"),
        *("10.99 -> 10.00 †", "1e-3", "0.25", "2"),
    ]
    assert re.split(r"  +", cagrad)[1:4] == ["*10.55 ± 0.07", "10.65 ± 0.07", "10.80 ± 0.07"]
    _, ls, cagrad = table(text, "each at its best")
    assert "≤1e-3/≥1e-2/≥1e-2" in ls and "≤1e-3/≤1e-3/≥1e-2" in cagrad and "*9.80 ± 0.07" in cagrad
    assert "lr: ≥ the highest rate that was tried: a better one may lie above it; ≤ the lowest that was tried." in text
    assert "≥" not in render_table([row for row in rows(records(), SARCOS) if row["rate"] == "equal"])
    assert "† The paper's figure is of sarcos" in text
    assert text.index("all at the same") < text.index("each at its best")


def test_columns_without_content_are_left_out():
    only = [r for r in records(seeds=1) if r["config"]["optimizer"] == "adam" and r["config"]["solver"] == "ls"]
    heading, _ = table(render_table(rows(only, SARCOS), "text"), "all at the same")
    assert re.split(r"  +", heading) == ["solver", "Adam", "paper", "lr", "seeds"]


def test_other_optimizers_have_a_table_of_their_own():
    text = render_table(rows(records([(("ls", "mtadam"), 12.0)]), SARCOS), "text")
    (block,) = (b for b in text.split("\n\n") if "same learning rate; other optimizers" in b)
    assert re.split(r"  +", block.splitlines()[-1]) == ["ls", "mtadam", "12.05 ± 0.07", "1e-3", "2"]


def test_diverged_runs_are_called_so():
    found = records()
    for record in found:
        config = record["config"]
        if (config["solver"], config["optimizer"], config["seed"]) == ("ls", "adam", 1):
            record.update(status="diverged", metrics=None, validation=None, validation_loss=None)
    _, ls, _ = table(render_table(rows(found, SARCOS), "text"), "all at the same")
    assert "1 of 2 diverged" in ls and "*10.05" in ls and "inf" not in ls and "nan" not in ls


def test_runs_that_are_left_out_are_mentioned():
    found = rows([*records(), *records(epochs=9)[:3]], SARCOS)
    for format in ("text", "markdown", "latex"):
        assert "3 runs of other profiles or sizes are not shown" in render_table(found, format)


def test_metric():
    found = rows(records(), SARCOS)

    def shown(format, **options):
        text = render_table(found, format, **options).replace("\\_", "_")
        return {metric.name for metric in SARCOS.metrics if f", {metric.name}, lower is better" in text}

    for format in ("text", "markdown", "latex"):
        assert shown(format) == shown(format, metric="primary") == {"avg_err"}
        assert shown(format, metric="all") == {metric.name for metric in SARCOS.metrics}
        assert shown(format, metric="t3") == {"t3"}


def test_wrong_arguments_are_named():
    found = rows(records(), SARCOS)
    with pytest.raises(ValueError, match=r"one of avg_err, t1, .*got 'accuracy'"):
        render_table(found, metric="accuracy")
    with pytest.raises(ValueError, match="text, markdown, latex, csv, json, got 'html'"):
        render_table(found, "html")


def test_no_runs():
    assert json.loads(render_table([], "json")) == []
    for format in ("text", "markdown", "latex"):
        assert "no runs" in render_table([], format)
    assert render_table([], "csv").strip() == ""


def test_json_holds_the_rows_with_null_for_infinite():
    found = rows(records([(("ls", "mtadam"), 9.0)]), SARCOS)
    assert json.loads(render_table(found, "json")) == found
    assert len(json.loads(render_table(found, "json", metric="primary"))) == 4
    found[0]["madam"], found[0]["difference"] = math.inf, {"mean": math.nan, "low": None, "high": None}
    read = json.loads(render_table(found, "json"), parse_constant=lambda name: pytest.fail(name))
    assert read[0]["madam"] is None and read[0]["difference"]["mean"] is None


def test_csv_has_one_line_a_row_at_full_precision():
    extra = [(("cagrad:c=0.2", "adam"), 1 / 3), (("ls", "madam:beta1=0"), 2.0), (("ls", "madam:beta1=0.5"), 2.0)]
    found = rows(records(extra), SARCOS)
    read = list(csv.DictReader(io.StringIO(render_table(found, "csv"))))
    assert len(read) == len(found)
    for line, row in zip(read, found, strict=True):
        assert None not in line and (line["solver"], line["metric"], line["rate"]) == (
            *(row["solver"], row["metric"], row["rate"]),
        )
        assert float(line["adam"]) == row["adam"]
        assert line["difference.mean"] == ("" if row["difference"] is None else repr(row["difference"]["mean"]))
        assert line["seeds"] == "0 1" and line["per_seed.adam.1"] == repr(row["per_seed"]["adam"]["1"])
    assert read[0]["seconds.madam:beta1=0"] == read[0]["seconds.madam:beta1=0.5"] == "2.0"
    assert "difference" not in read[0] and read[0]["paper.adam"] == "10.99 0.59"


def test_several_benchmarks_make_a_table_per_solver_and_count_what_was_learned():
    """Errors of 0.9 and more are nothing: they are shown, and no one is the better."""
    scores = {"pinn/burgers1d": (0.2, 0.1), "pinn/wave1d": (0.3, 0.95), "pinn/ns2d-cavity": (0.99, 0.91)}
    found = []
    for name, (adam, madam) in scores.items():
        for solver, optimizer, value in (("lra", "adam", adam), ("lra", "madam", madam), ("ls", "soap", 0.5)):
            (record,) = records({("ls", "adam"): value}, seeds=1)[:1]
            identity = {"benchmark": name, "solver": solver, "optimizer": optimizer, "lr": 3e-3}
            metrics = {"error": value}
            record = {**record, "config": {**record["config"], **identity}, "metrics": metrics, "validation": metrics}
            found.append(record)
    lines = [row for name in scores for row in rows(found, bench.get(name))]
    text = render_table(lines, "text")
    assert text.count("lra (cpu), error") == text.count("ls (cpu), error, lower is better: all at the same") * 2 == 2
    heading, *body = table(text, "lra (cpu), error, lower is better: all at the same")
    assert [line.split()[0] for line in (heading, *body)] == ["benchmark", *scores]
    assert ["*" in line for line in body] == [True, True, False] and "*0.10000" in body[0] and "*0.30000" in body[1]
    assert "NaN -> NaN" in body[2], "the paper's runs did not converge"
    assert "lra, all at the same learning rate: MAdam is ahead in 1 of 2 lines that count; 1 are equal" in text
    assert "counts where one of the two is better than 0.9" in text.replace("\n", " ")
    assert "lines that count" not in render_table(rows(found, bench.get("pinn/wave1d")), "text")


def trained(found, curves):
    """The same records with curves of the training loss: optimizer -> (losses by epoch), the seed added to each."""
    for record in found:
        losses = curves[record["config"]["optimizer"]]
        seconds = 2.0 if record["config"]["optimizer"] == "madam" else 1.0
        record["cost"]["training"] = [
            [10 * (k + 1), seconds * (k + 1), None if loss is None else loss + record["config"]["seed"]]
            for k, loss in enumerate(losses)
        ]
    return found


def test_the_training_loss_stands_beside_the_test_error():
    extra = [(("ls", "soap"), 9.0), (("ls", "sgd"), 12.0)]
    found = trained(
        [r for r in records(extra) if r["config"]["solver"] == "ls"],
        {"adam": (9, 6, 5, 4), "madam": (6, 4, 3, 2), "soap": (3, None, 1, 1), "sgd": (9, 9, 9, 9)},
    )
    made = rows(found, SARCOS)
    text = render_table(made, "text")
    heading, ls = table(text, "all at the same")
    found_cells = dict(zip(re.split(r"  +", heading), re.split(r"  +", ls), strict=True))
    # The target is Adam's final loss, 4 and 5: MAdam has it after 20 of 40 steps, and 4 of 4 seconds.
    assert found_cells["train loss"] == "4.5 -> 2.5" and found_cells["steps"] == "0.50"
    assert found_cells["seconds"] == "1.00" and "time" not in found_cells
    soap, sgd = (next(line for line in text.splitlines() if name in line) for name in ("soap", "sgd"))
    assert re.split(r"  +", soap)[-4:] == ["1.5", "0.25", "0.25", "2"]
    assert re.split(r"  +", sgd)[-4:] == ["9.5", "never", "never", "2"]
    assert "Steps, seconds: to the highest final training loss" in " ".join(text.split())
    assert "validation loss" not in text.replace("best learning rate on validation", "")
    training = made[0]["training"]["madam"]
    assert training == {"loss": 2.5, "steps": 20.0, "seconds": 4.0}


def test_a_target_is_that_of_runs_that_all_have_a_training_loss():
    found = trained(records(), {"adam": (4, 3), "madam": (4, 2)})
    for record in found:
        if record["config"]["optimizer"] == "adam" and record["config"]["seed"] == 1:
            del record["cost"]["training"]  # of an earlier version
    row = rows(found, SARCOS)[0]
    assert row["training"]["madam"]["loss"] == 2.0, "of seed 0 alone"
    diverged = trained(records(), {"adam": (4, 3), "madam": (4, 2)})
    for record in diverged:
        if record["config"]["optimizer"] == "madam" and record["config"]["seed"] == 1:
            record |= {"status": "diverged", "metrics": None, "validation": None}
    row = rows(diverged, SARCOS)[0]
    assert row["training"]["madam"]["steps"] == math.inf and row["training"]["adam"]["steps"] == 20.0
