"""The commands as a user types them: exit codes, messages, and real processes that are really killed."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

import toy_benchmark
from madamoo import cli
from madamoo.bench.runs import RunFolder, read_rows

TOY = toy_benchmark.__file__
DIGITS = ["run", "digits", "--epochs", "2", "--batch", "512"]


def call(*arguments, code=0):
    result = CliRunner().invoke(cli.build_app(), [str(a) for a in arguments], env={"COLUMNS": "200"})
    assert result.exit_code == code, (result.output, result.exception)
    assert "Traceback" not in result.output
    return result


def own(tmp_path, text=""):
    file = tmp_path / "own.py"
    file.write_text(Path(TOY).read_text() + "\n\n" + text)
    return file


def numbers(folder):
    record = json.loads((folder / "run.json").read_text(), parse_constant=lambda c: pytest.fail(c))
    rows, _ = read_rows(folder / "epochs.jsonl")
    return record["status"], record["metrics"], [{**row, "seconds": 0} for row in rows]


def test_run_leaves_its_files_and_is_not_repeated(tmp_path):
    first = call(*DIGITS, "--seed", "1", "--out", tmp_path / "run")
    assert re.search(r"Test: avg_acc \d+\.\d\d", first.stdout) and "Reduced: 20 epochs instead of 40" in first.stdout
    assert {"run.json", "epochs.jsonl", "checkpoint.pt"} <= {p.name for p in (tmp_path / "run").iterdir()}
    before = numbers(tmp_path / "run")
    second = call(*DIGITS, "--seed", "1", "--out", tmp_path / "run")
    assert "Already done" in second.stdout and numbers(tmp_path / "run") == before
    other = call(*DIGITS, "--seed", "2", "--out", tmp_path / "run", code=2)
    assert "holds another run: seed 1, not 2" in other.stderr


SLOW = '''
import os, time

class Slow(Toy):
    """With SLOW set, it stops at the 30th batch until it is killed."""
    count = 0

    def prepare(self, batch, generator):
        self.count += generator is not None
        while self.count == 30 and os.environ.get("SLOW"):
            time.sleep(0.01)
        return batch

BENCHMARKS = {"slow": Slow}
'''


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_killed_and_started_again_it_ends_with_the_numbers_of_an_unbroken_run(tmp_path, how):
    command = ["run", str(own(tmp_path, SLOW)), "--epochs", "20", "--solver", "uw", "--checkpoint-every", "0"]
    command += ["--model", f"{tmp_path / 'own.py'}:share=0.2"]
    call(*command, "--out", tmp_path / "whole")
    folder = RunFolder(tmp_path / "killed")
    process = subprocess.Popen(
        [sys.executable, "-c", "from madamoo.cli import main; main()", *command, "--out", str(folder.path)],
        env={**os.environ, "SLOW": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(
            signal.SIGINT, signal.SIG_DFL
        ),  # a job in the background inherits that it is ignored
    )
    while not folder.checkpoint_file.exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    assert "another process is running in" in call(*command, "--out", folder.path, code=2).stderr
    process.send_signal(how)
    said = process.communicate()[1]
    assert process.returncode == (130 if how == signal.SIGINT else -how)
    if how == signal.SIGINT:
        assert "interrupted; the same command goes on from the last checkpoint" in said and "Traceback" not in said
    assert json.loads(folder.record_file.read_text())["status"] == "running"
    call(*command, "--out", folder.path)
    assert 0 < json.loads(folder.record_file.read_text())["resumed_from"] < 30
    assert numbers(folder.path) == numbers(tmp_path / "whole")


@pytest.mark.parametrize("below", [False, True])
def test_out_that_is_a_file_is_refused(tmp_path, below):
    taken = tmp_path / "taken"
    taken.write_text("mine")
    out = taken / "below" if below else taken
    assert "taken" in call(*DIGITS, "--out", out, code=2).stderr
    assert "taken" in call("sweep", TOY, "--engine", "serial", "--seeds", "0", "--results", taken, code=2).stderr
    assert taken.read_text() == "mine"


@pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_is_told(tmp_path):
    tmp_path.chmod(0o500)
    try:
        assert "ermission" in call(*DIGITS, "--out", tmp_path / "run", code=2).stderr
    finally:
        tmp_path.chmod(0o700)


def test_missing_data_are_told_with_the_layout(tmp_path):
    for command in (["run", "sarcos", "--out", tmp_path / "run"], ["sweep", "sarcos", "--results", tmp_path / "out"]):
        said = call(*command, "--data-dir", tmp_path / "none", code=2).stderr
        assert "Expected layout" in said and "sarcos_inv.mat" in said and str(tmp_path / "none") in said
    assert not list(tmp_path.iterdir()), "no folder is left behind"


def test_run_and_table_find_each_other(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for optimizer in ("adam", "madam"):
        said = call(*DIGITS, "--optimizer", optimizer, "--device", "cpu", "--no-diagnose").output
        assert ("ramp-up of 300 steps is longer than the run of 14" in said) == (optimizer == "madam")
    assert "MAdam" in call("table", "digits").stdout
    assert "over Adam" in call("summary").stdout
    swept = call("sweep", "digits", "--solvers", "ls", "--optimizers", "adam,madam", "--seeds", "0", "--epochs", "2",
                 "--batch", "512", "--dry-run")  # fmt: skip
    assert "2 runs, 2 done, 0 to do" in swept.stderr


WRONG = [
    (["run", "nope"], "no benchmark is called 'nope'"),
    (["run", "nope.py"], "there is no file nope.py"),
    (["run", "digits", "--solver", "cagrad:d=1"], "--solver cagrad:d=1: cagrad has no option 'd'; it has c"),
    (["run", "digits", "--solver", "cagrad:c=abc"], "--solver cagrad:c=abc: c must be a number, got 'abc'"),
    (["run", "digits", "--solver", "cagrad:c=7:"], "--solver cagrad:c=7:: 'cagrad:c=7:' is not of the form"),
    (["run", "digits", "--method", "palora:rank=x"], "--method palora:rank=x: rank must be a number, got 'x'"),
    (["run", "digits", "--method", "epo:foo=1"], "--method epo:foo=1: epo has no option 'foo'"),
    (["run", "digits", "--method", "nope"], "--method nope: no method is called 'nope'"),
    (["run", "digits", "--solver", "rays:of=epo:ray=99"], "ray must be 0 to 10, got 99"),
    (["run", "digits", "--optimizer", "lion"], "--optimizer lion: no optimizer is called"),
    (["run", "digits", "--optimizer", "madam:foo=1"], "--optimizer madam:foo=1: madam has no option 'foo'"),
    (["run", "digits", "--optimizer", "madam:rampup=abc"], "rampup must be a number, got 'abc'"),
    (["run", "digits", "--optimizer", "madam:floor=abc"], "floor must be True or False, got 'abc'"),
    (["run", "digits", "--optimizer", "adam:beta1=abc"], "--optimizer adam:beta1=abc: beta1 must be a number"),
    (
        ["run", "digits", "--solver", "uw", "--optimizer", "madam:estimator=collapsed"],
        "--optimizer madam:estimator",
    ),
    (
        ["run", "digits", "--schedule", "halve:every=x"],
        "--schedule halve:every=x: every must be a number",
    ),
    (["run", "digits", "--profile", "huge"], "--profile huge: digits has the profiles paper, cpu"),
    (["run", "digits", "--lr", "-1"], "--lr -1.0: a learning rate must be positive"),
    (["run", "digits", "--lr", "abc"], "'--lr': 'abc' is not a number"),
    (["run", "digits", "--checkpoint-every", "-1"], "'--checkpoint-every': '-1' is no number of seconds"),
    (["run", "digits", "--epochs", "0"], "'--epochs': '0' is not at least 1"),
    (["run", "digits", "--seed", "1.5"], "'--seed': '1.5' is not a whole number"),
    (["run", "digits", "--seed", "99999999999999999999"], "--seed 99999999999999999999: a seed must fit"),
    (["run", "digits", "--device", "tpu"], "--device tpu: it must be cpu, cuda"),
    (["run", "digits", "--device", "cuda:99"], "--device cuda:99: torch finds"),
    (["run", "digits", "--model", "nope"], "--model nope: no model is called 'nope'"),
    (["run", "digits", "--model", "mlp:wdith=3"], "--model mlp:wdith=3: mlp has no option 'wdith'"),
    (["run", "digits", "--model", "mlp:width=-3"], "--model mlp:width=-3: it cannot be built"),
    (["run", "digits", "--model", "resnet"], "--model resnet: resnet takes images [channels, height, width]"),
    (["sweep", "digits", "--model", "lenet"], "--model lenet: lenet takes images [channels, height, width]"),
    (["sweep", "digits", "--seeds", "a"], "--seeds a: it must be whole numbers"),
    (["sweep", "digits", "--widen", "-1"], "--widen -1: it is a number of times"),
    (["sweep", "digits", "--widen", "2"], "it is a number of times, and goes with --tune-seeds"),
    (["sweep", "digits", "--tune-seeds", "a"], "--tune-seeds a: it must be whole numbers"),
    (["sweep", "digits", "--lr", "1e-3,abc"], "--lr 1e-3,abc: it must be numbers"),
    (["sweep", "digits", "--solvers", "ls,cagrad:c=abc"], "--solvers cagrad:c=abc: c must be a number"),
    (["sweep", "digits", "--engine", "slurm"], "--engine must be one of"),
    (["table", "digits"], "--results runs: there is no such folder"),
    (["summary", "--optimizer", "lion"], "--optimizer lion: it must be one of adam, sgd"),
    (["table", "nope"], "BENCHMARK nope: no benchmark is called 'nope'"),
    (["ablation", "digits", "--format", "xml", "--results", "{tmp}/x"], "format must be one of"),
]


def test_what_is_wrong_is_named_by_flag_and_value_and_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for wrong, said in WRONG:
        output = call(*(part.replace("{tmp}", str(tmp_path)) for part in wrong), code=2).output
        assert said in " ".join(output.replace("│", " ").split()), wrong
        assert not list(tmp_path.iterdir()), wrong


@pytest.mark.filterwarnings("ignore:a loss.*not finite:UserWarning")
def test_a_diverged_run_ends_with_an_error_and_whole_files(tmp_path):
    command = ["run", TOY, "--lr", "1e30", "--out", tmp_path]
    assert "diverged" in call(*command, code=1).stdout
    assert numbers(tmp_path)[:2] == ("diverged", None)
    assert "Already done" in call(*command, code=1).stdout


FAILING = """
class Failing(Toy):
    def load(self, root, profile, seed):
        if seed == 1 and not (__import__("pathlib").Path(__file__).parent / "mended").exists():
            raise KeyError("gone")
        return super().load(root, profile, seed)

