"""What is complete is used, and what is not is said."""

import json
import shutil

import pytest

from madamoo import diagnostics
from madamoo.bench.runs import append_row, read_rows, write_record
from madamoo.report.reading import Unreadable, read_folder, read_single, read_source


def test_a_lab_run_its_file_and_a_folder_of_them(lab):
    source = read_source(lab / "madam-1")
    (run,) = source.runs
    assert source.single and run.config["optimizer"] == "madam" and run.objectives == ["sum", "sign"]
    assert len(run.epochs) == 3 and len(run.rows) == 18 and not run.notes
    assert read_single(lab / "madam-1" / "run.json") == run
    folder = read_source(lab)
    assert not folder.single and len(folder.runs) == 5
    assert sorted(len(run.rows) for run in folder.runs) == [0, 18, 18, 18, 18]


def test_a_users_record_its_file_and_a_folder_of_them(own, tmp_path):
    (run,) = read_source(own).runs
    assert run.record is None and list(run.rows) == diagnostics.read(own)
    assert run.objectives == list(run.rows[0]["objectives"])
    assert read_single(own / "diagnostics.jsonl").rows == run.rows
    renamed = tmp_path / "other.jsonl"
    shutil.copy(own / "diagnostics.jsonl", renamed)
    assert read_single(renamed).name == "other"
    for name in ("a", "b"):
        shutil.copytree(own, tmp_path / "many" / name)
    assert [run.name for run in read_source(tmp_path / "many").runs] == ["a", "b"]


def test_a_packed_file_is_a_folder_of_runs(lab, tmp_path):
    from madamoo.bench.runs._records import collect

    collect(lab, tmp_path)
    (packed,) = tmp_path.glob("*.jsonl")
    assert len(read_source(packed).runs) == len(read_source(tmp_path).runs) == 5


def test_what_is_no_row_is_left_out_and_said(own, tmp_path):
    rows = diagnostics.read(own)[:3]
    changed = rows[1] | {"cosines": 3}
    text = "".join(json.dumps(row) + "\n" for row in [rows[0], changed, rows[2]])
    (tmp_path / "diagnostics.jsonl").write_text(text + json.dumps(rows[0])[:100])
    (run,) = read_source(tmp_path).runs
    assert list(run.rows) == [rows[0], rows[2]]
    assert run.notes == [
        "diagnostics.jsonl: line 2 was left out: it.cosines is 3, not a list",
        "diagnostics.jsonl: line 4 was left out: it is not complete",
    ]


def test_two_runs_in_one_file_are_two_runs(own, tmp_path):
    rows = diagnostics.read(own)
    (tmp_path / "diagnostics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [*rows, *rows[:4]]))
    first, second = read_source(tmp_path).runs
    assert (list(first.rows), list(second.rows)) == (rows, rows[:4])
    assert first.name.endswith(", run 1") and second.name.endswith(", run 2")


def test_of_a_lab_run_that_was_begun_again_the_last_rows_count(lab, tmp_path):
    shutil.copytree(lab / "adam-0", tmp_path / "run")
    rows = read_rows(lab / "adam-0" / "diagnostics.jsonl").rows
    for row in rows[:4]:
        append_row(tmp_path / "run" / "diagnostics.jsonl", row)
    (run,) = read_folder(tmp_path / "run")
    assert list(run.rows) == rows[:4] and not run.notes


def test_rows_of_a_lab_run_that_were_altered_are_left_out(lab, tmp_path):
    shutil.copytree(lab / "adam-0", tmp_path / "run")
    for name, key in (("diagnostics.jsonl", "conflict_rate"), ("epochs.jsonl", "epoch")):
        first, *rest = (tmp_path / "run" / name).read_text().splitlines()
        altered = json.dumps(json.loads(first) | {key: 3})
        (tmp_path / "run" / name).write_text("\n".join([altered, *rest]))
    (run,) = read_folder(tmp_path / "run")
    assert (len(run.rows), len(run.epochs)) == (17, 2)
    assert [note.split(": ")[0] for note in run.notes] == ["epochs.jsonl", "diagnostics.jsonl"]
    assert all("line 1 was left out: its checksum does not fit" in note for note in run.notes)


def test_a_damaged_record_does_not_cost_the_diagnosis(lab, tmp_path):
    shutil.copytree(lab / "adam-0", tmp_path / "run")
    (tmp_path / "run" / "run.json").write_text('{"config": {')
    (run,) = read_folder(tmp_path / "run")
    assert run.record is None and len(run.rows) == 18 and "run.json is damaged" in run.notes[0]


def test_runs_that_have_not_ended_are_counted(lab, tmp_path):
    shutil.copytree(lab / "adam-0", tmp_path / "a")
    shutil.copytree(lab / "adam-1", tmp_path / "b")
    record = json.loads((tmp_path / "b" / "run.json").read_text())
    write_record(tmp_path / "b" / "run.json", record | {"status": "running"})
    source = read_source(tmp_path)
    assert len(source.runs) == 1 and "1 of the runs" in source.notes[0]
    assert read_single(tmp_path / "b").record["status"] == "running"


def test_what_is_no_run_is_named(tmp_path):
    for name, content, message in (
        ("missing", None, "there is no file or folder"),
        ("folder", (), "holds no runs"),
        ("notes.txt", b"hello", "neither a folder nor a .jsonl"),
        ("empty.jsonl", b"", "it is empty"),
        ("other.jsonl", b'{"a": 1}\n', "no row of a probe"),
        ("binary.jsonl", bytes(range(256)), "line 1 was left out"),
    ):
        path = tmp_path / name
        if content == ():
            path.mkdir()
        elif content is not None:
            path.write_bytes(content)
        with pytest.raises(Unreadable, match=message):
            read_source(path)


def test_two_runs_are_not_one(lab):
    with pytest.raises(Unreadable, match="holds 5 runs"):
        read_single(lab)
