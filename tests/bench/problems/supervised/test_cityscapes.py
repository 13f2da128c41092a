"""Cityscapes on small files written here in MTAN's layout; its metrics against plain loops."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from madamoo.bench import MissingData, get


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MADAMOO_CACHE", str(tmp_path / "cache"))


def write(root: Path, labels: dict[str, int], train: int = 25, val: int = 4) -> None:
    """``labels``: folders of labels and their numbers of classes. The depth is constant and says which frame it is."""
    random = np.random.default_rng(0)
    for split, count, first in (("train", train, 1), ("val", val, 101)):
        for k in range(count):
            parts = {"image": random.random((8, 16, 3)), "depth": np.full((8, 16, 1), first + k)}
            parts |= {name: random.integers(-1, classes, (8, 16)) for name, classes in labels.items()}
            for part, array in parts.items():
                (root / "cityscapes" / split / part).mkdir(parents=True, exist_ok=True)
                np.save(root / "cityscapes" / split / part / f"{k}.npy", array)


def profile(**options):
    return replace(get("cityscapes").profiles["paper"], options=options)


@pytest.mark.parametrize("folder, classes", [("label", 7), ("label", 19), ("label_7", 7), ("label_19", 19)])
def test_classes_are_read_from_the_labels(tmp_path, folder, classes):
    write(tmp_path, {folder: classes})
    data = get("cityscapes").load(tmp_path, profile(), 0)
    assert get("cityscapes").shape(data) == ((3, 8, 16), (classes, 1))
    assert data.test.targets[0][2].tolist() == np.load(tmp_path / "cityscapes" / "val" / folder / "2.npy").tolist()


def test_option_chooses_between_label_folders(tmp_path):
    write(tmp_path, {"label_7": 7, "label_19": 19})
    for options, classes in (({}, 19), ({"classes": 7}, 7), ({"classes": 19}, 19)):
        data = get("cityscapes").load(tmp_path, profile(**options), 0)
        assert get("cityscapes").shape(data)[1] == (classes, 1)
    with pytest.raises(ValueError, match="classes must be"):
        get("cityscapes").load(tmp_path, profile(classes=8), 0)


def test_labels_of_other_classes_are_refused(tmp_path):
    write(tmp_path, {"label": 7})
    with pytest.raises(ValueError, match="7 classes, not of 19"):
        get("cityscapes").load(tmp_path, profile(classes=19), 0)
    write(tmp_path, {"label": 30})
    with pytest.raises(ValueError, match="at most 19"):
        get("cityscapes").shape(get("cityscapes").load(tmp_path, profile(), 0))


def test_splits_are_disjoint_stable_and_in_proportion(tmp_path):
    write(tmp_path, {"label": 7}, train=119)
    first, second = (get("cityscapes").load(tmp_path, profile(), seed) for seed in (0, 3))
    numbers = [split.targets[1][:, 0, 0].int().tolist() for split in (first.train, first.validation, first.test)]
    assert [len(each) for each in numbers] == [100, 19, 4]
    assert sorted(numbers[0] + numbers[1]) == list(range(1, 120)) and numbers[2] == [101, 102, 103, 104]
    assert second.train.targets[1][:, 0, 0].int().tolist() == numbers[0]


def test_reduced_size_is_cached_until_a_file_changes(tmp_path):
    write(tmp_path, {"label": 7})
    benchmark = get("cityscapes")
    small = benchmark.load(tmp_path, profile(size=(4, 8)), 0)
    assert small.train.inputs.shape == (21, 3, 4, 8) and len(list((tmp_path / "cache").iterdir())) == 2
    np.save(tmp_path / "cityscapes" / "val" / "depth" / "0.npy", np.full((8, 16, 1), 7.5))
    assert benchmark.load(tmp_path, profile(size=(4, 8)), 0).test.targets[1][0].unique().tolist() == [7.5]


def test_metrics_against_plain_loops():
    torch.manual_seed(0)
    outputs = [torch.randn(4, 7, 6, 9), torch.rand(4, 1, 6, 9)]
    labels = torch.randint(-1, 7, (4, 6, 9))
    depth = torch.rand(4, 6, 9) * (torch.rand(4, 6, 9) > 0.5)
    benchmark = get("cityscapes")
    found = benchmark.summarise(benchmark.tally(outputs, (labels, depth)))

    guesses = outputs[0].argmax(1)
    ious = []
    for c in range(7):
        pairs = [(t == c, g == c) for t, g in zip(labels.flatten(), guesses.flatten(), strict=True) if t >= 0]
        ious.append(sum(bool(t and g) for t, g in pairs) / sum(bool(t or g) for t, g in pairs))
    errors = [
        (abs(z - d), d) for z, d in zip(outputs[1].flatten().tolist(), depth.flatten().tolist(), strict=True) if d
    ]
    expected = {
        "miou": 100 * np.mean(ious),
        "pix_acc": 100
        * np.mean([(t == g).item() for t, g in zip(labels.flatten(), guesses.flatten(), strict=True) if t >= 0]),
        "abs_err": np.mean([e for e, _ in errors]),
        "rel_err": np.mean([e / d for e, d in errors]),
    }
    bases = (74.01, 93.16, 0.0125, 27.77)
    ratios = [s * (v - b) / b for s, v, b in zip((1, 1, -1, -1), expected.values(), bases, strict=True)]
    assert found == pytest.approx({"delta_m": 100 * np.mean(ratios), **expected}, rel=1e-5)
    assert list(found) == [metric.name for metric in benchmark.metrics]


def test_missing_data_name_the_layout(tmp_path):
    with pytest.raises(MissingData, match=r"cityscapes/train/\{image,label,depth\}"):
        get("cityscapes").load(tmp_path, profile(), 0)


def test_real_folders():
    root = os.environ.get("MADAMOO_DATA")
    if not root or not (Path(root) / "cityscapes").is_dir():
        pytest.skip("MADAMOO_DATA is unset or has no folder cityscapes")
    benchmark = get("cityscapes")
    data = benchmark.load(Path(root), benchmark.profiles["cpu"], 0)
    assert [len(data.train), len(data.validation), len(data.test)] == [2500, 475, 500]
