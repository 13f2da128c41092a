"""Processes that are killed: ``torchrun`` starts them again, and the run ends as if nothing had happened."""

import importlib.util
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def kills():
    spec = importlib.util.spec_from_file_location("kills", ROOT / "benchmarks" / "kills.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_killed_and_started_again(kills, tmp_path):
    """Twice, in the middle of a step; the last checkpoint is the same, bit for bit."""
    assert kills.run(tmp_path / "unbroken", 0, 0, steps=20) == 0
    assert kills.run(tmp_path / "killed", 1, 2, steps=20, longest=0.0) == 2
    assert kills.same(kills.end_of(tmp_path / "killed"), kills.end_of(tmp_path / "unbroken"))


def test_an_example_of_replicas_does_what_one_process_does(tmp_path, capsys):
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    script = str(ROOT / "examples" / "ddp.py")
    done = subprocess.run(
        [*launch, script, "--folder", str(tmp_path), "--steps", "20"],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    example = runpy.run_path(script)
    example["main"](None, 20)
    alone = capsys.readouterr().out
    assert done.stdout == alone and "sum: loss" in alone
    example["main"](tmp_path, 25)  # from the checkpoint of two
    resumed = capsys.readouterr().out
    example["main"](None, 25)
    assert resumed == capsys.readouterr().out


def _saved_and_loaded(folder, part):
    """Save, leave a checkpoint behind that was never finished, and load."""
    example = runpy.run_path(str(ROOT / "examples" / "fsdp.py"))
    network, opt = example["build"]()
    opt.backward(example["losses"](network, 0, 0, 1))
    opt.step()
    example["save"](folder, 10, network, opt)
    from torch import distributed as dist

    dist.barrier()
    if dist.get_rank() == 0:
        shutil.copytree(folder / "000010", folder / "000020.part")
        next((folder / "000020.part").glob(part)).unlink()
    dist.barrier()
    network, opt = example["build"]()
    return example["load"](folder, network, opt), opt.metric.steps


@pytest.mark.parametrize("part", ["*.distcp", ".metadata"])
def test_a_checkpoint_that_was_not_finished_is_not_loaded(two, tmp_path, part):
    assert two.run(_saved_and_loaded, tmp_path, part) == [(10, 1), (10, 1)]
