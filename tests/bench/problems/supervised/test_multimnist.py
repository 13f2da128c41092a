"""MultiMNIST from files in the true layout, small; and once from the real ones."""

import gzip
import os
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from madamoo.bench import MissingData, configure, get
from madamoo.bench.problems._data import cache_root
from madamoo.bench.problems.supervised import multimnist
from madamoo.bench.problems.supervised.multimnist import FILES, RAW, compose, read_idx
from madamoo.bench.training import train

PROBLEM = get("multimnist")


def idx(array):
    return b"\0\0\x08" + bytes([array.ndim]) + struct.pack(f">{array.ndim}i", *array.shape) + array.tobytes()


def write(root, names, train=40, test=20):
    draw = np.random.default_rng(0)
    for name, count in zip(names, (train, train, test, test), strict=True):
        shape = (count, 28, 28) if "images" in name else (count,)
        content = idx(draw.integers(0, 256 if "images" in name else 10, shape, dtype=np.uint8))
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)


@pytest.fixture
def small(monkeypatch, tmp_path):
    monkeypatch.setenv("MADAMOO_CACHE", str(tmp_path / "cache"))
    for name, count in (("TRAIN", 60), ("VALIDATION", 20), ("TEST", 30)):
        monkeypatch.setattr(multimnist, name, count)
    return tmp_path / "data"


@pytest.mark.parametrize("names", [FILES, [f"mnist/{n}" for n in RAW], [f"mnist/MNIST/raw/{n}" for n in RAW]])
def test_each_layout_is_read(small, names):
    write(small, names)
    data = PROBLEM.load(small, PROBLEM.profiles["paper"], 0)
    assert [len(part) for part in (data.train, data.validation, data.test)] == [60, 20, 30]
    assert data.train.inputs.shape[1:] == (1, 28, 28) and data.train.inputs.dtype == torch.uint8
    assert PROBLEM.shape(data) == ((1, 28, 28), (10, 10))


def test_preparation_is_seeded_cached_and_rebuilt_when_damaged(small, capsys):
    write(small, FILES)
    profile = PROBLEM.profiles["paper"]
    first = PROBLEM.load(small, profile, 0)
    (file,) = cache_root().glob("*.pt")
    content = file.read_bytes()
    assert torch.equal(PROBLEM.load(small, profile, 1).test.inputs, first.test.inputs), "the same for every run"
    file.unlink()
    PROBLEM.load(small, profile, 0)
    assert file.read_bytes() == content
    file.write_bytes(content[:1000])
    assert torch.equal(PROBLEM.load(small, profile, 0).train.inputs, first.train.inputs)
    assert file.read_bytes() == content and "is damaged" in capsys.readouterr().err


def test_a_smaller_profile_takes_the_first_images_of_the_same(small):
    write(small, FILES)
    whole = PROBLEM.load(small, PROBLEM.profiles["paper"], 0)
    part = PROBLEM.load(small, replace(PROBLEM.profiles["cpu"], options={"train": 7, "validation": 5}), 0)
    assert torch.equal(part.train.inputs, whole.train.inputs[:7])
    assert torch.equal(part.validation.inputs, whole.validation.inputs[:5])
    assert torch.equal(part.test.inputs, whole.test.inputs)


def test_missing_files_are_told_with_the_layout(tmp_path):
    write(tmp_path, (*FILES[:3], "mnist/unused-labels"))
    with pytest.raises(MissingData, match=r"(?s)t10k-labels-idx1-ubyte\.gz.*Expected layout:.*mnist/train-images"):
        PROBLEM.locate(tmp_path)


