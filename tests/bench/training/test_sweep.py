"""Many runs: the grid, what of it is missing, and that neither failures nor kills take other runs with them."""

import itertools
import json
import multiprocessing
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest

import toy_benchmark
from madamoo.bench import configure
from madamoo.bench.runs._files import write_record
from madamoo.bench.runs._folder import Busy, RunFolder
from madamoo.bench.runs._records import collect
from madamoo.bench.training import train
from madamoo.bench.training._sweep import grid, is_busy, plan, sweep

TOY = toy_benchmark.__file__


def own(tmp_path, text):
    file = tmp_path / "own.py"
    file.write_text(Path(TOY).read_text() + "\n\n" + text)
    return str(file)


def seeds(benchmark, *values, **options):
    return grid(benchmark, solvers=["uw"], optimizers=["madam"], seeds=values, epochs=1, **options)


def results(root):
    """Metrics by seed of the finished runs."""
    records = [json.loads(file.read_text()) for file in root.rglob("run.json")]
    return {r["config"]["seed"]: r["metrics"] for r in records if r["status"] == "finished"}


def test_grid_has_each_run_once_pair_by_pair_without_what_says_nothing_new():
    found = grid(
        "digits",
        solvers=["LS", "ls", "cagrad:c=0.4"],
        optimizers=["adam", "madam", "marginal", "mtadam"],
        seeds=[0, 1],
        rates=[None, 0.1],
    )
    expected = [
        (seed, lr, solver, optimizer)
        for seed, lr in itertools.product((0, 1), (3e-3, 0.1))
        for solver, optimizers in (("ls", ("adam", "madam", "mtadam")), ("cagrad:c=0.4", ("adam", "madam", "marginal")))
        for optimizer in optimizers
    ]
    assert [(c.seed, c.lr, c.solver, c.optimizer) for c in found] == expected


def test_plan_counts_what_is_done_wherever_it_lies(tmp_path, capsys):
    configs = seeds(TOY, 0, 1, 2, 3)
    root = tmp_path / "results"
    assert plan(configs, root).missing == configs and plan(configs, root).seconds is None
    train(configs[0], configs[0].folder(root))
    train(configs[1], tmp_path / "runs" / "moved")
    collect(tmp_path / "runs", root)  # packed
    train(configs[2], configs[2].folder(root))
    file = configs[2].folder(root) / "run.json"
    file.write_bytes(file.read_bytes()[:-30])
    todo = plan(configs, root)
    assert todo.missing == configs[2:] and todo.done == 2
    assert str(file) in capsys.readouterr().err


def test_expected_time_is_that_of_the_most_similar_runs(tmp_path):
    def write(number, seconds, solver="uw", optimizer="madam", epochs=2):
        config = configure(TOY, solver=solver, optimizer=optimizer, seed=number, epochs=epochs)
        record = train(config, config.folder(tmp_path), keep_checkpoint=False)
        write_record(config.folder(tmp_path) / "run.json", {**record, "cost": {"seconds": seconds}})

    write(10, 3.0)
    write(11, 4.0, optimizer="madam:rampup=3", epochs=4)
    write(12, 100.0, solver="ls", optimizer="adam")
    alike = (3.0 / 2 + 4.0 / 4) / 2  # an epoch of uw with madam
    anything = (3.0 / 2 + 4.0 / 4 + 100.0 / 2) / 3
    missing = [configure(TOY, solver="uw", epochs=6), configure(TOY, solver="cagrad", epochs=1)]
    assert plan(missing, tmp_path).seconds == pytest.approx(6 * alike + anything)
    assert plan([configure("digits")], tmp_path).seconds is None


FAILING = """
import os, signal

class Odd(Exception):
    '''Cannot be sent to another process: its module is not known there, nor can it be built from its text.'''
    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")

class Failing(Toy):
    def load(self, root, profile, seed):
        marker = os.path.join(os.path.dirname(__file__), f"killed-{seed}")
        if seed == 1:
            raise Odd("this", "that")
        if seed in (2, 3) and not (seed == 3 and os.path.exists(marker)):
            open(marker, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().load(root, profile, seed)

BENCHMARKS = {"failing": Failing}
"""


def test_serial_failures_stop_no_other_run(tmp_path):
    configs = seeds(own(tmp_path, FAILING), 0, 1, 4)
    outcomes = {config.seed: outcome for config, outcome in sweep(configs, tmp_path / "out", engine="serial")}
    assert str(outcomes[1]) == "Odd: this and that"
    assert outcomes[0]["status"] == outcomes[4]["status"] == "finished" and set(results(tmp_path / "out")) == {0, 4}


