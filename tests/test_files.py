"""Files are whole or not there, and lines that cannot be used are named."""

import errno
import json

import pytest

from madamoo import files
from madamoo.files import read_lines, remove_leftovers, write_bytes, write_text


@pytest.mark.parametrize("moment", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, moment):
    file = tmp_path / "a"
    write_bytes(file, b"old")

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files.os, moment, full)
    with pytest.raises(OSError, match="No space"):
        write_bytes(file, b"new")
    monkeypatch.undo()
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("a", b"old")]


def test_leftovers_of_a_killed_process_are_removed_and_nothing_else(tmp_path):
    for name in (".checkpoint.pt.123-456.tmp", ".run.json.1-2.tmp", "run.json", "mine.tmp", ".hidden"):
        (tmp_path / name).write_text("x")
    remove_leftovers(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == [".hidden", "mine.tmp", "run.json"]


def test_text_that_utf_8_cannot_hold_is_written_with_a_mark(tmp_path):
    path = write_text(tmp_path / "deep" / "page", "half a pair: \ud800, ä")
    assert path.read_text(encoding="utf-8") == "half a pair: ?, ä"


def test_lines_that_cannot_be_parsed_are_named_the_first_ones_one_by_one(tmp_path):
    path = tmp_path / "lines"
    path.write_bytes(b'1\n\n{"a"\n\xff\n' + b"[" * 100_000 + b"\n" + b"x\n" * 5 + b"2")
    found, notes = read_lines(path, json.loads)
    assert found == [1, 2] and len(notes) == 6 and notes[-1] == "3 more lines were left out"
    assert [note.split(" was left out: ")[0] for note in notes[:5]] == [f"line {k}" for k in (3, 4, 5, 6, 7)]