DAMAGE = {
    "torn": lambda b: b[: len(b) // 2],
    "empty": lambda b: b"",
    "not gzip": lambda b: b"hello",
    "flipped": lambda b: b[:30] + bytes([b[30] ^ 255]) + b[31:],
    "too short": lambda b: gzip.compress(gzip.decompress(b)[:-1]),
    "header only": lambda b: gzip.compress(b"\0\0\x08"),
    "half a header": lambda b: gzip.compress(b"\0\0\x08\x03\0\0"),
    "floats": lambda b: gzip.compress(b"\0\0\x0d" + gzip.decompress(b)[3:]),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_file_is_named(tmp_path, damage):
    write(tmp_path, FILES)
    file = tmp_path / FILES[0]
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(ValueError, match="train-images"):
        read_idx(file)


def test_composition_against_loops():
    """Geometry by loops; the resize by torch on float64, whose rounding is the only difference."""
    draw = torch.Generator().manual_seed(0)
    images = torch.randint(256, (9, 28, 28), dtype=torch.uint8, generator=draw)
    labels = torch.arange(9, dtype=torch.uint8)  # tells the sources
    made, pairs = compose(images, labels, 12, torch.Generator().manual_seed(1))
    assert made.shape == (12, 1, 28, 28) and made.dtype == torch.uint8 and pairs.dtype == torch.int64
    for n, (one, other) in enumerate(pairs.tolist()):
        canvas = np.zeros((36, 36))
        for row in range(28):
            for column in range(28):
                canvas[row, column] = float(images[one, row, column])
        for row in range(28):
            for column in range(28):
                value = float(images[other, row, column])
                canvas[row + 6, column + 6] = max(canvas[row + 6, column + 6], value)
        whole = torch.from_numpy(canvas)[None, None]
        small = torch.nn.functional.interpolate(whole, size=(28, 28), mode="bilinear", antialias=True)[0, 0]
        assert (made[n, 0].double() - small).abs().max() <= 0.5 + 1e-3


def test_the_two_sources_are_always_different_and_all_pairs_come():
    labels = torch.arange(4, dtype=torch.uint8)
    _, pairs = compose(torch.zeros(4, 28, 28, dtype=torch.uint8), labels, 2000, torch.Generator().manual_seed(0))
    counts = np.zeros((4, 4), int)
    for one, other in pairs.tolist():
        counts[one, other] += 1
    assert counts.diagonal().sum() == 0
    expected = 2000 / 12
    chi = ((counts[~np.eye(4, dtype=bool)] - expected) ** 2 / expected).sum()
    assert chi < 31.3  # 99.9 % of 11 degrees of freedom


def test_accuracy_against_loops():
    draw = torch.Generator().manual_seed(0)
    outputs = [torch.randn(37, 10, generator=draw) for _ in range(2)]
    targets = [torch.randint(10, (37,), generator=draw) for _ in range(2)]
    parts = [
        PROBLEM.tally([z[k : k + 10] for z in outputs], [y[k : k + 10] for y in targets]) for k in range(0, 37, 10)
    ]
    found = PROBLEM.summarise({key: sum(part[key] for part in parts) for key in parts[0]})
    exact = []
    for z, y in zip(outputs, targets, strict=True):
        right = sum(max(range(10), key=row.__getitem__) == t for row, t in zip(z.tolist(), y.tolist(), strict=True))
        exact.append(100 * right / 37)
    assert found == pytest.approx({"left_acc": exact[0], "right_acc": exact[1], "avg_acc": sum(exact) / 2})


def test_pixels_become_numbers_in_zero_to_one(small):
    write(small, FILES)
    data = PROBLEM.load(small, PROBLEM.profiles["paper"], 0)
    batch = PROBLEM.prepare(data.train[:5], None)
    assert torch.equal(batch.inputs, data.train.inputs[:5].float() / 255)


def test_a_run_on_small_files(small, tmp_path):
    write(small, FILES)
    record = train(configure("multimnist", profile="paper", epochs=1, batch=20), tmp_path / "run", data_dir=small)
    assert record["status"] == "finished" and record["steps"] == 3 and record["parameters"] == 21_330 + 2 * 3_060


def test_real_files():
    root = Path(os.environ.get("MADAMOO_DATA", "nowhere"))
    if not (root / FILES[0]).exists():
        pytest.skip(f"no {FILES[0]} below MADAMOO_DATA")
    images, labels = (read_idx(root / name) for name in FILES[2:])
    assert images.shape == (10_000, 28, 28) and labels.bincount().tolist()[:2] == [980, 1135]
    made, pairs = compose(images, labels, 300, torch.Generator().manual_seed(0))
    assert 20 < made.float().mean() < 80 and pairs.unique().tolist() == list(range(10))
