"""The selftest: it passes where all is well, and it fails where something was broken on purpose."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from madamoo import MultiObjective, solvers
from madamoo.cli import build_app
from madamoo.metric import _averages, _estimators, _preference, _ramp
from madamoo.selftest import CHECKS, Outcome, Report, Skipped, describe, environment, measure_speed, run_checks
from madamoo.solvers import CAGrad

CPU = torch.device("cpu")
QUICK = [name for name in CHECKS if not name.startswith("solver ")] + ["solver cagrad", "solver uw", "solver graddrop"]
COMMAND = "madamoo.selftest.CHECKS"


def outcomes(names, device=CPU):
    return {o.name: o for o in run_checks({name: CHECKS[name] for name in names}, device)}


def failures(names):
    return {name for name, outcome in outcomes(names).items() if outcome.failed}


def test_all_is_well_on_the_cpu():
    found = outcomes(QUICK)
    assert {o.name: o.message for o in found.values() if o.failed} == {}
    assert [name for name, o in found.items() if o.state == "skipped"] == ["the device computes what the CPU does"]
    assert set(CHECKS) >= {f"solver {name}" for name in solvers.available()}


def test_a_wrong_metric_fails(monkeypatch):
    """A root that is not quite the square root. (One factor on all of M would be lost in Adam.)"""
    right = _ramp.metric_of
    monkeypatch.setattr(_preference, "metric_of", lambda *args, **kwargs: right(*args, **kwargs).pow(1.02))
    assert failures(QUICK[:4]) == {
        "one objective is Adam on the whitened gradient",
        "the fast metric is the reference",
        "the eigenbasis is SOAP under constant weights",
    }


def test_a_wrong_average_of_pairs_fails(monkeypatch):
    """Cross terms that are forgotten change ``full`` and leave ``collapsed`` alone."""
    right = _averages.all_pairs
    monkeypatch.setattr(_estimators, "all_pairs", lambda objectives: [p for p in right(objectives) if p[0] == p[1]])
    assert failures(QUICK[:3]) == {"full with constant weights is collapsed", "the fast metric is the reference"}


def test_a_wrong_solver_fails(monkeypatch):
    weights = CAGrad.weights
    monkeypatch.setattr(
        CAGrad, "weights", lambda self, losses, gram=None, preference=None: weights(self, losses, gram) * losses
    )
    (outcome,) = outcomes(["solver cagrad"]).values()
    assert outcome.failed and "uses_losses" in outcome.message


def test_a_checkpoint_that_forgets_fails(monkeypatch):
    load = MultiObjective.load_state_dict

    def forget(self, state):
        load(self, {**state, "state": {}})

    monkeypatch.setattr(MultiObjective, "load_state_dict", forget)
    assert "resume bit for bit: ls" in failures([name for name in QUICK if name.startswith("resume")])


def test_a_scale_that_stays_fails(monkeypatch):
    backward = MultiObjective.backward
    monkeypatch.setattr(
        MultiObjective,
        "backward",
        lambda self, losses, preference=None, scaler=None, **rest: backward(self, losses, preference, **rest),
    )
    assert "a GradScaler changes nothing" in failures(["a GradScaler changes nothing"])


def test_a_crash_is_a_failure_and_the_next_check_runs():
    def crash(device):
        raise ZeroDivisionError("by\nzero")

    def skip(device):
        raise Skipped("no such thing")

    found = list(run_checks({"a": crash, "b": skip, "c": lambda device: None}, CPU))
    assert [o.state for o in found] == ["failed", "skipped", "passed"]
    assert found[0].message.startswith("ZeroDivisionError: by zero") and found[1].message == "no such thing"


def test_on_a_second_device():
    """Every solver and estimator train there as on the CPU; the device is emulated, without generator and autocast."""
    if not hasattr(torch.utils.backend_registration, "_setup_privateuseone_for_python_backend"):
        pytest.skip("this torch cannot emulate a device")
    script = Path(__file__).with_name("on_emulated_device.py")
    names = [name for name in QUICK if "averages in bfloat16" not in name and "autocast" not in name]
    run = subprocess.run([sys.executable, str(script), *names], capture_output=True, text=True, check=True)
    found = [json.loads(line) for line in run.stdout.splitlines()]
    assert [o["name"] for o in found] == names
    assert {o["name"]: o["message"] for o in found if o["state"] != "passed"} == {}


def test_speed_is_measured_for_each():
    speed = measure_speed(CPU, seconds=0.0, width=8)
    assert next(iter(speed)) == "Adam" and len(speed) == 5 and min(speed.values()) > 0


def test_the_report_says_what_failed_and_where():
    machine = environment(CPU)
    assert machine["torch"] == torch.__version__ and str(Path.home()) not in str(machine)
    report = Report(
        machine, [Outcome("a", "passed", "", 1.0), Outcome("b", "failed", "why", 2.0)], {"Adam": 2.0, "x": 3.0}
    )
    text = describe(report)
    assert report.failed and "1 passed, 1 failed, 0 skipped in 3 s" in text and "failed: b: why" in text
    assert text.splitlines()[-2].split() == ["x", "3.00", "1.50"]


def run_command(monkeypatch, checks, *arguments):
    monkeypatch.setattr(COMMAND, checks)
    return CliRunner().invoke(build_app(), ["selftest", "--device", "cpu", "--no-speed", *arguments])


def test_the_command_writes_json_and_exits_with_one_on_failure(monkeypatch, tmp_path):
    def wrong(device):
        raise AssertionError("it is wrong")

    file = tmp_path / "report.json"
    result = run_command(monkeypatch, {"right": lambda device: None, "wrong": wrong}, "--json", str(file))
    assert result.exit_code == 1 and "failed   wrong: AssertionError: it is wrong" in result.output
    written = json.loads(file.read_text())
    assert [check["state"] for check in written["checks"]] == ["passed", "failed"] and written["machine"]["torch"]
    assert run_command(monkeypatch, {"right": lambda device: None}).exit_code == 0


def test_a_device_that_is_not_there_is_named():
    result = CliRunner().invoke(build_app(), ["selftest", "--device", "cuda:99"])
    assert result.exit_code == 2 and "cuda:99" in result.output
