"""Records of strangers: whatever they hold, they are used or named, nothing is executed, and the others stay."""

import copy
import io
import json
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import toy_benchmark
from madamoo.bench import configure, get
from madamoo.bench.analysis import ablation_rows, fronts_of, render_ablation, render_summary, rows, summarise
from madamoo.bench.runs import (
    Damaged,
    RunFolder,
    append_row,
    collect,
    read_records,
    read_rows,
    read_tensors,
    write_record,
    write_rows,
    write_tensors,
)
from madamoo.bench.runs._files import seal
from madamoo.bench.training import grid, plan, train
from madamoo.cli import build_app

TOY = toy_benchmark.__file__
DIGITS = get("digits")


def record(optimizer="adam", seed=0, solver="uw", **changes):
    """One that the lab may have written."""
    config = {"benchmark": "digits", "profile": "cpu", "solver": solver, "optimizer": optimizer, "lr": 3e-3}
    config |= {"seed": seed, "epochs": 20, "batch": 64, "model": "mlp:depth=2:width=128", "schedule": "cosine"}
    metrics = {metric.name: 90.0 + seed for metric in DIGITS.metrics}
    points = [[0.9, 0.2], [0.4, 0.8]]
    front = {"preferences": [[1.0, 0.0], [0.0, 1.0]], "points": points, "maximise": [True, True]}
    front["names"] = ["left_acc", "right_acc"]
    cost = {"seconds": 2.5, "seconds_per_step": 0.1, "peak_memory_bytes": 7, "state_bytes": 9, "curve": [[1.0, 0.5]]}
    cost["training"] = [[20, 2.5, 0.25]]
    found = {"config": config, "status": "finished", "metrics": metrics, "validation": metrics, "validation_loss": 0.5}
    found |= {"resumed_from": None, "reductions": ["smaller"], "objectives": ["left", "right"], "parameters": 7}
    found |= {"front": {"test": front, "validation": front}, "weights_moved": 0.2, "steps": 20, "cost": cost}
    found |= {"environment": {"torch": "2"}, "epoch": 20, "refused_steps": 0, "metric": "None"}
    return copy.deepcopy({**found, **changes})


GOOD = [record(optimizer, seed) for optimizer in ("adam", "madam") for seed in (0, 1)]

numbers = st.one_of(
    st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.sampled_from([10**400, -(10**310), 1e308, 0])
)
words = st.one_of(
    st.text(max_size=8), st.sampled_from(["\x1b[2J", "\ud800", "../../x", "x" * 9999, "ls:", "pamal", f"{TOY}", "rays"])
)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, words),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)


def places(value, path=()):
    """The paths of all values in a record."""
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in items:
            yield (*path, key)
            yield from places(inner, (*path, key))


PLACES = [path for path in places(record()) if len(path) < 6]


@st.composite
def hostile(draw):
    """A record with up to three values that are replaced or gone."""
    found = record(draw(st.sampled_from(["adam", "madam"])), seed=draw(st.integers(0, 2)))
    for path in draw(st.lists(st.sampled_from(PLACES), min_size=1, max_size=3)):
        inner = found
        try:
            for key in path[:-1]:
                inner = inner[key]
            if draw(st.booleans()):
                inner[path[-1]] = draw(values)
            else:
                del inner[path[-1]]
        except (KeyError, IndexError, TypeError):
            continue
    return found


def everything(folder, into):
    """All that the lab makes of records; returns what was said on stderr."""
    with redirect_stderr(io.StringIO()) as said, redirect_stdout(io.StringIO()):
        found = read_records(folder)
        rows(found, DIGITS)
        cells = summarise(found)
        for format in ("text", "csv", "json", "markdown", "latex"):
            render_summary(cells, format).encode()
        configs = grid("digits", solvers=["uw"], optimizers=["adam", "madam"], seeds=[0, 1])
        render_ablation(ablation_rows(found, DIGITS, configs), DIGITS, "text").encode()
        todo = plan(configs, folder)
        fronts, reference, _ = fronts_of([r for r in found if r["config"]["benchmark"] == "digits"])
        for front in fronts.values():
            front.hypervolume(reference)
        collect(folder, into)
        again = read_records(into)
    assert len(again) == len(found)
    return found, todo, said.getvalue()


@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(hostile())
def test_hostile_records_cost_the_others_nothing(tmp_path_factory, bad):
    folder = tmp_path_factory.mktemp("records")
    bad = json.loads(json.dumps(bad))  # keys are text
    sealed = seal(bad)
    (folder / "packed.jsonl").write_text("".join(json.dumps(seal(r)) + "\n" for r in GOOD), encoding="utf-8")
    (folder / "bad.jsonl").write_text(json.dumps(sealed) + "\n", encoding="utf-8")
    (folder / "run").mkdir()
    (folder / "run" / "run.json").write_text(json.dumps(sealed), encoding="utf-8")
    found, todo, said = everything(folder, folder / "into")
    assert len(found) >= len(GOOD) and todo.done == len(GOOD)
    for good in GOOD:
        assert any(r["config"] == good["config"] for r in found)
    used = any(r["config"] == bad.get("config") for r in found)
    assert used or bad.get("status") == "running" or "bad.jsonl, line 1 is damaged" in said


