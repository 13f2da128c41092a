"""Samples are read late, once, alike with and without worker processes; one that dies says so."""

import os
import signal
from functools import partial

import pytest
import torch

from madamoo.medical import BadFile, Samples, WorkerDied, split_by_name

READ = []


def prepare(path, add=0):
    READ.append(path.name)
    text = path.read_text()
    if text == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if text == "bad":
        raise BadFile(f"{path}: it is bad")
    return (torch.full((4,), float(text) + add), torch.tensor([1.0]))


@pytest.fixture
def files(tmp_path):
    READ.clear()
    for k in range(6):
        (tmp_path / f"{k}.txt").write_text(str(k))
    return [(tmp_path / f"{k}.txt",) for k in range(6)]


def test_nothing_is_read_before_it_is_asked_for_and_the_last_used_stay(files):
    samples = Samples(files, prepare, memory=3 * 20)
    assert len(samples) == 6 and not READ
    for k in (0, 1, 0, 2, 0, 3, 0):
        assert samples[k][0].tolist() == [k] * 4
    assert READ == ["0.txt", "1.txt", "2.txt", "3.txt"]  # 0 was used again and again
    assert samples[1][0][0] == 1 and READ[-1] == "1.txt"
    assert samples.subset([4, 5])[0][0][0] == 4


def test_prepared_samples_are_kept_on_disk_until_something_changes(files, tmp_path):
    cache = tmp_path / "cache"
    for _ in range(2):
        assert Samples(files, prepare, cache=cache)[2][0].tolist() == [2.0] * 4
    assert READ == ["2.txt"]
    assert Samples(files, partial(prepare, add=1), cache=cache, key="add 1")[2][0].tolist() == [3.0] * 4
    files[2][0].write_text("20")
    assert Samples(files, prepare, cache=cache)[2][0].tolist() == [20.0] * 4
    for file in cache.iterdir():  # damaged, in two ways
        content = bytearray(file.read_bytes())
        content[len(content) // 3] ^= 1
        file.write_bytes(bytes(content))
    assert Samples(files, prepare, cache=cache)[2][0].tolist() == [20.0] * 4
    for file in cache.iterdir():
        file.write_bytes(b"")
    assert Samples(files, prepare, cache=cache)[2][0].tolist() == [20.0] * 4


def test_worker_processes_give_the_same_samples_and_draw_nothing(files):
    samples = Samples(files, prepare)
    plan = [[3, 1], [0, 5], [2, 2]]
    before = torch.get_rng_state()
    alone, helped = list(samples.batches(plan)), list(samples.batches(plan, workers=1))
    assert torch.equal(before, torch.get_rng_state())
    for a, b in zip(alone, helped, strict=True):
        assert all(torch.equal(x[0], y[0]) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("workers", [0, 1])
def test_a_bad_file_is_named(files, workers):
    files[1][0].write_text("bad")
    with pytest.raises(BadFile, match=r"1\.txt: it is bad$"):
        list(Samples(files, prepare).batches([[0], [1], [2]], workers=workers))


def test_a_worker_that_dies_says_how(files):
    files[1][0].write_text("die")
    with pytest.raises(WorkerDied, match=r"a process that reads data died \(SIGKILL.*last checkpoint"):
        list(Samples(files, prepare).batches([[0], [1], [2]], workers=1))


def test_a_split_keeps_subjects_together_and_hardly_moves():
    names = [f"s{k // 2}" for k in range(40)]
    parts = split_by_name(names, [0.7, 0.1, 0.2])
    assert sorted(k for part in parts for k in part) == list(range(40))
    assert [len(part) for part in parts] == [28, 4, 8]
    for a in parts:
        for b in parts:
            assert a is b or not {names[k] for k in a} & {names[k] for k in b}
    fewer = [name for name in names if name != "s3"]
    part_of = {names[k]: i for i, part in enumerate(parts) for k in part}
    moved = {
        fewer[k] for i, part in enumerate(split_by_name(fewer, [0.7, 0.1, 0.2])) for k in part if part_of[fewer[k]] != i
    }
    assert len(moved) <= 1


@pytest.mark.parametrize("shares", [(0.7, 0.1, 0.2), (0.6, 0.15, 0.25), (0.8, 0.2)])
def test_no_part_is_empty_if_there_are_names_for_all(shares):
    for count in range(len(shares), 60):
        sizes = [len(part) for part in split_by_name([f"s{k}" for k in range(count)], shares)]
        assert min(sizes) >= 1 and sum(sizes) == count
        assert all(abs(size - share * count) < 2 for size, share in zip(sizes, shares, strict=True))
    assert sum(map(len, split_by_name(["only"], shares))) == 1


def test_files_whose_names_are_no_text_are_cached_too(tmp_path):
    READ.clear()
    file = tmp_path / os.fsdecode(b"\xe9.txt")
    try:
        file.write_text("3")
    except OSError:
        pytest.skip("the file system takes UTF-8 alone")
    for _ in range(2):
        assert Samples([(file,)], prepare, cache=tmp_path / "cache")[0][0][0] == 3
    assert len(READ) == 1
