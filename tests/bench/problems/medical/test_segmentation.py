"""Segmentation on files that the test writes, in the layouts in which users have them."""

import math
import os
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from madamoo import cli, medical
from madamoo.bench import MissingData, configure, get, train
from madamoo.bench.problems import from_option, with_folders
from madamoo.bench.problems.medical import segmentation
from madamoo.bench.runs import MAPS, read_record, read_tensors, write_record, write_tensors
from madamoo.bench.training import Training
from madamoo.presentation.page import render
from madamoo.report.make import make_page
from madamoo.report.reading import read_source

SMALL = ["--epochs", "2", "--batch", "3", "--model", "unet:width=2:depth=2", "--no-diagnose", "--device", "cpu"]


def lesion(k, size=(40, 52)):
    """A photograph with a dark disk, and the disk."""
    rng = np.random.default_rng(k)
    y, x = np.mgrid[: size[0], : size[1]]
    radius = size[0] * (0.15 + 0.2 * rng.random())
    mask = np.hypot(y - size[0] * (0.3 + 0.4 * rng.random()), x - size[1] * (0.3 + 0.4 * rng.random())) < radius
    photo = 180 + 10 * rng.normal(size=(*size, 3)) - 90 * mask[..., None]
    return photo.clip(0, 255).astype(np.uint8), mask


def write(images: Path, masks: Path, count=12, kinds=False):
    images.mkdir(parents=True)
    masks.mkdir(parents=True)
    for k in range(count):
        photo, mask = lesion(k, (40 + k, 52 - k) if kinds else (40, 52))
        name = images / f"ISIC_{k:07}"
        if kinds and k % 3 == 1:
            Image.fromarray(np.dstack([photo, np.full(mask.shape, 200, np.uint8)])).save(name.with_suffix(".png"))
        elif kinds and k % 3 == 2:
            Image.fromarray(photo[..., 0].astype(np.uint16) * 16).save(name.with_suffix(".png"))  # 12 of 16 bits
        else:
            Image.fromarray(photo).save(name.with_suffix(".jpg"), quality=95)
        Image.fromarray(mask.astype(np.uint8) * 255).save(masks / f"{name.name}_segmentation.png")


def call(*arguments, code=0):
    result = CliRunner().invoke(cli.build_app(), [str(a) for a in arguments], env={"COLUMNS": "200"})
    assert result.exit_code == code, (result.output, result.exception)
    return result


@pytest.fixture(scope="module")
def isic(tmp_path_factory):
    root = tmp_path_factory.mktemp("data")
    for part, count in (("Training", 10), ("Test", 4)):
        where = root / "isic"
        write(where / f"ISIC2018_Task1-2_{part}_Input", where / f"ISIC2018_Task1_{part}_GroundTruth", count)
    return root


def start(config, root):
    problem = get(config.benchmark)
    profile = problem.profiles[config.profile]
    return Training(config, problem, profile, problem.load(root, profile, config.seed), torch.device("cpu"))


def small(benchmark, **options):
    return configure(benchmark, epochs=2, batch=3, model="unet:width=2:depth=4", **options)


def test_isic_is_read_as_published_and_trains_with_both_objectives(isic):
    training = start(small("isic", solver="rlw"), isic)
    assert [len(part) for part in (training.data.train, training.data.validation, training.data.test)] == [8, 2, 4]
    assert not training.data.train.samples.kept, "nothing is read before the first step"
    training.advance()
    assert len(training.data.train.samples.kept) == 3
    while not training.ended:
        training.advance()
    assert set(training.best["metrics"]) == {"dice", "hd95"} and 0 <= training.best["metrics"]["dice"] <= 100
    batch = training.data.test[:2]
    assert batch.inputs.shape == (2, 3, 96, 128) and batch.targets[0].dtype == torch.bool
    assert batch.inputs.float().mean((1, 2, 3)).abs().max() < 1e-2
    with pytest.raises(MissingData, match=r"ISIC2018_Task1-2_Training_Input"):
        get("isic").load(isic / "none", training.profile, 0)


