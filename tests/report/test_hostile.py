"""Records from strangers: whatever is in them, nothing is imported, nothing raises, and what is not used is named."""

import json
import shutil
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from madamoo import diagnostics
from madamoo.bench.runs._files import seal
from madamoo.presentation.page import render
from madamoo.report.make import make_page
from madamoo.report.reading import Unreadable

ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([10**400, -1, 1e308, -1e308, 5e-324, "", "\ud800", "<b>", "a:b=c", "a::=:", [], {}, [[]], [None]]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5),
    st.lists(st.one_of(st.none(), st.integers(), st.text(max_size=2)), max_size=3),
    st.dictionaries(st.text(max_size=3), st.one_of(st.none(), st.integers(), st.text(max_size=2)), max_size=2),
)
SLOW = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def places(value, path=()):
    """Every place in nested dictionaries and lists."""
    yield path
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in parts:
        yield from places(inner, (*path, key))


def changed(value, path, new, drop):
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    if drop and len(path) == 1:
        del copy[path[0]]
    else:
        copy[path[0]] = changed(value[path[0]], path[1:], new, drop)
    return copy


@pytest.fixture(scope="module", autouse=True)
def light():
    """The page without plotly's own three megabytes, which say nothing here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("plotly.offline.get_plotlyjs", lambda: "")
        yield


def reported(*paths):
    """The page is made, or it is said why there is nothing to report on."""
    try:
        page, notes = make_page(paths)
    except Unreadable as error:
        return [str(error)]
    render(page)
    return notes


def damage(data, value, times):
    for _ in range(data.draw(st.integers(1, times))):
        where = data.draw(st.sampled_from([path for path in places(value) if path]))
        value = changed(value, where, data.draw(ODD), data.draw(st.booleans()))
    return value


@SLOW
@given(data=st.data())
def test_any_row_can_be_reported_on_or_is_set_aside(own, tmp_path_factory, data):
    rows = diagnostics.read(own)[:3]
    bad = damage(data, rows[1], 2)
    folder = tmp_path_factory.mktemp("rows")
    (folder / "diagnostics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [rows[0], bad, rows[2]]))
    reported(folder)
    runs, _ = diagnostics.read_runs(folder)
    assert rows[2] in [row for run in runs for row in run], "good rows are not lost"
    for run in runs:
        diagnostics.describe(diagnostics.summary(run))


@SLOW
@given(data=st.data())
def test_any_record_with_a_valid_checksum_can_be_reported_on_or_is_set_aside(
    compared, learned_fronts, tmp_path_factory, data
):
    root = tmp_path_factory.mktemp("records")
    shutil.copytree(compared, root / "a")
    shutil.copytree(learned_fronts, root / "b")
    file = data.draw(st.sampled_from(sorted(root.rglob("run.json"))))
    record = json.loads(file.read_text())
    del record["sha256"]
    try:
        file.write_text(json.dumps(seal(damage(data, record, 2))))
    except ValueError:  # a number that JSON cannot hold has no checksum
        return
    for path in (root, file.parent):
        reported(path)
    reported(file.parent, compared / "madam-0")


@SLOW
@given(data=st.data())
def test_any_epoch_can_be_reported_on_or_is_set_aside(lab, tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("epochs") / "run"
    shutil.copytree(lab / "madam-0", folder)
    lines = (folder / "epochs.jsonl").read_text().splitlines()
    lines[1] = json.dumps(damage(data, json.loads(lines[1]), 2))
    (folder / "epochs.jsonl").write_text("\n".join(lines))
    reported(folder)


def test_an_epoch_may_lack_what_older_versions_did_not_write(lab, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(lab / "madam-0", folder)
    lines = [json.loads(line) for line in (folder / "epochs.jsonl").read_text().splitlines()]
    old = [{"epoch": line["epoch"]} for line in lines[:2]]
    (folder / "epochs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in [*old, *lines[2:]]))
    assert reported(folder) == ["epochs.jsonl: 2 lines have no checksum, as earlier versions wrote them"]


def test_a_record_never_causes_an_import(lab, learned_fronts, tmp_path):
    """Not of the benchmark, the model, the solver or anything else that it names."""
    trap = tmp_path / "trap.py"
    trap.write_text(f"open({str(tmp_path / 'sprung')!r}, 'w')\nBENCHMARKS = {{}}\n")
    for k, source in enumerate((lab / "madam-0", learned_fronts / "adam", lab / "adam-0")):
        record = json.loads((source / "run.json").read_text())
        del record["sha256"]
        named = dict.fromkeys(("benchmark", "model", "solver", "optimizer"), str(trap))
        config = {**record["config"], **(named if k < 2 else {"benchmark": str(trap)}), "seed": k}
        (tmp_path / "runs" / str(k)).mkdir(parents=True)
        (tmp_path / "runs" / str(k) / "run.json").write_text(json.dumps(seal({**record, "config": config})))
    before = set(sys.modules)
    for paths in ([tmp_path / "runs"], [tmp_path / "runs" / "0"], [tmp_path / "runs" / "1"],
                  [tmp_path / "runs" / "0", tmp_path / "runs" / "2"]):  # fmt: skip
        reported(*paths)
    assert not (tmp_path / "sprung").exists()
    assert not [name for name in set(sys.modules) - before if "trap" in name]
