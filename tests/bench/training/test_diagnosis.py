"""A diagnosed run: the same numbers, and a record in which every measured step stands once, whatever was killed."""

import json
import os
import random
from contextlib import suppress

import pytest
import torch

import toy_benchmark
from killing import kill_after
from madamoo.bench import configure
from madamoo.bench.runs import RunFolder, read_records, read_rows
from madamoo.bench.training import _run as module
from madamoo.bench.training import train
from madamoo.bench.training._diagnosis import ROWS

TOY = toy_benchmark.__file__


def toy(**options):
    return configure(TOY, **options)


def weights(folder):
    """All that the next step would depend on."""
    state = RunFolder(folder).load(toy_config(folder))["training"]
    return state["model"], state["optimizer"]["state"], state["generator"]


def toy_config(folder):
    config = json.loads((folder / "run.json").read_text())["config"]
    return configure(**{**config, "benchmark": TOY})


def rows(folder):
    found, notes = read_rows(folder / "diagnostics.jsonl")
    assert not notes, "no part of a line, and no line without a checksum"
    return [{**row, "seconds": None} for row in found]


def equal(a, b):
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    return torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


@pytest.mark.parametrize(
    ("solver", "optimizer"),
    [("ls", "adam"), ("cagrad", "adam"), ("uw", "madam"), ("restless", "marginal"), ("uw", "adam"), ("ls", "mtadam")],
)
def test_the_run_is_the_same_bit_for_bit(tmp_path, solver, optimizer):
    config = toy(solver=solver, optimizer=optimizer, epochs=2, model=f"{TOY}:share=0.3")  # dropout draws at random
    plain = train(config, tmp_path / "plain")
    watched = train(config, tmp_path / "watched", diagnose=True)
    for key in ("config", "metrics", "validation", "validation_loss", "steps", "weights_moved"):
        assert watched[key] == plain[key], key
    for a, b in zip(weights(tmp_path / "plain"), weights(tmp_path / "watched"), strict=True):
        assert equal(a, b)
    assert not (tmp_path / "plain" / "diagnostics.jsonl").exists()
    assert (tmp_path / "watched" / "diagnostics.jsonl").exists() == (optimizer != "mtadam")


def test_a_record_is_small_and_names_the_benchmarks_objectives(tmp_path):
    record = train(toy(epochs=20, solver="uw"), tmp_path, diagnose=True)
    found = rows(tmp_path)
    assert record["steps"] == 120 and record["diagnosed"] == 2
    assert len(found) == 60 <= ROWS
    assert found[0]["objectives"] == ["sum", "sign"] == list(found[0]["weights"]) == list(found[0]["flips"]["adam"])
    assert found[-1]["marginalisation"]["log_distance"] >= 0
    assert len(read_records(tmp_path)) == 1  # the record of the run, and nothing is taken for another


def test_adam_is_told_of_the_metric_where_that_takes_no_pass_more(tmp_path):
    for solver, known in (("ls", True), ("cagrad", True), ("uw", False)):
        train(toy(solver=solver, optimizer="adam", epochs=1), tmp_path / solver, diagnose=True)
        assert (rows(tmp_path / solver)[-1]["flips"]["preference"] is not None) == known


class Stop(Exception):
    pass


@pytest.mark.parametrize(("solver", "optimizer"), [("uw", "madam"), ("cagrad", "adam"), ("restless", "marginal")])
def test_a_stopped_run_ends_with_the_rows_of_an_unbroken_one(tmp_path, monkeypatch, solver, optimizer):
    """Averages of the probe's own go on too: the rows are equal to the last bit, but for the time they took."""
    monkeypatch.setattr("madamoo.bench.training._diagnosis.ROWS", 7)
    config = toy(solver=solver, optimizer=optimizer)
    train(config, tmp_path / "whole", diagnose=True)
    save, stops = RunFolder.save, [1, 4, 5, 10]

    def saving(self, config, state):
        save(self, config, state)
        if stops and state["training"]["step"] >= stops[0]:
            stops.pop(0)
            with (self.path / "diagnostics.jsonl").open("a") as file:
                file.write('{"step": 17, "half a l')
            raise Stop

    with monkeypatch.context() as patch:
        patch.setattr(module, "max", lambda *values: 0.0 if values[0] == 0.0 else max(*values), raising=False)
        patch.setattr(RunFolder, "save", saving)
        for _ in range(5):
            with suppress(Stop):
                train(config, tmp_path / "broken", checkpoint_every=0.0, diagnose=True)
    assert not stops
    assert rows(tmp_path / "broken") == rows(tmp_path / "whole")
    assert [row["step"] for row in rows(tmp_path / "whole")] == [0, 3, 6, 9, 12, 15]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_killed_at_any_moment_each_step_is_there_once(tmp_path):
    config = toy(epochs=8, solver="uw")
    train(config, tmp_path / "whole", diagnose=True)
    draw = random.Random(1)
    for _ in range(5):
        kill_after(config, tmp_path / "killed", draw.randint(2, 6), draw.uniform(0.0, 0.02), diagnose=True)
    train(config, tmp_path / "killed", diagnose=True)
    assert rows(tmp_path / "killed") == rows(tmp_path / "whole")


def test_a_run_that_was_not_diagnosed_at_first_is_from_there_on(tmp_path, monkeypatch):
    config = toy(solver="uw")
    save = RunFolder.save

    def saving(self, config, state):
        save(self, config, state)
        if state["training"]["step"] == 5:
            raise Stop

    with monkeypatch.context() as patch, suppress(Stop):
        patch.setattr(module, "max", lambda *values: 0.0 if values[0] == 0.0 else max(*values), raising=False)
        patch.setattr(RunFolder, "save", saving)
        train(config, tmp_path, checkpoint_every=0.0)
    train(config, tmp_path, diagnose=True)
    assert [row["step"] for row in rows(tmp_path)] == list(range(5, 18))


def test_run_diagnoses_unless_told_not_to_and_sweep_only_if_told(tmp_path):
    from typer.testing import CliRunner

    from madamoo import cli

    def call(*arguments):
        result = CliRunner().invoke(cli.build_app(), [str(a) for a in arguments])
        assert result.exit_code == 0, (result.output, result.exception)
        return {path.parent.parent.name for path in tmp_path.rglob("diagnostics.jsonl")}

    grid = ["--engine", "serial", "--solvers", "ls", "--optimizers", "adam", "--seeds", "0", "--epochs", "1"]
    assert call("run", TOY, "--epochs", "1", "--no-diagnose", "--out", tmp_path / "plain") == set()
    assert call("sweep", TOY, *grid, "--results", tmp_path / "swept") == set()
    assert len(call("sweep", TOY, *grid, "--diagnose", "--results", tmp_path / "watched")) == 1
    assert tmp_path.name in call("run", TOY, "--epochs", "1", "--out", tmp_path / "run")