def test_deep_supervision_adds_two_objectives_per_resolution(isic):
    problem = get("isic:deep=2")
    assert problem.objectives[2:] == ("cross_entropy_1", "dice_1", "cross_entropy_2", "dice_2")
    training = start(small("isic:deep=2", solver="cagrad"), isic)
    training.advance()
    assert len(training.optimizer.weights) == 6
    assert configure("ISIC:deep=2").benchmark == "isic:deep=2"
    with pytest.raises(ValueError, match="deep must be a whole number from 0 to 3, got 7"):
        get("isic:deep=7")
    with pytest.raises(ValueError, match="isic has no option 'depp'; it has deep"):
        get("isic:depp=2")


def test_images_are_mirrored_with_their_masks():
    problem = get("ph2")
    images = torch.rand(6, 3, 4, 5, generator=torch.Generator().manual_seed(0))
    masks = images[:, 0] > 0.5
    batch = segmentation.Split(images.clone(), (masks.clone(),))
    seen = problem.prepare(batch, torch.Generator().manual_seed(1))
    assert torch.equal(seen.inputs[:, 0] > 0.5, seen.targets[0])
    assert not torch.equal(seen.inputs, images)


def test_workers_give_the_same_run_and_one_that_dies_ends_it_until_it_is_resumed(isic, tmp_path, monkeypatch):
    config = small("isic", solver="ls")
    plain = train(config, tmp_path / "plain", data_dir=isic)
    monkeypatch.setenv("MADAMOO_DATA_WORKERS", "1")
    helped = train(config, tmp_path / "helped", data_dir=isic)
    assert helped["metrics"] == plain["metrics"] and helped["validation_loss"] == plain["validation_loss"]

    # The worker dies at one file, after the first epoch's last step was saved.
    monkeypatch.setenv("MADAMOO_CACHE", str(tmp_path / "cache"))
    seen = tmp_path / "seen"
    monkeypatch.setattr(medical, "read_image", Dying(seen))
    with pytest.raises(medical.WorkerDied, match=r"a process that reads data died \(SIGKILL"):
        train(config, tmp_path / "died", data_dir=isic, checkpoint_every=0.0)
    record = train(config, tmp_path / "died", data_dir=isic)
    assert record["resumed_from"] > 0 and record["metrics"] == plain["metrics"]


class Dying:
    """Reads images as usual, but ends its process at the fifth, once."""

    def __init__(self, seen):
        self.seen, self.usual = seen, medical.read_image

    def __call__(self, image, size):
        count = len(self.seen.read_text()) if self.seen.exists() else 0
        self.seen.write_text("." * (count + 1))
        if count == 4:
            os.kill(os.getpid(), signal.SIGKILL)
        return self.usual(image, size)


def test_a_users_own_images_are_trained_and_predicted_without_code(tmp_path):
    """Of mixed sizes, RGBA and 16 bits; the masks come back in each image's own size."""
    images, masks, runs = tmp_path / "my: images", tmp_path / "masks", tmp_path / "run"
    write(images, masks, 12, kinds=True)
    (images / "broken.jpg").write_bytes(b"")
    result = call("run", "segmentation", "--images", images, "--masks", masks, "--out", runs, *SMALL)
    assert "Test: dice" in result.stdout and "broken.jpg is skipped: it needs one mask" in result.stderr
    done = call("predict", runs, images, "--out", tmp_path / "out", code=1)
    assert "broken.jpg: it cannot be read as an image (it is empty); skipped" in done.stderr
    for k in range(12):
        with Image.open(tmp_path / "out" / f"ISIC_{k:07}.png") as mask:
            assert mask.size == (52 - k, 40 + k) and set(np.unique(np.asarray(mask))) <= {0, 255}
    again = call("predict", runs, images / "ISIC_0000003.jpg", "--out", tmp_path / "one")
    assert [p.name for p in (tmp_path / "one").iterdir()] == ["ISIC_0000003.png"] and "->" in again.stdout
    Image.open(images / "ISIC_0000003.jpg").save(images / "ISIC_0000003.webp")
    twice = call("predict", runs, images, "--out", images / "found", code=1)
    assert "ISIC_0000003.webp: it would overwrite what was made of" in twice.stderr
    once_more = call("predict", runs, images, "--out", images / "found", code=1)
    assert once_more.stdout == twice.stdout, "what an earlier call wrote is no input"
    for arguments, words in (
        ((tmp_path, images, "--out", tmp_path / "x"), "it has no run.json"),
        ((runs, tmp_path / "none", "--out", tmp_path / "x"), "there is no such file or folder"),
        ((runs, masks, "--out", masks), "must be another folder than that of the input"),
        ((runs, images, "--out", tmp_path / "x", "--preference", "1,1"), "for no preference in particular"),
    ):
        assert words in call("predict", *arguments, code=2).stderr
    record = read_record(runs / "run.json")
    write_record(runs / "run.json", {**record, "status": "running"})
    early = call("predict", runs, images / "ISIC_0000003.jpg", "--out", tmp_path / "early")
    assert "has not ended; its network is that of its last checkpoint" in early.stderr
    state = read_tensors(runs / "checkpoint.pt")
    next(iter(state["training"]["model"].values())).fill_(math.nan)
    write_tensors(runs / "checkpoint.pt", state)
    assert "it diverged" in call("predict", runs, images, "--out", tmp_path / "x", code=2).stderr
    assert not (tmp_path / "x").exists()
    (runs / "checkpoint.pt").unlink()
    assert "it has no checkpoint" in call("predict", runs, images, "--out", tmp_path / "x", code=2).stderr
    (runs / "run.json").write_text("{}")
    assert f"RUN {runs}: its run.json cannot be used" in call("predict", runs, images, "--out", masks, code=2).stderr


