"""A run's folder: nothing damaged or foreign is used, nobody else gets in."""

import json
import multiprocessing
import os
import shutil
import signal
from dataclasses import asdict, replace

import pytest
import torch

from madamoo.bench import configure
from madamoo.bench.runs._files import write_record, write_tensors
from madamoo.bench.runs._folder import Busy, OtherRun, RunFolder

CONFIG = configure("digits")
STATE = {"training": {"step": 3}, "threads": 1}


def record(**changes):
    metrics = {"metrics": {"a": 1.0}, "validation": {"a": 1.0}}
    return {"config": asdict(CONFIG), "status": "finished", "resumed_from": None, **metrics, **changes}


@pytest.fixture
def folder(tmp_path):
    made = RunFolder(tmp_path / "run")
    made.path.mkdir()
    return made


def test_what_is_written_is_read(folder):
    assert folder.read(CONFIG) is None and folder.load(CONFIG) is None
    folder.write(record())
    folder.save(CONFIG, STATE)
    assert folder.read(CONFIG)["metrics"] == {"a": 1.0}
    assert folder.load(CONFIG) == {"config": asdict(CONFIG), **STATE}
    folder.drop_checkpoint()
    folder.drop_checkpoint()
    assert folder.load(CONFIG) is None


DAMAGE = {
    "empty": lambda b: b"",
    "torn": lambda b: b[: len(b) // 2],
    "flipped": lambda b: b[: len(b) // 2] + bytes([b[len(b) // 2] ^ 1]) + b[len(b) // 2 + 1 :],
    "garbage": lambda b: bytes(range(256)) * 4,
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
@pytest.mark.parametrize("name", ["run.json", "checkpoint.pt"])
def test_a_damaged_file_is_set_aside(folder, capsys, name, damage):
    folder.write(record())
    folder.save(CONFIG, STATE)
    file = folder.path / name
    broken = damage(file.read_bytes())
    file.write_bytes(broken)
    assert (folder.read(CONFIG) if name == "run.json" else folder.load(CONFIG)) is None
    assert not file.exists() and (folder.path / f"{name}.damaged").read_bytes() == broken
    assert f"{file} is damaged" in capsys.readouterr().err


def test_a_record_without_its_checksum_is_damaged(folder):
    """As `table` and `sweep` see it: else a run would be finished for one command and missing for the other."""
    folder.record_file.write_text(json.dumps(record()))
    assert folder.read(CONFIG) is None
    assert (folder.path / "run.json.damaged").exists()


def test_a_record_of_another_configuration_is_refused_and_stays(folder):
    folder.write(record())
    before = folder.record_file.read_bytes()
    with pytest.raises(OtherRun, match=r"holds another run: seed 0, not 1; solver 'ls', not 'uw'"):
        folder.read(replace(CONFIG, seed=1, solver="uw"))
    assert folder.record_file.read_bytes() == before


def test_a_checkpoint_of_another_configuration_is_set_aside(folder, capsys):
    folder.save(replace(CONFIG, lr=0.5), STATE)
    assert folder.load(CONFIG) is None
    assert "belongs to another run: lr 0.5, not 0.003" in capsys.readouterr().err


@pytest.mark.parametrize("content", [{"images": torch.zeros(2)}, [1, 2], torch.zeros(2)])
def test_a_whole_file_that_is_no_checkpoint_is_set_aside(folder, content):
    write_tensors(folder.checkpoint_file, content)
    assert folder.load(CONFIG) is None
    assert (folder.path / "checkpoint.pt.damaged").exists()


def test_epochs_are_strict_json(folder):
    folder.write_epochs([{"epoch": 1, "loss": 0.5}, {"epoch": 2, "loss": None}])
    assert [json.loads(line)["epoch"] for line in folder.epochs_file.read_text().splitlines()] == [1, 2]
    with pytest.raises(ValueError, match="JSON compliant"):
        folder.write_epochs([{"loss": float("nan")}])
    assert len(folder.epochs_file.read_text().splitlines()) == 2


def test_the_second_is_kept_out_until_the_first_is_done(folder):
    with folder.locked(), pytest.raises(Busy, match="another process is running in"), RunFolder(folder.path).locked():
        raise AssertionError
    with RunFolder(folder.path).locked():
        pass


def test_leftovers_are_removed_by_the_next_who_holds_the_lock(folder):
    leftover = folder.path / ".checkpoint.pt.1-2.tmp"
    leftover.write_bytes(b"half")
    with folder.locked():
        assert not leftover.exists()


def _hold(path, ready):
    with RunFolder(path).locked():
        ready.set()
        signal.pause()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_process_lets_go_of_the_folder(folder, how):
    fork = multiprocessing.get_context("fork")
    ready = fork.Event()
    holder = fork.Process(target=_hold, args=(folder.path, ready))
    holder.start()
    ready.wait()
    with pytest.raises(Busy), folder.locked():
        pass
    os.kill(holder.pid, how)
    holder.join()
    with folder.locked():
        pass


def test_a_folder_reached_by_a_link_is_the_same_folder(folder, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(folder.path)
    with RunFolder(link).locked(), pytest.raises(Busy), folder.locked():
        pass
    RunFolder(link).write(record())
    assert folder.read(CONFIG) is not None


def test_a_moved_run_is_still_the_run(folder, tmp_path):
    write_record(folder.record_file, record())
    folder.save(CONFIG, STATE)
    shutil.move(folder.path, tmp_path / "elsewhere")
    moved = RunFolder(tmp_path / "elsewhere")
    assert moved.read(CONFIG) is not None and moved.load(CONFIG) is not None