BENCHMARKS = {"failing": Failing}
"""


def test_sweep_does_what_is_missing_and_a_failure_is_told_at_the_end(tmp_path):
    command = ["sweep", own(tmp_path, FAILING), "--engine", "serial", "--results", tmp_path / "out"]
    command += ["--solvers", "uw,ls:weights=(0.25,0.75)", "--optimizers", "adam,madam", "--seeds", "0,1", "--epochs", 1]
    plan = call(*command, "--dry-run").stderr
    assert "8 runs, 0 done, 8 to do" in plan and not (tmp_path / "out").exists()
    said = call(*command, code=1).stderr
    assert said.count("failed: ") == 4 and "KeyError: 'gone'" in said
    (tmp_path / "mended").touch()
    assert "8 runs, 4 done, 4 to do" in call(*command).stderr
    assert "8 runs, 8 done, 0 to do" in call(*command).stderr
    table = call("table", tmp_path / "own.py", "--results", tmp_path / "out")
    assert "uw" in table.stdout.lower()


def test_sweep_tunes_rates_on_a_few_seeds_and_runs_the_others_at_the_best(tmp_path):
    command = ["sweep", TOY, "--engine", "serial", "--results", tmp_path / "out", "--solvers", "uw", "--epochs", "1"]
    command += ["--optimizers", "adam,madam", "--tune-seeds", "5,6", "--seeds", "5,6,7,8", "--lr", "1e-4,1e-2,1e-1"]
    plan = call(*command, "--dry-run").stderr
    assert "12 runs, 0 done, 12 to do" in plan and "The rates are chosen when the 12 runs" in plan
    said = call(*command).stderr
    assert "12 runs, 0 done, 12 to do" in said and "8 runs, 4 done, 4 to do" in said
    records = [json.loads(file.read_text()) for file in (tmp_path / "out").rglob("run.json")]
    assert len(records) == 12 + 4
    for name in ("adam", "madam"):
        mine = [r for r in records if r["config"]["optimizer"] == name]
        errors = {lr: [0.0, []] for lr in (1e-4, 1e-2, 1e-1)}
        for record in mine:
            lr, seed = record["config"]["lr"], record["config"]["seed"]
            errors[lr][0] += record["validation"]["error"] * (seed in (5, 6))
            errors[lr][1].append(seed)
        best = min(errors, key=errors.get)
        assert {lr: sorted(seeds) for lr, (_, seeds) in errors.items()} == {
            lr: [5, 6, 7, 8] if lr == best else [5, 6] for lr in errors
        }
        assert f"uw {name}: rate {best:g}" in said
    assert "8 runs, 8 done, 0 to do" in call(*command).stderr, "the same choice again"
    table = call("table", TOY, "--results", tmp_path / "out", "--format", "json")
    row = next(r for r in json.loads(table.stdout) if r["primary"] and r["rate"] == "best")
    assert row["seeds"] == [5, 6, 7, 8]
    two = call("sweep", f"digits,{TOY}", *command[2:], "--dry-run").stderr
    assert "24 runs, 12 done, 12 to do" in two, "several benchmarks make one sweep"


def test_sweep_goes_beyond_a_best_rate_at_an_end(tmp_path):
    command = ["sweep", TOY, "--engine", "serial", "--results", tmp_path / "out", "--solvers", "uw", "--epochs", "1"]
    command += ["--optimizers", "adam", "--tune-seeds", "0", "--seeds", "0,1", "--lr", "1e-6,2e-6", "--widen", "3"]
    said = call(*command).stderr
    records = [json.loads(file.read_text()) for file in (tmp_path / "out").rglob("run.json")]
    rates = {record["config"]["lr"] for record in records if record["config"]["seed"] == 0}
    assert rates == {1e-6, 2e-6, 4e-6, 8e-6, 16e-6}, "so small a rate learns nothing: twice as much is better each time"
    assert "uw adam: rate 1.6e-05, the highest that was tried (5 trials)" in said
    assert {record["config"]["lr"] for record in records if record["config"]["seed"] == 1} == {16e-6}
    assert "2 runs, 2 done, 0 to do" in call(*command).stderr, "the same choice again"


def test_sweep_leaves_runs_to_the_process_that_does_them(tmp_path):
    command = ["sweep", TOY, "--engine", "serial", "--results", tmp_path, "--solvers", "uw", "--optimizers", "adam"]
    command += ["--seeds", "0,1", "--epochs", "1"]
    call(*command)
    (folder, _) = sorted(p.parent for p in tmp_path.rglob("run.json"))
    (folder / "run.json").unlink()
    with RunFolder(folder).locked():
        assert "1 runs were left to another process" in call(*command).stderr
        tuned = call(*command, "--tune-seeds", "0,1").stderr
        assert "The rates are chosen when the 1 runs" in tuned and "adam: rate" not in tuned


def test_sweep_in_processes_with_a_benchmark_and_a_model_of_ones_own(tmp_path, monkeypatch):
    own(tmp_path)
    monkeypatch.chdir(tmp_path)
    command = ["sweep", "own.py", "--model", "own.py:share=0.1", "--results", "out", "--workers", "1"]
    call(*command, "--solvers", "uw", "--optimizers", "adam,madam", "--seeds", "0", "--epochs", "1")
    assert len(list((tmp_path / "out" / "own.py").glob("*/run.json"))) == 2


def test_ablation_runs_its_variants_once_and_prints_a_table(tmp_path):
    command = ["ablation", TOY, "--solver", "uw", "--seeds", "0", "--epochs", "1", "--engine", "serial"]
    first = call(*command, "--results", tmp_path)
    assert "13 runs, 0 done, 13 to do" in first.stderr
    for label in ("paper's form", "without pair sampling", "control (marginal)", "error"):
        assert label in first.stdout
    again = call(*command, "--results", tmp_path, "--format", "json")
    assert "13 done, 0 to do" in again.stderr and len(json.loads(again.stdout)) == 13


def test_data_lists_what_is_here(tmp_path, monkeypatch):
    monkeypatch.delenv("MADAMOO_DATA", raising=False)
    nothing = call("data").stdout
    assert "no folder" in nothing and re.search(r"digits +2 objectives +embedded", nothing)
    assert re.search(r"multimnist +2 objectives +missing", nothing) and os.environ["MADAMOO_CACHE"] in nothing
    (tmp_path / "mulan").mkdir()
    (tmp_path / "mulan" / "enb.arff").touch()
    some = call("data", "--data-dir", tmp_path).stdout
    for word in ("CC BY-SA 3.0", "non-commercial research only", "Metric-Aware Multi-Objective Adam", "Fengbei Liu"):
        assert word in some
    assert re.search(r"mulan/enb +2 objectives +here", some) and re.search(r"mulan/wq +14 objectives +missing", some)


def test_missing_filelock_is_told_in_one_line(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "filelock", None)
    monkeypatch.setattr(sys, "argv", ["madamoo", *DIGITS, "--out", str(tmp_path / "out")])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == "This command needs filelock, which is not installed: pip install 'madamoo[bench]'"