def test_the_report_shows_outlines_and_leaves_out_what_is_damaged(isic, tmp_path):
    folder = tmp_path / "run"
    train(small("isic"), folder, data_dir=isic)
    (run,) = read_source(folder).runs
    assert [one["kind"] for one in run.maps] == ["overlay"] * 4
    page, notes = make_page([folder])
    (gallery,) = next(section for section in page.sections if section.title == "Predictions").blocks
    assert len(gallery.images) == 4 and gallery.images[0].caption.startswith("Dice ") and not notes
    assert "data:image/png;base64," in render(page)
    good = run.maps[0]
    for content in (
        [{**good, "prediction": torch.zeros(3, 3)}],
        [{**good, "input": torch.zeros(96, 128)}],
        [{**good, "what": 5}],
        [{**good, "truth": "x"}],
        [{"kind": "slices"}],
        [None],
    ):
        write_tensors(folder / MAPS, content)
        assert f"{MAPS} is left out" in make_page([folder])[1][0]


def test_folders_are_part_of_a_benchmarks_name_whatever_they_are_called(tmp_path):
    folder = tmp_path / "a:b=c" / "d"
    name = with_folders("segmentation", {"images": folder, "masks": folder, "volumes": None})
    problem = get(name)
    assert problem.name == name and from_option(problem.folders[0]) == folder
    assert with_folders("digits", {"images": None}) == "digits"
    assert "digits has no option 'images'" in call("run", "digits", "--images", tmp_path, code=2).stderr
    missing = call("run", "segmentation", "--images", folder, "--masks", folder, *SMALL, code=2)
    assert "there is no folder" in missing.stderr
    assert "give --images DIR --masks DIR" in call("run", "segmentation", *SMALL, code=2).stderr


def test_what_cannot_be_predicted_is_refused(tmp_path):
    call("run", "digits", "--epochs", "1", "--batch", "512", "--no-diagnose", "--out", tmp_path / "run")
    (tmp_path / "x.png").write_bytes(b"x")
    done = call("predict", tmp_path / "run", tmp_path / "x.png", "--out", tmp_path / "out", code=2)
    assert "digits predicts nothing for a file" in done.stderr


PH2 = Path(os.environ.get("MADAMOO_DATA", "")) / "ph2"


@pytest.mark.skipif("MADAMOO_DATA" not in os.environ or not PH2.is_dir(), reason="no folder ph2 in MADAMOO_DATA")
def test_ph2_learns(tmp_path):
    training = start(configure("ph2", epochs=2, model="unet:width=4:depth=4", optimizer="adam", lr=1e-2), PH2.parent)
    assert [len(part) for part in (training.data.train, training.data.validation, training.data.test)] == [120, 30, 50]
    while not training.ended:
        training.advance()
    first, last = training.epochs[0], training.epochs[-1]
    assert last["train_losses"][1] < first["train_losses"][1] and last["validation"]["dice"] > 50
    found = training.benchmark.maps(training.model.eval(), training.data, 8)
    assert len(found) == 6 and all(math.isfinite(one["input"].sum()) for one in found)