def test_processes_that_fail_or_are_killed_stop_no_other_run(tmp_path):
    """Seed 1 raises, seed 2 kills its process each time, seed 3 once."""
    file = own(tmp_path, FAILING)
    outcomes = dict(sweep(seeds(file, 2, 1, 3, 0, 4, 5), tmp_path / "out", engine="process", count=2))
    by_seed = {config.seed: outcome for config, outcome in outcomes.items()}
    assert str(by_seed[1]) == "Odd: this and that"
    assert "killed" in str(by_seed[2])
    found = results(tmp_path / "out")
    assert set(found) == {0, 3, 4, 5} and len(by_seed) == 6
    list(sweep(seeds(file, 0, 3, 4, 5), tmp_path / "serial", engine="serial"))
    assert results(tmp_path / "serial") == found, "every engine gives the same numbers"


SLOW = """
import os, time

class Slow(Toy):
    def prepare(self, batch, generator):
        with open(os.path.join(os.path.dirname(__file__), "pid"), "w") as file:
            file.write(str(os.getpid()))
        if os.path.exists(os.path.join(os.path.dirname(__file__), "slow")):
            time.sleep(3600.0)  # until it is killed
        return batch

BENCHMARKS = {"slow": Slow}
"""


def _sweep(configs, root):
    for _ in sweep(configs, root, engine="process", count=1):
        pass


def wait_for_lock(folder):
    """An orphan that lived on would hold it for an hour."""
    while True:
        with suppress(Busy), folder.locked():
            return
        time.sleep(0.02)


def test_workers_end_when_the_sweep_is_killed_and_the_next_does_what_is_missing(tmp_path):
    file = own(tmp_path, SLOW)
    configs = seeds(file, 0, 1, 2)
    train(configs[0], configs[0].folder(tmp_path / "out"))
    (tmp_path / "slow").touch()
    (tmp_path / "pid").unlink()
    parent = multiprocessing.get_context("fork").Process(target=_sweep, args=(configs[1:], tmp_path / "out"))
    parent.start()
    while not ((tmp_path / "pid").exists() and (tmp_path / "pid").read_text()):
        assert parent.is_alive()
        time.sleep(0.02)
    worker = int((tmp_path / "pid").read_text())
    assert worker != parent.pid
    with pytest.raises(Busy), RunFolder(configs[1].folder(tmp_path / "out")).locked():
        pass
    os.kill(parent.pid, signal.SIGKILL)
    parent.join()
    for config in configs[1:]:  # a worker that lived on would hold one lock, and then the other
        wait_for_lock(RunFolder(config.folder(tmp_path / "out")))
    (tmp_path / "slow").unlink()
    todo = plan(configs, tmp_path / "out")
    assert todo.missing == configs[1:]
    assert [o["status"] for _, o in sweep(todo.missing, tmp_path / "out", engine="serial")] == ["finished"] * 2
    assert plan(configs, tmp_path / "out").missing == []


def test_a_run_that_another_process_does_is_left_to_it(tmp_path):
    configs = seeds(TOY, 0, 1)
    with RunFolder(configs[0].folder(tmp_path)).locked():
        (_, first), (_, second) = sweep(configs, tmp_path, engine="serial")
    assert isinstance(first, Busy) and is_busy(first) and second["status"] == "finished" and not is_busy(second)


def test_checkpoints_of_finished_runs_are_dropped_unless_asked_for(tmp_path):
    list(sweep(seeds(TOY, 0), tmp_path / "a", engine="serial"))
    list(sweep(seeds(TOY, 0), tmp_path / "b", engine="serial", keep_checkpoints=True))
    assert not list((tmp_path / "a").rglob("checkpoint.pt")) and len(list((tmp_path / "b").rglob("checkpoint.pt"))) == 1


def test_unknown_engines_are_refused(tmp_path):
    with pytest.raises(ValueError, match="engine must be one of process, serial, ray, got 'slurm'"):
        list(sweep([], tmp_path, engine="slurm"))


def test_ray(tmp_path, monkeypatch):
    """A local cluster; its start takes 10 to 30 s. A relative path of a user's file and a failing run are in it."""
    pytest.importorskip("ray")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    own(tmp_path, FAILING)
    monkeypatch.chdir(tmp_path)
    configs = seeds("own.py", 0, 1, 4)
    outcomes = {c.seed: o for c, o in sweep(configs, Path("out"), engine="ray", count=1)}
    assert "Odd: this and that" in str(outcomes[1]) and isinstance(outcomes[1], Exception)
    list(sweep(seeds("own.py", 0, 4), Path("serial"), engine="serial"))
    assert results(tmp_path / "out") == results(tmp_path / "serial") and len(results(tmp_path / "out")) == 2
