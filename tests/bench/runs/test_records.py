"""Records of runs: which are found, which are refused, and that packing them loses nothing."""

import json
import math

import pytest

from madamoo.bench.runs._files import seal, write_record
from madamoo.bench.runs._records import CURVE_POINTS, collect, read_records


def record(status="finished", *, value=1.0, points=3, **config):
    """A record as a run writes it; its curve falls to its value, with the lowest point in between."""
    done = status == "finished"
    losses = [value + (points - k) / points for k in range(1, points + 1)]
    losses[2 * points // 3] = value - 1
    identity = {"benchmark": "sarcos", "profile": "cpu", "solver": "ls", "optimizer": "adam", "lr": 1e-3, "seed": 0}
    return {
        "config": {**identity, "epochs": points, "batch": 8, "model": "mlp", "schedule": "constant", **config},
        "status": status,
        "metrics": {"avg_err": value} if done else None,
        "validation": {"avg_err": value} if done else None,
        "validation_loss": value if done else None,
        "cost": {"seconds": 1.0 * points, "curve": [[k + 1.0, loss] for k, loss in enumerate(losses)]},
    }


def line(run):
    return json.dumps(seal(run)) + "\n"


def seeds(records):
    return sorted(r["config"]["seed"] for r in records)


def test_finds_ended_runs_in_folders_and_in_packed_files(tmp_path, capsys):
    write_record(tmp_path / "a" / "deep" / "run.json", record(seed=0))
    write_record(tmp_path / "b" / "run.json", record("diverged", seed=1))
    write_record(tmp_path / "c" / "run.json", record("running", seed=2))
    (tmp_path / "a" / "deep" / "epochs.jsonl").write_text('{"epoch": 1}\n')
    (tmp_path / "packed.jsonl").write_text(line(record(seed=3)) + "\n" + line(record("running", seed=4)))
    assert seeds(read_records(tmp_path)) == [0, 1, 3]
    assert seeds(read_records(tmp_path / "b", tmp_path / "packed.jsonl")) == [1, 3]
    assert not capsys.readouterr().err, "the rows of epochs are not damaged records"


def test_a_root_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        read_records(tmp_path / "nowhere")


def altered(text):
    assert "0.001" in text
    return text.replace("0.001", "0.002")


BROKEN = {
    "torn": lambda text: text[:50],
    "altered": altered,
    "not JSON": lambda text: "epoch 1: fine\n",
    "not a record": lambda text: "[1, 2]\n",
    "not a number": lambda text: text.replace("0.001", "NaN"),
    "unsealed": lambda text: json.dumps({k: v for k, v in json.loads(text).items() if k != "sha256"}),
    "without a seed": lambda text: line({**json.loads(text), "config": {"benchmark": "sarcos"}}),
    "without metrics": lambda text: line({**json.loads(text), "metrics": None}),
    "no spec": lambda text: line(record(solver="cagrad:c")),
    "no name": lambda text: line(record(solver=3)),
}


@pytest.mark.parametrize("damage", BROKEN)
def test_a_damaged_record_is_named_and_never_used(damage, tmp_path, capsys):
    bad = BROKEN[damage](line(record(seed=7))).rstrip("\n")
    (tmp_path / "packed.jsonl").write_text(line(record(seed=1)) + bad + "\n" + line(record(seed=2)))
    (tmp_path / "run.json").write_text(bad)
    assert seeds(read_records(tmp_path)) == [1, 2]
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2
    assert f"{tmp_path / 'packed.jsonl'}, line 2 " in said[0] and f"{tmp_path / 'run.json'} " in said[1]


def test_a_line_that_is_not_text_does_not_take_the_others_with_it(tmp_path, capsys):
    (tmp_path / "packed.jsonl").write_bytes(b"\xff\xfe\n" + line(record()).encode())
    assert len(read_records(tmp_path)) == 1
    assert "line 1" in capsys.readouterr().err


def test_of_equal_configurations_the_last_read_counts_once(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    write_record(one / "run.json", record(value=1.0, solver="cagrad:c=0.5:rescale=1"))
    write_record(two / "run.json", record(value=2.0, solver="cagrad:rescale=1:c=0.50"))

    def value(*roots):
        (found,) = read_records(*roots)
        return found["validation_loss"]

    assert value(one, two) == value(tmp_path) == 2.0
    assert value(two, one) == 1.0
    write_record(two / "run.json", record("diverged", solver="cagrad:c=0.5:rescale=1"))
    assert value(one, two) is None, "a divergence is not replaced by a luckier run"
    (tmp_path / "zzz.jsonl").write_text(line(record(value=3.0, solver="cagrad:c=0.5:rescale=1")))
    assert value(tmp_path) is None, "run folders are newer than packed files"


def test_packed_runs_read_as_the_runs_themselves(tmp_path):
    runs = [record(seed=s, lr=lr, benchmark=b) for s in (1, 0) for lr in (1e-3, 1e-4) for b in ("sarcos", "mulan/scpf")]
    for k, run in enumerate(runs):
        write_record(tmp_path / "runs" / str(k) / "run.json", run)
    write_record(tmp_path / "runs" / "unfinished" / "run.json", record("running", seed=9))
    assert collect(tmp_path / "runs", tmp_path / "packed") == len(runs)
    assert sorted(p.name for p in (tmp_path / "packed").iterdir()) == ["mulan-scpf.jsonl", "sarcos.jsonl"]

    def content(root):
        return sorted(json.dumps(r, sort_keys=True) for r in read_records(root))

    assert content(tmp_path / "packed") == content(tmp_path / "runs")
    lines = (tmp_path / "packed" / "sarcos.jsonl").read_text().splitlines()
    configs = [json.loads(text)["config"] for text in lines]
    assert [(c["lr"], c["seed"]) for c in configs] == [(1e-4, 0), (1e-4, 1), (1e-3, 0), (1e-3, 1)]


def test_packing_merges_with_what_is_there_in_an_order_of_its_own(tmp_path):
    first, second, into = tmp_path / "first", tmp_path / "second", tmp_path / "packed"
    for seed in (3, 1):
        write_record(first / str(seed) / "run.json", record(seed=seed, value=1.0))
    for seed in (2, 1):
        write_record(second / str(seed) / "run.json", record(seed=seed, value=2.0))
    collect(first, into)
    collect(second, into)
    merged = (into / "sarcos.jsonl").read_bytes()
    assert [(r["config"]["seed"], r["validation_loss"]) for r in read_records(into)] == [(1, 2.0), (2, 2.0), (3, 1.0)]
    collect(second, into)
    assert (into / "sarcos.jsonl").read_bytes() == merged


def test_packing_keeps_damaged_lines_aside(tmp_path, capsys):
    into = tmp_path / "packed"
    write_record(tmp_path / "runs" / "run.json", record(seed=1))
    collect(tmp_path / "runs", into)
    packed = into / "sarcos.jsonl"
    for bad in (b"torn", b"torn again"):
        packed.write_bytes(packed.read_bytes() + bad + b"\n")
        collect(tmp_path / "runs", into)
    assert (into / "sarcos.jsonl.damaged").read_bytes() == b"torn\ntorn again\n"
    capsys.readouterr()
    assert seeds(read_records(into)) == [1]
    assert not capsys.readouterr().err


@pytest.mark.parametrize("points", (1, CURVE_POINTS, CURVE_POINTS + 1, 100, 1000))
def test_a_packed_curve_is_short_and_still_reaches_every_loss(points, tmp_path):
    run = record(points=points)
    run["cost"]["curve"][0][1] = None
    run["cost"]["training"] = [[10 * k, *point] for k, point in enumerate(run["cost"]["curve"])]
    write_record(tmp_path / "runs" / "run.json", run)
    collect(tmp_path / "runs", tmp_path / "packed")
    (packed,) = read_records(tmp_path / "packed")
    whole, thin = run["cost"]["curve"], packed["cost"]["curve"]
    assert len(thin) <= CURVE_POINTS and (len(thin) == points or points > CURVE_POINTS)
    assert thin == [point for point in whole if point in thin], "points in their order, none of them new"
    assert thin[0] == whole[0] and thin[-1] == whole[-1]

    def lowest(curve):
        return min((loss for _, loss in curve if loss is not None), default=math.inf)

    assert lowest(thin) == lowest(whole)
    assert [point[1:] for point in packed["cost"]["training"]] == thin
