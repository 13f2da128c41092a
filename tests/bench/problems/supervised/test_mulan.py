"""The Mulan sets from small .arff files, and each of the real ones."""

import itertools
import math
import os
from pathlib import Path

import pytest
import torch

from madamoo.bench import MissingData, configure, get
from madamoo.bench.problems.supervised.mulan import TARGETS, read_arff
from madamoo.bench.training import train

HEADER = """% a comment
@relation 'enb: -C 2'
@attribute width numeric
@attribute 'the kind' {small,large,odd}
@attribute gap numeric
@attribute still numeric
@attribute y1 numeric
@attribute y2 real
@data
"""


def write(root, rows=20):
    kinds = ("small", "large", "odd")
    lines = [f"{k * k},{kinds[k % 3]},{'?' if k % 4 == 0 else k},5,{k},{-2.5 * k}" for k in range(rows)]
    (root / "mulan").mkdir(parents=True, exist_ok=True)
    file = root / "mulan" / "enb.arff"
    file.write_text(HEADER + "\n".join(lines) + "\n")
    return file


def test_numbers_names_and_gaps_are_read(tmp_path):
    x, y = read_arff(write(tmp_path), 2)
    assert x.shape == (20, 1 + 3 + 1 + 1) and y.shape == (20, 2)
    assert x[4].nan_to_num(-1).tolist() == [16, 0, 1, 0, -1, 5] and y[4].tolist() == [4, -10]
    assert torch.equal(x[:, 1:4].sum(1), torch.ones(20)), "one of the names each"


def test_missing_targets_are_refused(tmp_path):
    file = write(tmp_path)
    file.write_text(file.read_text().replace("16,large,?,5,4", "16,large,?,5,?"))
    with pytest.raises(ValueError, match="lacks some of its targets"):
        read_arff(file, 2)


def test_split_and_standardisation_against_loops(tmp_path):
    problem = get("mulan/enb")
    raw, targets = read_arff(write(tmp_path), 2)
    data = problem.load(tmp_path, problem.profiles["cpu"], 3)
    parts = (data.train, data.validation, data.test)
    assert [len(part) for part in parts] == [12, 4, 4]
    order = torch.randperm(20, generator=torch.Generator().manual_seed(3)).tolist()
    train_rows, test_rows = order[:12], order[16:]
    for whole, found in ((raw, data.test.inputs), (targets, torch.stack(data.test.targets, 1))):
        for k in range(whole.shape[1]):
            known = [v for v in whole[train_rows, k].tolist() if not math.isnan(v)]
            mean = sum(known) / len(known)
            deviation = math.sqrt(sum((v - mean) ** 2 for v in known) / len(known))
            for row, value in zip(test_rows, found[:, k].tolist(), strict=True):
                v = float(whole[row, k])
                exact = 0.0 if math.isnan(v) or deviation == 0 else (v - mean) / deviation
                assert value == pytest.approx(exact, abs=1e-4)
    assert torch.isfinite(data.train.inputs).all() and problem.shape(data) == ((6,), (1, 1))
    assert torch.equal(problem.load(tmp_path, problem.profiles["cpu"], 3).train.inputs, data.train.inputs)
    assert not torch.equal(problem.load(tmp_path, problem.profiles["cpu"], 4).train.inputs, data.train.inputs)


def test_relative_error_against_loops(tmp_path):
    """RRMSE: root of squared error over that of the training mean, on targets in their own units."""
    problem = get("mulan/enb")
    _, targets = read_arff(write(tmp_path), 2)
    data = problem.load(tmp_path, problem.profiles["cpu"], 0)
    order = torch.randperm(20, generator=torch.Generator().manual_seed(0)).tolist()
    draw = torch.Generator().manual_seed(0)
    outputs = [torch.randn(4, 1, generator=draw) for _ in range(2)]
    parts = [problem.tally([z[k : k + 3] for z in outputs], [y[k : k + 3] for y in data.test.targets]) for k in (0, 3)]
    found = problem.summarise({key: sum(part[key] for part in parts) for key in parts[0]})
    exact = []
    for k in range(2):
        known = targets[order[:12], k].tolist()
        mean = sum(known) / 12
        deviation = math.sqrt(sum((v - mean) ** 2 for v in known) / 12)
        error = base = 0.0
        for row, z in zip(order[16:], outputs[k].flatten().tolist(), strict=True):
            error += (z * deviation + mean - float(targets[row, k])) ** 2
            base += (mean - float(targets[row, k])) ** 2
        exact.append(100 * math.sqrt(error / base))
    assert [found["y1"], found["y2"]] == pytest.approx(exact, rel=1e-4)
    assert found["avg_rrmse"] == pytest.approx(sum(exact) / 2, rel=1e-4)


def test_predicting_the_mean_is_100(tmp_path):
    write(tmp_path)
    problem = get("mulan/enb")
    data = problem.load(tmp_path, problem.profiles["cpu"], 0)
    found = problem.summarise(problem.tally([torch.zeros(4, 1)] * 2, data.test.targets))
    assert found == pytest.approx({"avg_rrmse": 100.0, "y1": 100.0, "y2": 100.0})


def test_a_run_on_a_small_file(tmp_path):
    write(tmp_path)
    record = train(configure("mulan/enb", epochs=3), tmp_path / "run", data_dir=tmp_path)
    assert (
        record["status"] == "finished" and record["steps"] == 3 and set(record["metrics"]) == {"avg_rrmse", "y1", "y2"}
    )


@pytest.mark.parametrize(
    "content", ["", "hello\n", HEADER, HEADER + "1,2\n"], ids=["empty", "garbage", "no rows", "short"]
)
def test_a_damaged_file_is_named(tmp_path, content):
    write(tmp_path).write_text(content)
    with pytest.raises(ValueError, match=r"enb\.arff"):
        get("mulan/enb").load(tmp_path, get("mulan/enb").profiles["cpu"], 0)


def test_a_missing_file_is_told_with_the_layout(tmp_path):
    with pytest.raises(MissingData, match=r"mulan/enb\.arff  \(the last 2 columns are the targets\)"):
        get("mulan/enb").load(tmp_path, get("mulan/enb").profiles["cpu"], 0)


def test_real_files():
    root = Path(os.environ.get("MADAMOO_DATA", "nowhere"))
    here = [dataset for dataset in TARGETS if (root / "mulan" / f"{dataset}.arff").exists()]
    if not here:
        pytest.skip("no mulan/*.arff below MADAMOO_DATA")
    for dataset, seed in itertools.product(here, range(2)):
        problem = get(f"mulan/{dataset}")
        data = problem.load(root, problem.profiles["cpu"], seed)
        for part in (data.train, data.validation, data.test):
            zeros = [torch.zeros(len(part), 1)] * len(problem.objectives)
            found = problem.summarise(problem.tally(zeros, part.targets))
            assert found == pytest.approx(dict.fromkeys(found, 100.0)), "no target is constant"
            assert torch.isfinite(part.inputs).all() and part.inputs.abs().max() < 1e3
