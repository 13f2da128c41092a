"""Forty questions about four digits, from files in the true layout, small; and once from the real ones."""

import gzip
import os
import struct
from pathlib import Path

import numpy as np
import pytest
import torch

from madamoo.bench import configure, get
from madamoo.bench.problems.supervised import four_digits
from madamoo.bench.problems.supervised.four_digits import compose
from madamoo.bench.problems.supervised.multimnist import FILES
from madamoo.bench.training import train

PROBLEM = get("four-digits")


@pytest.fixture
def small(monkeypatch, tmp_path):
    monkeypatch.setenv("MADAMOO_CACHE", str(tmp_path / "cache"))
    for name, count in (("TRAIN", 60), ("VALIDATION", 20), ("TEST", 30)):
        monkeypatch.setattr(four_digits, name, count)
    draw = np.random.default_rng(0)
    for name, count in zip(FILES, (40, 40, 20, 20), strict=True):
        shape = (count, 28, 28) if "images" in name else (count,)
        array = draw.integers(0, 256 if "images" in name else 10, shape, dtype=np.uint8)
        header = b"\0\0\x08" + bytes([array.ndim]) + struct.pack(f">{array.ndim}i", *array.shape)
        file = tmp_path / "data" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(gzip.compress(header + array.tobytes()))
    return tmp_path / "data"


def test_data(small):
    data = PROBLEM.load(small, PROBLEM.profiles["paper"], 0)
    assert [len(part) for part in (data.train, data.validation, data.test)] == [60, 20, 30]
    assert PROBLEM.shape(data) == ((1, 28, 28), (1,) * 40) and len(PROBLEM.objectives) == 40
    answers = torch.stack(data.train.targets, 1)
    assert (answers.view(60, 4, 10).sum(2) == 1).all()
    again = PROBLEM.load(small, PROBLEM.profiles["paper"], 1)
    assert torch.equal(again.test.inputs, data.test.inputs), "the same for every run"
    assert torch.equal(PROBLEM.prepare(data.train, None).inputs, data.train.inputs.float() / 255)


def test_composition_against_loops():
    draw = torch.Generator().manual_seed(0)
    images = torch.randint(256, (9, 28, 28), dtype=torch.uint8, generator=draw)
    made, sources = compose(images, torch.arange(9, dtype=torch.uint8), 6, draw)
    assert made.shape == (6, 1, 28, 28) and sources.unique().numel() > 4
    for image, four in zip(made[:, 0].tolist(), sources.tolist(), strict=True):
        for row in range(28):
            for column in range(28):
                source = images[four[2 * (row // 14) + column // 14]]
                r, c = 2 * (row % 14), 2 * (column % 14)
                assert abs(image[row][column] - float(source[r : r + 2, c : c + 2].double().mean())) <= 0.5


def test_metrics_against_loops():
    draw = torch.Generator().manual_seed(0)
    digits = torch.randint(10, (50, 4), generator=draw)
    y = torch.nn.functional.one_hot(digits, 10).flatten(1).float()
    z = 2 * y + torch.randn(50, 40, generator=draw) - 0.5
    z[:, 7] = -1.0  # never a yes
    parts = [PROBLEM.tally([*z[k : k + 20].split(1, 1)], [*y[k : k + 20].T]) for k in range(0, 50, 20)]
    found = PROBLEM.summarise({key: sum(part[key] for part in parts) for key in parts[0]})
    right = sum(int(z[n, 10 * q : 10 * q + 10].argmax()) == int(digits[n, q]) for n in range(50) for q in range(4))
    f1 = []
    for k in range(40):
        hit = sum(bool(z[n, k] > 0 and y[n, k] > 0) for n in range(50))
        wrong = sum(bool((z[n, k] > 0) != (y[n, k] > 0)) for n in range(50))
        f1.append(100 * 2 * hit / max(2 * hit + wrong, 1))
    assert found == pytest.approx({"avg_acc": 100 * right / 200, "avg_f1": sum(f1) / 40, "worst_f1": min(f1)})
    assert f1[7] == 0.0


def test_losses_are_those_of_single_questions():
    z, y = torch.randn(6, 40), torch.randint(2, (6, 40)).float()
    found = PROBLEM.criteria([*z.split(1, 1)], [*y.T])
    p = torch.sigmoid(z)
    wanted = -(y * p.log() + (1 - y) * (1 - p).log()).mean(0)
    torch.testing.assert_close(torch.stack(found), wanted)


@pytest.mark.parametrize("solver, estimator", [("ls", "auto"), ("uw", "separable"), ("upgrad", "separable")])
def test_forty_objectives_within_twice_the_memory_of_adam(solver, estimator, small, tmp_path):
    size = {}
    for optimizer in ("adam", f"madam:estimator={estimator}"):
        config = configure("four-digits", solver=solver, optimizer=optimizer, epochs=1, batch=30)
        record = train(config, tmp_path / optimizer.partition(":")[0], data_dir=small)
        assert record["status"] == "finished" and record["parameters"] == 785 * 128 + 129 * 128 + 40 * 129
        size[optimizer[:4]] = record["cost"]["state_bytes"]
    assert size["mada"] < 2 * size["adam"]


def test_real_files(monkeypatch, tmp_path):
    root = Path(os.environ.get("MADAMOO_DATA", "nowhere"))
    if not (root / FILES[0]).exists():
        pytest.skip(f"no {FILES[0]} below MADAMOO_DATA")
    monkeypatch.setenv("MADAMOO_CACHE", str(tmp_path))
    data = PROBLEM.load(root, PROBLEM.profiles["cpu"], 0)
    shares = torch.stack(data.train.targets).mean(1)
    assert len(data.train) == 12_000 and 0.07 < shares.min() < shares.max() < 0.13
    assert 20 < data.test.inputs.float().mean() < 50
