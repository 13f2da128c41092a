"""Files are whole or not there, and damage is never read as content."""

import json
import os
import random

import pytest
import torch

from madamoo.bench.runs import read_record
from madamoo.bench.runs._files import (
    Damaged,
    parse_record,
    read_tensors,
    seal,
    set_aside,
    write_record,
    write_tensors,
)

CONTENT = {"step": 3, "weights": torch.arange(5.0), "rows": [{"loss": 0.5, "none": None}]}


def test_tensors_come_back_and_equal_content_is_equal_bytes(tmp_path):
    write_tensors(tmp_path / "deep" / "a.pt", CONTENT)
    write_tensors(tmp_path / "other name.pt", CONTENT)
    read = read_tensors(tmp_path / "deep" / "a.pt")
    assert read["step"] == 3 and read["rows"] == CONTENT["rows"] and torch.equal(read["weights"], CONTENT["weights"])
    assert (tmp_path / "deep" / "a.pt").read_bytes() == (tmp_path / "other name.pt").read_bytes()


def test_every_flipped_bit_of_a_checkpoint_is_found(tmp_path):
    file = tmp_path / "a.pt"
    write_tensors(file, CONTENT)
    whole = file.read_bytes()
    draw = random.Random(0)
    places = {*range(40), *(draw.randrange(len(whole)) for _ in range(100)), len(whole) - 1}
    for place in places:
        file.write_bytes(whole[:place] + bytes([whole[place] ^ (1 << draw.randrange(8))]) + whole[place + 1 :])
        with pytest.raises(Damaged):
            read_tensors(file)


@pytest.mark.parametrize("cut", [0, 1, 8, 39, 40, 41, 200, -1])
def test_a_torn_checkpoint_is_found(tmp_path, cut):
    file = tmp_path / "a.pt"
    write_tensors(file, CONTENT)
    file.write_bytes(file.read_bytes()[:cut])
    with pytest.raises(Damaged):
        read_tensors(file)


def test_a_checkpoint_cannot_run_code(tmp_path):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "made"),)

    write_tensors(tmp_path / "a.pt", {"config": Evil()})  # its checksum is right
    with pytest.raises(Damaged, match="torch does not load it"):
        read_tensors(tmp_path / "a.pt")
    assert not (tmp_path / "made").exists()


def test_record_comes_back_sealed(tmp_path):
    write_record(tmp_path / "run.json", {"a": 1e-3, "b": [None, "ä", 2]})
    record = parse_record((tmp_path / "run.json").read_text(), "a", "sha256")
    assert record == seal({"a": 0.001, "b": [None, "ä", 2]})
    assert seal(record) == record


def test_no_altered_number_of_a_record_goes_unseen(tmp_path):
    """Each character is replaced by others; what can still be read must be what was written."""
    text = json.dumps(seal({"lr": 1e-3, "metrics": {"acc": 91.25}, "seed": 17}), indent=1)
    whole = json.loads(text)
    for place, old in enumerate(text):
        for new in {*'9.e+-"x{}, ', chr(ord(old) ^ 1), chr(ord(old) ^ 4)} - {old}:
            try:
                read = parse_record(text[:place] + new + text[place + 1 :], "lr", "metrics", "seed", "sha256")
            except Damaged:
                continue
            assert read == whole, text[:place] + new + text[place + 1 :]


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"null", b"[]", b'"a"', b"\xff\xfe\x00", b'{"a": NaN}', b'{"a": Infinity}', b"{}", b"[" * 200_000],
    ids=lambda content: repr(content[:12]),
)
def test_garbage_is_damaged_not_an_error_of_another_kind(tmp_path, content):
    (tmp_path / "run.json").write_bytes(content)
    with pytest.raises(Damaged):
        read_record(tmp_path / "run.json")


def test_a_number_too_large_for_a_float_is_damage():
    with pytest.raises(Damaged, match="checksum"):
        parse_record('{"a": 1e999, "sha256": "0"}', "a")


def test_nan_is_never_written(tmp_path):
    with pytest.raises(ValueError, match="JSON compliant"):
        write_record(tmp_path / "run.json", {"a": float("nan")})
    assert list(tmp_path.iterdir()) == []


def test_damaged_files_are_kept_each_under_its_own_name(tmp_path, capsys):
    for k in range(3):
        (tmp_path / "run.json").write_text(str(k))
        set_aside(tmp_path / "run.json", "it is odd")
    kept = {p.name: p.read_text() for p in tmp_path.iterdir()}
    assert kept == {"run.json.damaged": "0", "run.json.damaged-2": "1", "run.json.damaged-3": "2"}
    said = capsys.readouterr()
    assert said.err.count("run.json is damaged (it is odd); set aside as") == 3 and not said.out
