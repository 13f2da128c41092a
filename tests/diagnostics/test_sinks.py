"""Where rows go and how they come back."""

import json

import pytest

from helpers import Net, train, wrap
from madamoo import diagnostics


def run(sinks, steps=5, start=0, **options):
    net = Net()
    opt = wrap(net, "uw", "full")
    with diagnostics.attach(opt, every=2, sinks=sinks, start=start, **options) as probe:
        train(net, opt, steps)
    return probe


def test_a_folder_gives_back_what_was_measured(tmp_path):
    for k, wrapped in enumerate((str, lambda folder: [folder])):
        folder = tmp_path / "runs" / str(k)
        probe = run(wrapped(folder))
        assert diagnostics.read(folder) == diagnostics.read(folder / "diagnostics.jsonl") == list(probe.rows)
        assert len(probe.rows) == 3
        lines = (folder / "diagnostics.jsonl").read_text().splitlines()
        assert [json.loads(line, parse_constant=pytest.fail)["step"] for line in lines] == [0, 2, 4]


def test_each_row_is_in_the_file_before_the_next_step(tmp_path):
    net = Net()
    opt = wrap(net)
    diagnostics.attach(opt, every=1, sinks=tmp_path)
    for t in range(3):
        train(net, opt, 1, start=t)
        assert len(diagnostics.read(tmp_path)) == t


def test_a_resumed_run_appends_even_after_half_a_line(tmp_path):
    first = run(tmp_path)
    with (tmp_path / "diagnostics.jsonl").open("a") as file:
        file.write('{"step": 5, "los')
    second = run(tmp_path, start=6)
    with pytest.warns(UserWarning, match="line 4 was left out: it is not complete"):
        rows = diagnostics.read(tmp_path)
    assert rows == [*first.rows, *second.rows]
    assert [r["step"] for r in rows] == [0, 2, 4, 6, 8, 10]


def test_runs_in_one_file_are_kept_apart(tmp_path):
    first, second = run(tmp_path, steps=9), run(tmp_path)
    assert diagnostics.read_runs(tmp_path) == ([list(first.rows), list(second.rows)], [])
    for which, probe in ((-1, second), (0, first)):
        with pytest.warns(UserWarning, match=f"there are 2 runs, and these are the rows of run {which % 2}: choose"):
            assert diagnostics.read(tmp_path, run=which) == list(probe.rows)


def test_a_run_resumed_from_an_earlier_checkpoint_has_each_step_once(tmp_path):
    first = run(tmp_path, steps=9)
    again = run(tmp_path, steps=5, start=4)
    runs, notes = diagnostics.read_runs(tmp_path)
    assert runs == [[*list(first.rows)[:2], *again.rows]]
    assert notes == ["3 rows came again after the run was resumed; the later ones count"]


def test_what_is_no_row_is_named_and_set_aside(tmp_path):
    (good, *_) = run(tmp_path).rows
    nested = "[" * 100_000
    bad = {
        "it is [], not a dictionary": [],
        "objectives must be different names": good | {"objectives": ["a", "a", "b"]},
        "it.step is True, not a count": good | {"step": True},
        "it has no losses": {key: value for key, value in good.items() if key != "losses"},
        "it.floored is 1000": good | {"floored": 10**400},
        "it.effects has no euclidean": good | {"effects": {"adam": None}},
        "one entry each": good | {"cosines": [[1.0]]},
        "it.seconds['solver'] is '1', not a number": good | {"seconds": {"solver": "1"}},
    }
    for reason, row in bad.items():
        (tmp_path / "diagnostics.jsonl").write_text(json.dumps(row) + "\n" + json.dumps(good) + "\n")
        runs, (note,) = diagnostics.read_runs(tmp_path)
        assert runs == [[good]] and reason in note and note.startswith("line 1")
    (tmp_path / "diagnostics.jsonl").write_text(f"{nested}\n" * 7)
    runs, notes = diagnostics.read_runs(tmp_path)
    assert runs == [] and len(notes) == 6 and notes[-1].startswith("2 more lines")


def test_what_is_not_finite_is_null(tmp_path):
    run(tmp_path)
    row = diagnostics.read(tmp_path)[0]
    assert row["effects"]["adam"] is None
    assert "NaN" not in (tmp_path / "diagnostics.jsonl").read_text()


def test_a_folder_that_cannot_be_made_is_an_error_at_once(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        run(tmp_path / "file")


class Writer:
    def __init__(self):
        self.scalars = {}

    def add_scalar(self, tag, value, step):
        self.scalars[tag, step] = value


def test_a_writer_gets_every_number():
    writer = Writer()
    probe = run(writer, exact=True)
    for row in probe.rows:
        step = row["step"]
        assert writer.scalars["diagnostics/effects/adam/1", step] == row["effects"]["adam"]["1"]
        assert writer.scalars["diagnostics/cosines/0/2", step] == row["cosines"][0][2]
        assert writer.scalars["diagnostics/conflict_rate", step] == row["conflict_rate"]
        assert writer.scalars["diagnostics/flips/realised/0", step] == int(row["flips"]["realised"]["0"])
    assert not any(tag.startswith("diagnostics/observed") for tag, _ in writer.scalars)
    assert all(isinstance(value, int | float) for value in writer.scalars.values())


def test_flat_rows_for_loggers_that_want_them():
    got = []
    probe = run(lambda row: got.append(diagnostics.flatten(row)))
    flat = got[0]
    assert flat["step"] == 0 and flat["losses/1"] == probe.rows[0]["losses"]["1"]
    assert all(isinstance(v, int | float) and not isinstance(v, bool) for v in flat.values())
    assert not any(key.startswith(("observed", "effects/adam", "objectives")) for key in flat)