@pytest.mark.parametrize("command", ["summary", "front"])
def test_a_file_that_only_a_record_names_is_not_executed(tmp_path, command):
    """Nor is a model; the user's own word is what it takes."""
    trap = tmp_path / "trap.py"
    trap.write_text(Path(TOY).read_text() + f"\n\nopen({str(tmp_path / 'sprung')!r}, 'w').close()\n")
    runs = tmp_path / "runs"
    for optimizer in ("adam", "madam"):
        config = record(optimizer)["config"] | {"benchmark": str(trap), "model": str(trap)}
        write_record(runs / optimizer / "run.json", record(optimizer, config=config))
    arguments = {"summary": ["--results", str(runs)], "front": [str(runs), "--out", str(tmp_path / "front.html")]}
    runner = CliRunner()
    found = runner.invoke(build_app(), [command, *arguments[command]])
    assert not (tmp_path / "sprung").exists(), found.output
    assert "trap.py are left out" in found.output and "--benchmark FILE.py" in found.output
    assert found.exception is None or isinstance(found.exception, SystemExit)
    runner.invoke(build_app(), [command, *arguments[command], "--benchmark", str(trap)])
    assert (tmp_path / "sprung").exists()


class Sprung:
    def __reduce__(self):
        return print, ("sprung",)


def test_a_sealed_file_is_not_unpickled(tmp_path, capsys):
    write_tensors(tmp_path / "a.pt", {"x": Sprung()})
    with pytest.raises(Damaged, match="torch does not load it"):
        read_tensors(tmp_path / "a.pt")
    assert "sprung" not in capsys.readouterr().out


CHECKPOINTS = {
    "no run": lambda state: {"config": state["config"]},
    "no threads": lambda state: {**state, "threads": "many"},
    "code": lambda state: {**state, "training": Sprung()},
    "earlier version": lambda state: {**state, "training": {**state["training"], "batches": {}}},
    "other weights": lambda state: {**state, "training": {**state["training"], "model": {"w": torch.zeros(3)}}},
    "counts": lambda state: {**state, "training": {**state["training"], "step": 10**30}},
    "rows": lambda state: {**state, "training": {**state["training"], "epochs": [1, 2, 3]}},
    "config": lambda state: {**state, "config": ["toy"]},
}


@pytest.mark.parametrize("kind", CHECKPOINTS)
def test_a_checkpoint_that_cannot_be_used_is_set_aside_and_the_run_begins_again(tmp_path, capsys, kind):
    config = configure(TOY, epochs=1)
    whole = train(config, tmp_path / "whole")
    train(config, tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    state = folder.load(config)
    folder.record_file.unlink()
    write_tensors(folder.checkpoint_file, CHECKPOINTS[kind](state))
    record = train(config, tmp_path / "run")
    assert record["resumed_from"] is None and record["metrics"] == whole["metrics"]
    assert "checkpoint.pt is damaged" in capsys.readouterr().err
    assert (tmp_path / "run" / "checkpoint.pt.damaged").exists()


@pytest.mark.parametrize(
    "change",
    [
        {"metrics": {}},
        {"metrics": None},
        {"cost": None},
        {"steps": None},
        {"config": []},
        {"validation": {"error": ""}},
    ],
    ids=str,
)
def test_a_sealed_record_that_lacks_what_a_run_has_is_set_aside_and_the_run_is_done_again(tmp_path, capsys, change):
    config = configure(TOY, epochs=1)
    whole = train(config, tmp_path)
    write_record(tmp_path / "run.json", {**whole, **change})
    assert train(config, tmp_path)["metrics"] == whole["metrics"]
    assert "run.json is damaged" in capsys.readouterr().err and (tmp_path / "run.json.damaged").exists()


some_rows = st.lists(st.dictionaries(st.text(max_size=4), st.integers() | st.text(max_size=4), max_size=3), max_size=5)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(some_rows, st.integers(0, 10**6), st.integers(0, 7))
def test_rows_are_read_as_written_and_altered_ones_left_out(tmp_path_factory, given_rows, place, bit):
    file = tmp_path_factory.mktemp("rows") / "epochs.jsonl"
    given_rows = [{key: value for key, value in row.items() if key != "sha256"} for row in given_rows]
    write_rows(file, given_rows)
    assert read_rows(file) == (given_rows, [])
    content = bytearray(file.read_bytes())
    if not content:
        return
    content[place % len(content)] ^= 1 << bit
    file.write_bytes(content)
    found, notes = read_rows(file)
    assert len(found) <= len(given_rows) + 1
    assert all(row in given_rows for row in found) or any("no checksum" in note for note in notes)
    if found != given_rows:
        assert notes


def test_lines_of_earlier_versions_have_no_checksum_and_are_used(tmp_path):
    file = tmp_path / "diagnostics.jsonl"
    file.write_text('{"step": 1}\n{"step": 2}\n')
    append_row(file, {"step": 3})
    with file.open("a") as torn:
        torn.write('{"step": 4, "sha2')
    found, notes = read_rows(file)
    assert [row["step"] for row in found] == [1, 2, 3]
    assert "2 lines have no checksum" in notes[1] and "line 4 was left out" in notes[0]
