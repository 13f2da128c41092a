"""Where data are looked for, what is said when they are not there, and the cache of prepared ones."""

import os
from pathlib import Path

import pytest
import torch

from madamoo.bench import MissingData
from madamoo.bench.problems._data import cache_root, cached, data_root, find, shuffled


def test_the_folder_given_comes_before_the_variable(monkeypatch):
    monkeypatch.setenv("MADAMOO_DATA", "/there")
    assert data_root() == Path("/there")
    assert data_root(Path("~/here")) == Path.home() / "here"
    monkeypatch.setenv("MADAMOO_DATA", "")
    assert data_root() is None


def test_where_the_cache_is(monkeypatch):
    monkeypatch.setenv("MADAMOO_CACHE", "~/mine")
    assert cache_root() == Path.home() / "mine"
    monkeypatch.delenv("MADAMOO_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache_root() == Path("/xdg/madamoo")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_root() == Path.home() / ".cache" / "madamoo"


def test_the_first_alternative_that_is_whole_is_found(tmp_path):
    for name in ("a", "c", "d"):
        (tmp_path / name).touch()
    assert find(tmp_path, "x", "", ("a", "b"), ("c", "d")) == [tmp_path / "c", tmp_path / "d"]


def test_missing_data_are_told_with_place_and_layout(tmp_path):
    (tmp_path / "a").touch()
    with pytest.raises(MissingData) as stopped:
        find(tmp_path, "thing", "  a  the one\n  b  the other", ("a", "b"))
    text = str(stopped.value)
    assert "data of thing" in text and "b  the other" in text
    assert f"Looked in: {tmp_path}" in text and f"Not there: {tmp_path / 'b'}" in text
    with pytest.raises(MissingData, match=r"--data-dir, or set MADAMOO_DATA"):
        find(None, "thing", "", ("a",))


class Maker:
    def __init__(self):
        self.calls = 0

    def __call__(self):
        self.calls += 1
        return {"x": torch.arange(4)}


@pytest.fixture
def source(tmp_path, monkeypatch):
    monkeypatch.setenv("MADAMOO_CACHE", str(tmp_path / "cache"))
    (tmp_path / "source").write_text("data")
    return tmp_path / "source"


def test_prepared_data_are_made_once_until_something_changes(source):
    make = Maker()
    for _ in range(2):
        assert torch.equal(cached("thing", [source], make, key="seed 0")["x"], torch.arange(4))
    assert make.calls == 1
    cached("thing", [source], make, key="seed 1")
    assert make.calls == 2
    source.write_text("other")
    cached("thing", [source], make, key="seed 1")
    os.utime(source, ns=(1, 1))
    cached("thing", [source], make, key="seed 1")
    assert make.calls == 4


@pytest.mark.parametrize("damage", [lambda b: b"", lambda b: b[:-3], lambda b: b[:99] + b"?" + b[100:], lambda b: b"x"])
def test_a_damaged_cache_is_named_and_rebuilt(source, capsys, damage):
    make = Maker()
    cached("thing", [source], make)
    (file,) = cache_root().iterdir()
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    assert torch.equal(cached("thing", [source], make)["x"], torch.arange(4))
    assert make.calls == 2 and file.read_bytes() == whole
    assert f"{file} is damaged" in capsys.readouterr().err
    assert [p.name for p in cache_root().iterdir() if p != file] == [f"{file.name}.damaged"]


def test_a_cache_that_cannot_be_written_does_not_stop_a_run(source, monkeypatch, capsys):
    monkeypatch.setenv("MADAMOO_CACHE", str(source / "below"))  # below a file
    assert torch.equal(cached("thing", [source], Maker())["x"], torch.arange(4))
    said = capsys.readouterr()
    assert "could not be cached" in said.err and not said.out, "stdout is for tables"


def test_a_damaged_cache_that_another_process_took_away_first(source, monkeypatch):
    make = Maker()
    cached("thing", [source], make)
    (file,) = cache_root().iterdir()
    file.write_bytes(b"")

    def late(path, reason):
        path.unlink()
        raise FileNotFoundError(path)

    monkeypatch.setattr("madamoo.bench.problems._data.set_aside", late)
    cached("thing", [source], make)
    assert make.calls == 2 and file.exists()


def test_shuffles_depend_on_the_seed_alone():
    torch.manual_seed(1)
    one = shuffled(100, 7)
    torch.manual_seed(2)
    assert torch.equal(one, shuffled(100, 7)) and not torch.equal(one, shuffled(100, 8))
    assert sorted(one.tolist()) == list(range(100))
