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


@pytest.mark.parametrize("many", [True, False])
@pytest.mark.parametrize("as_text", [True, False])
def test_a_folder_gives_back_what_was_measured(tmp_path, many, as_text):
    folder = tmp_path / "runs" / "mine"
    sink = str(folder) if as_text else folder
    probe = run([sink] if many else sink)
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
    with pytest.warns(UserWarning, match="line 4 is no row"):
        rows = diagnostics.read(tmp_path)
    assert rows == [*first.rows, *second.rows]
    assert [r["step"] for r in rows] == [0, 2, 4, 6, 8, 10]


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


@pytest.mark.parametrize("many", [True, False])
def test_a_writer_gets_every_number(many):
    writer = Writer()
    probe = run([writer] if many else writer, exact=True)
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
