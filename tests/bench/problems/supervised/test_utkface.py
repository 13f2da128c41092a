"""UTKFace on a few files written here in both layouts, its metrics against plain loops, and the real archive."""

import math
import os
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from madamoo.bench import MissingData, get

GOOD = [f"{20 + k}_{k % 2}_{k % 5}_2017011{k:02d}.jpg.chip.jpg" for k in range(20)]
GOOD += ["24_0_1_20170116220224657 .jpg.chip.jpg", "55_0_0_20170116232725357jpg.chip.jpg"]  # odd, but with all labels
BAD = ["39_1_20170116174525125.jpg.chip.jpg", "61_3_0_20170109.jpg.chip.jpg"]  # no race; a gender that is none


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MADAMOO_CACHE", str(tmp_path / "cache"))


def write_folder(folder: Path, size: int = 64) -> None:
    folder.mkdir(parents=True)
    for k, name in enumerate(GOOD + BAD):
        Image.new("RGB", (size, size), (10 * k, 255 - 10 * k, 7)).save(folder / name, "JPEG", quality=95)


def profile(**options):
    return replace(get("utkface").profiles["cpu"], options=options)


def contents(data):
    """Each sample of each split, as something that can be compared and counted."""
    splits = (data.train, data.validation, data.test)
    return [[(s.inputs[k].sum().item(), s.targets[0][k].item()) for k in range(len(s))] for s in splits]


def test_both_layouts_give_the_same_and_count_what_is_malformed(tmp_path, capsys):
    write_folder(tmp_path / "folder" / "utkface" / "UTKFace")
    (tmp_path / "archive" / "utkface").mkdir(parents=True)
    with tarfile.open(tmp_path / "archive" / "utkface" / "faces.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "folder" / "utkface" / "UTKFace", "UTKFace")
    first, second = (get("utkface").load(tmp_path / name, profile(size=64), 0) for name in ("folder", "archive"))
    assert capsys.readouterr().err.count("2 images of") == 2  # once a layout
    assert contents(first) == contents(second)
    assert first.train.inputs.shape == (15, 3, 64, 64) and first.train.inputs.dtype == torch.uint8
    assert get("utkface").load(tmp_path / "folder", profile(size=64), 0) and not capsys.readouterr().err  # cached


def test_labels_belong_to_their_images(tmp_path):
    write_folder(tmp_path / "utkface" / "UTKFace")
    data = get("utkface").load(tmp_path, profile(size=64), 0)
    labels = {k: [int(x) for x in name.split("_")[:3]] for k, name in enumerate(GOOD)}
    for split in (data.train, data.validation, data.test):
        for image, age, gender, race in zip(split.inputs, *split.targets, strict=True):
            k = round(image[0].float().mean().item() / 10)  # the colour says which file it was
            assert [round(age.item() * 116), gender.item(), race.item()] == labels[k]


def test_splits_are_disjoint_stable_and_the_same_for_every_seed(tmp_path):
    write_folder(tmp_path / "utkface" / "UTKFace", size=80)  # resized
    parts = contents(get("utkface").load(tmp_path, profile(size=64), 0))
    assert [len(part) for part in parts] == [15, 2, 5]
    assert len({sample for part in parts for sample in part}) == 22
    assert contents(get("utkface").load(tmp_path, profile(size=64), 7)) == parts
    assert contents(get("utkface").load(tmp_path, profile(size=64, train=4), 0)) == [parts[0][:4], *parts[1:]]


def test_small_images_are_means_of_areas(tmp_path):
    folder = tmp_path / "utkface" / "UTKFace"
    folder.mkdir(parents=True)
    noise = np.random.default_rng(0).integers(0, 256, (10, 64, 64, 3), dtype=np.uint8)
    for k, image in enumerate(noise):
        Image.fromarray(image).save(folder / f"{k + 1}_0_0_1.jpg", "JPEG", quality=95)
    large, small = (get("utkface").load(tmp_path, profile(size=size), 0).train for size in (64, 32))
    expected = large.inputs.double().unfold(2, 2, 2).unfold(3, 2, 2).mean((-1, -2))
    assert (small.inputs.double() - expected).abs().max() <= 0.5
    prepared = get("utkface").prepare(small, None)
    assert torch.equal(prepared.inputs, small.inputs / 255)


def test_metrics_and_losses_against_plain_loops():
    torch.manual_seed(0)
    outputs = [torch.rand(50, 1), torch.randn(50, 1), torch.randn(50, 5)]
    targets = (torch.rand(50), torch.randint(0, 2, (50,)).float(), torch.randint(0, 5, (50,)))
    benchmark = get("utkface")
    pieces = [benchmark.tally([z[a:b] for z in outputs], [y[a:b] for y in targets]) for a, b in ((0, 20), (20, 50))]
    found = benchmark.summarise({name: pieces[0][name] + pieces[1][name] for name in pieces[0]})

    years = sum(116 * abs(outputs[0][k, 0].item() - targets[0][k].item()) for k in range(50)) / 50
    gender = 2.0 * sum((outputs[1][k, 0].item() > 0) == (targets[1][k].item() == 1) for k in range(50))
    race = 2.0 * sum(max(range(5), key=lambda c: outputs[2][k, c].item()) == targets[2][k].item() for k in range(50))
    relative = 100 * ((9.14 - years) / 9.14 + (gender - 90.76) / 90.76 + (race - 81.6) / 81.6) / 3
    assert found == pytest.approx({"delta_m": relative, "age_mae": years, "gender_acc": gender, "race_acc": race})
    assert list(found) == [metric.name for metric in benchmark.metrics]

    age_loss, gender_loss, race_loss = benchmark.criteria(outputs, targets)
    assert age_loss.item() == pytest.approx((0.5 * (outputs[0][:, 0] - targets[0]) ** 2).mean().item())
    signs = [1 if y else -1 for y in targets[1]]
    entropy = sum(math.log(1 + math.exp(-s * z.item())) for s, z in zip(signs, outputs[1], strict=True)) / 50
    assert gender_loss.item() == pytest.approx(entropy, rel=1e-5)
    chosen = outputs[2].softmax(1)[torch.arange(50), targets[2]]
    assert race_loss.item() == pytest.approx(-chosen.log().mean().item(), rel=1e-5)


def test_missing_data_name_the_layout(tmp_path):
    with pytest.raises(MissingData, match=r"utkface/\*\.tar\.gz"):
        get("utkface").load(tmp_path, profile(), 0)
    with pytest.raises(MissingData, match="MADAMOO_DATA"):
        get("utkface").load(None, profile(), 0)


def test_folder_without_images_is_refused(tmp_path):
    (tmp_path / "utkface" / "UTKFace").mkdir(parents=True)
    with pytest.raises(ValueError, match="no image named"):
        get("utkface").load(tmp_path, profile(), 0)


def test_real_archive(capsys):
    root = os.environ.get("MADAMOO_DATA")
    if not root or not (Path(root) / "utkface").is_dir():
        pytest.skip("MADAMOO_DATA is unset or has no folder utkface")
    benchmark = get("utkface")
    data = benchmark.load(Path(root), benchmark.profiles["cpu"], 0)
    assert capsys.readouterr().err.startswith("madamoo: 3 images of")
    splits = (data.train, data.validation, data.test)
    assert sum(map(len, splits)) == 23704 and len(data.validation) == 2370
    assert benchmark.shape(data) == ((3, 32, 32), (1, 1, 5))
    ages = torch.cat([split.targets[0] for split in splits])
    assert ages.min() > 0 and ages.max() == 1.0
    assert all(split.targets[2].unique().tolist() == [0, 1, 2, 3, 4] for split in splits)
