"""SARCOS from files in the true layout; and once from the real one."""

import itertools
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.io import savemat

from madamoo.bench import MissingData, configure, get
from madamoo.bench.training import train


def write(root, train=4448 + 100, test=4449):
    draw = np.random.default_rng(0)
    (root / "sarcos").mkdir(parents=True, exist_ok=True)
    rows = {"sarcos_inv": draw.normal(size=(train, 28)), "sarcos_inv_test": draw.normal(size=(test, 28))}
    for name, table in rows.items():
        table[:, 0] = np.arange(len(table))  # so that no two rows are equal
        savemat(root / "sarcos" / f"{name}.mat", {name: table})
    return rows


def test_full_set_is_split_as_the_recipe_says(tmp_path):
    rows = write(tmp_path)
    problem = get("sarcos")
    data = problem.load(tmp_path, problem.profiles["paper"], 5)
    assert [len(part) for part in (data.train, data.validation, data.test)] == [100, 4448, 4449]
    assert data.validation.inputs[:, 0].tolist() == list(range(4448)), "the first rows of the training file"
    assert data.train.inputs[:, 0].tolist() == list(range(4448, 4548))
    assert torch.equal(data.test.inputs, torch.from_numpy(rows["sarcos_inv_test"][:, :21]).float())
    assert problem.shape(data) == ((21,), (1,) * 7)


def test_torques_are_divided_by_the_quantile_of_the_training_rows(tmp_path):
    rows = write(tmp_path)
    data = get("sarcos").load(tmp_path, get("sarcos").profiles["paper"], 0)
    for k in range(7):
        column = sorted(rows["sarcos_inv"][4448:, 21 + k])
        place = 0.9 * (len(column) - 1)
        low = int(place)
        scale = column[low] + (place - low) * (column[low + 1] - column[low])
        expected = rows["sarcos_inv_test"][:, 21 + k] / scale
        np.testing.assert_allclose(data.test.targets[k].numpy(), expected, rtol=2e-5, atol=1e-6)


def test_small_set_is_split_by_the_seed(tmp_path):
    write(tmp_path)
    problem = get("sarcos-small")
    one, same, other = (problem.load(tmp_path, problem.profiles["cpu"], seed) for seed in (0, 0, 1))
    parts = [part.inputs[:, 0].tolist() for part in (one.train, one.validation, one.test)]
    assert [len(part) for part in parts] == [3114, 445, 890]
    assert sorted(itertools.chain(*parts)) == list(range(4449)), "each row once"
    assert torch.equal(one.test.inputs, same.test.inputs) and not torch.equal(one.test.inputs, other.test.inputs)


def test_errors_against_loops():
    problem = get("sarcos")
    draw = torch.Generator().manual_seed(0)
    outputs = [torch.randn(23, 1, generator=draw) for _ in range(7)]
    targets = [torch.randn(23, generator=draw) for _ in range(7)]
    parts = [problem.tally([z[k : k + 5] for z in outputs], [y[k : k + 5] for y in targets]) for k in range(0, 23, 5)]
    found = problem.summarise({key: sum(part[key] for part in parts) for key in parts[0]})
    exact = [
        100 * sum((a - b) ** 2 for a, b in zip(z.flatten().tolist(), y.tolist(), strict=True)) / 23
        for z, y in zip(outputs, targets, strict=True)
    ]
    assert [found[f"t{k + 1}"] for k in range(7)] == pytest.approx(exact, rel=1e-5)
    assert found["avg_err"] == pytest.approx(sum(exact) / 7, rel=1e-5)
    losses = problem.criteria(outputs, targets)
    assert [100 * float(x) for x in losses] == pytest.approx(exact, rel=1e-5)


def test_missing_and_wrong_files_are_told(tmp_path):
    write(tmp_path)
    file = tmp_path / "sarcos" / "sarcos_inv.mat"
    savemat(file, {"sarcos_inv": np.zeros((3, 4))})
    problem = get("sarcos")
    with pytest.raises(ValueError, match=r"sarcos_inv\.mat has no variable sarcos_inv of 28 columns"):
        problem.load(tmp_path, problem.profiles["cpu"], 0)
    savemat(file, {"other": np.zeros((3, 28))})
    with pytest.raises(ValueError, match="no variable sarcos_inv"):
        problem.load(tmp_path, problem.profiles["cpu"], 0)
    file.unlink()
    with pytest.raises(MissingData, match=r"(?s)Not there: .*sarcos_inv\.mat\n.*44,484 rows"):
        problem.load(tmp_path, problem.profiles["cpu"], 0)
    get("sarcos-small").load(tmp_path, get("sarcos-small").profiles["cpu"], 0)  # needs the other file alone


@pytest.mark.parametrize("rows", [10, 3559])
def test_a_file_with_too_few_rows_is_told(tmp_path, rows):
    write(tmp_path, train=rows, test=rows)
    for name in ("sarcos", "sarcos-small"):
        with pytest.raises(ValueError, match=rf"sarcos_inv.*\.mat has {rows} rows"):
            get(name).load(tmp_path, get(name).profiles["cpu"], 0)


@pytest.mark.parametrize("content", [b"", b"hello" * 100, None], ids=["empty", "garbage", "torn"])
def test_a_damaged_file_is_named(tmp_path, content):
    write(tmp_path)
    file = tmp_path / "sarcos" / "sarcos_inv_test.mat"
    file.write_bytes(file.read_bytes()[:5000] if content is None else content)
    with pytest.raises(ValueError, match=r"sarcos_inv_test\.mat"):
        get("sarcos-small").load(tmp_path, get("sarcos-small").profiles["cpu"], 0)


def test_real_file(tmp_path):
    root = Path(os.environ.get("MADAMOO_DATA", "nowhere"))
    if not (root / "sarcos" / "sarcos_inv_test.mat").exists():
        pytest.skip("no sarcos/sarcos_inv_test.mat below MADAMOO_DATA")
    record = train(configure("sarcos-small", epochs=2), tmp_path, data_dir=root)
    assert record["parameters"] == 137_216 + 7 * 257 and record["steps"] == 48
    curve = [loss for _, loss in record["cost"]["curve"]]
    assert record["status"] == "finished" and curve[1] < curve[0]
