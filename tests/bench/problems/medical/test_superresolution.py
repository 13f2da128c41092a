"""Super-resolution on volumes that the test writes, in the layouts in which users have them."""

import os
from dataclasses import replace
from pathlib import Path

import nibabel
import numpy as np
import pytest
import torch
from scipy import ndimage
from typer.testing import CliRunner

from madamoo import cli, medical
from madamoo.bench import MissingData, configure, get, train
from madamoo.bench.problems import with_folders
from madamoo.bench.problems.medical import superresolution
from madamoo.bench.training import Training, predict

DATA = Path(os.environ.get("MADAMOO_DATA", ""))
perceptual = pytest.mark.skipif(
    "MADAMOO_DATA" not in os.environ or not (DATA / "perceptual").is_dir(),
    reason="no folder perceptual in MADAMOO_DATA",
)
SMALL = "unet:width=2:depth=3"
SHORT = ["--epochs", "1", "--batch", "2", "--model", SMALL, "--no-diagnose", "--device", "cpu"]
THICK = np.diag([1.0, 1.2, 4.0, 1.0])  # anisotropic: 1 x 1.2 x 4 mm


def save(path, shape=(40, 44, 36), seed=0, affine=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    values = ndimage.gaussian_filter(rng.normal(size=shape), 1.0) * 300 + 500
    nibabel.save(nibabel.Nifti1Image(values.astype(np.int16), np.eye(4) if affine is None else affine), path)


def call(*arguments, code=0):
    result = CliRunner().invoke(cli.build_app(), [str(a) for a in arguments], env={"COLUMNS": "200"})
    assert result.exit_code == code, (result.output, result.exception)
    return result


def start(config, root=None):
    problem = get(config.benchmark)
    profile = problem.profiles[config.profile]
    return Training(config, problem, profile, problem.load(root, profile, config.seed), torch.device("cpu"))


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """Ten subjects with volumes of mixed sizes and spacings."""
    folder = tmp_path_factory.mktemp("volumes")
    for k in range(10):
        save(folder / f"p{k}_T1.nii.gz", (40 + k, 44, 36 - k), k, THICK if k % 2 else None)
    return folder


@pytest.fixture
def short(monkeypatch):
    """Few steps on small patches: what is tested is not how well it learns."""
    usual = superresolution.SuperResolution._cpu

    def made(self):
        profile = usual(self)
        patch = (32, 32) if self.dimensions == 2 else (16, 16, 16)
        return replace(profile, options={**profile.options, "steps": 6, "slices": 2, "patch": patch})

    monkeypatch.setattr(superresolution.SuperResolution, "_cpu", made)


@perceptual
def test_oasis_is_read_as_downloaded_and_split_by_subject(tmp_path, capsys):
    for k in range(12):
        subject, session = f"OAS3{k // 2:04}", f"d{100 + k}"
        if k % 2:
            place = tmp_path / "oasis" / f"{subject}_MR_{session}" / "anat1" / "NIFTI"
        else:
            place = tmp_path / "oasis" / f"sub-{subject}" / f"ses-{session}" / "anat"
        save(place / f"sub-{subject}_ses-{session}_T1w.nii.gz", seed=k)
        (place / f"sub-{subject}_ses-{session}_bold.nii.gz").write_bytes(b"not looked at")
    (tmp_path / "perceptual").symlink_to(DATA / "perceptual")
    problem = get("oasis")
    data = problem.load(tmp_path, problem.profiles["cpu"], 0)
    subjects = {
        which: {superresolution.subject_of(path) for (path,) in data.samples[which].files} for which in data.samples
    }
    assert [len(data.samples[which]) for which in ("train", "validation", "test")] == [8, 2, 2]
    assert len(set.union(*subjects.values())) == 6 == sum(map(len, subjects.values()))
    assert all("T1w" in name for which in data.names for name in data.names[which])
    assert not capsys.readouterr().err
    assert not any(data.samples[which].kept for which in data.samples), "no volume is read at the start"
    with pytest.raises(MissingData, match="oasis/<subject>/<session>/anat"):
        problem.load(tmp_path / "none", problem.profiles["cpu"], 0)


def test_a_volume_is_prepared_as_the_recipe_says(tmp_path):
    save(tmp_path / "a.nii.gz", affine=np.array([[0, 0, 4.0, 0], [1.0, 0, 0, 0], [0, 1.2, 0, 0], [0, 0, 0, 1]]))
    high, reduced = superresolution.prepare_volume(tmp_path / "a.nii.gz")
    voxels = nibabel.load(tmp_path / "a.nii.gz").get_fdata()
    low, top = np.percentile(voxels, [1, 99])
    expected = np.clip((voxels - low) / (top - low), 0, 1)
    # the thick axis is the file's last: slices lie across it
    assert high.shape == (36, 40, 44) and np.allclose(high.float(), np.moveaxis(expected, 2, 0), atol=2e-3)
    assert torch.allclose(reduced.float(), medical.reduce_volume(high.float()), atol=2e-3)
    nibabel.save(nibabel.Nifti1Image(np.full((20, 20, 20), 7.0), np.eye(4)), tmp_path / "flat.nii")
    with pytest.raises(medical.BadFile, match=r"flat\.nii: all its voxels have one value, 7"):
        superresolution.prepare_volume(tmp_path / "flat.nii")


@pytest.mark.parametrize("patch", [(16, 20), (12, 16, 20), (64, 64)])
def test_a_patch_and_its_input_lie_in_the_same_place(patch):
    high = torch.rand(24, 32, 40, generator=torch.Generator().manual_seed(0))
    reduced = medical.reduce_volume(high)
    whole = torch.stack([high, medical.enlarge(reduced, high.shape)])
    generator = torch.Generator().manual_seed(1)
    for _ in range(5):
        low, true = superresolution.random_patch((high, reduced), patch, generator)
        assert low.shape == true.shape == patch
        corner = true.flatten()[0]
        z, y, x = (whole[0] == corner).nonzero()[0].tolist()
        assert whole[1, z, y, x] == pytest.approx(low.flatten()[0].item(), abs=1e-5)


def test_scores_are_those_of_each_volume(own):
    config = configure(f"superresolution:volumes={own}", solver="ls", model=SMALL, batch=2)
    training = start(config)
    problem, data = training.benchmark, training.data
    assert [metric.name for metric in problem.metrics] == ["psnr", "ssim", "mae"]

    class Nothing(torch.nn.Module):
        def forward(self, x):
            return [torch.zeros_like(x)]

    found = problem.evaluate(Nothing(), data, "test", 2)
    each = []
    for high, reduced in (data.samples["test"][k] for k in range(2)):
        high = high.float()
        low = torch.nn.functional.interpolate(reduced.float()[None, None], size=high.shape, mode="trilinear")[0, 0]
        n = len(high)
        slices = torch.linspace(int(0.2 * (n - 1)), int(0.8 * (n - 1)), 6).long()
        each.append(-10 * (low - high)[slices].square().mean().log10())
    assert found.metrics["psnr"] == pytest.approx(float(torch.stack(each).mean()), rel=1e-4)
    assert found.losses[0] == pytest.approx(found.metrics["mae"], rel=1e-3) and len(found.losses) == 5


@pytest.mark.usefixtures("short")
def test_it_trains_and_resumes_bit_for_bit(own):
    config = configure(f"superresolution:volumes={own}", solver="uw", model=SMALL, batch=2, epochs=1)
    whole, early = start(config), start(config)
    for _ in range(4):
        early.advance()
    resumed = start(config)
    resumed.load_state_dict(early.state_dict())
    for training in (whole, resumed):
        while not training.ended:
            training.advance()
    for a, b in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(a, b)
    pictures = whole.benchmark.maps(whole.model.eval(), whole.data, 2)
    assert len(pictures) == 2 and "PSNR" in pictures[0]["what"] and pictures[0]["truth"].dim() == 2


@pytest.mark.usefixtures("short")
def test_in_three_dimensions_windows_slide_over_the_volume(own):
    config = configure(f"superresolution:dimensions=3:volumes={own}", solver="ls", model=SMALL, batch=1)
    training = start(config)
    training.advance()
    assert training.batches.draw(0, torch.Generator().manual_seed(0))[0].shape == (1, 1, 16, 16, 16)
    assert set(training.evaluate("validation").metrics) == {"psnr", "ssim", "mae"}

    class Ones(torch.nn.Module):
        def forward(self, x):
            return [torch.ones_like(x)]

    low = torch.rand(20, 40, 30) * 0.5
    whole = training.benchmark.reconstruct(Ones(), low, (16, 16, 16))
    assert torch.allclose(whole, low + superresolution.GAIN, atol=1e-5), "windows overlap without a seam"


@pytest.mark.usefixtures("short")
def test_a_users_volumes_are_trained_and_predicted_without_code(own, tmp_path):
    """Same shape, spacing and affine as the input, whatever its orientation."""
    run = tmp_path / "run"
    for bad in ("none.nii.gz", "p99_T1.nii.gz"):
        (own / bad).write_bytes(b"")
    result = call("run", "superresolution", "--volumes", own, "--out", run, *SHORT)
    assert "Test: psnr" in result.stdout and "none.nii.gz: it cannot be read as NIfTI (it is empty)" in result.stderr
    inputs = tmp_path / "in"
    turned = np.array([[0, 0, 1.5, 5], [-1.0, 0, 0, 6], [0, -1.0, 0, 7], [0, 0, 0, 1]])
    save(inputs / "a.nii.gz", (30, 41, 22), 1, THICK)
    save(inputs / "deep" / "b.nii", (30, 41, 22), 2, turned)
    call("predict", run, inputs, "--out", tmp_path / "out")
    for name, out in (("a.nii.gz", "a.nii.gz"), ("deep/b.nii", "deep/b.nii.gz")):
        before, after = nibabel.load(inputs / name), nibabel.load(tmp_path / "out" / out)
        assert before.shape == after.shape and np.array_equal(before.affine, after.affine)
        assert before.header.get_zooms() == after.header.get_zooms()
        # Nearly untrained, it changes little: the intensities are the input's own, voxel by voxel.
        clipped = np.clip(before.get_fdata(), *np.percentile(before.get_fdata(), [1, 99]))
        assert np.corrcoef(clipped.ravel(), after.get_fdata().ravel())[0, 1] > 0.9
    for bad in ("none.nii.gz", "p99_T1.nii.gz"):
        (own / bad).unlink()


@perceptual
@pytest.mark.usefixtures("short")
def test_one_network_has_a_slider_from_faithful_to_sharp(own, tmp_path):
    name = f"superresolution:perceptual={DATA / 'perceptual'}:slider=True:volumes={own}"
    problem = get(name)
    assert problem.objectives == ("faithful", "sharp") and problem.front.metrics == ("psnr", "dists")
    config = configure(name, solver="palora:rank=1", model=SMALL, batch=2, epochs=1)
    record = train(config, tmp_path / "run")
    assert len(record["front"]["test"]["points"]) == 5
    save(tmp_path / "x.nii.gz", (36, 36, 36))
    made = [
        dict(predict(tmp_path / "run", tmp_path / "x.nii.gz", tmp_path / out, preference=preference))
        for out, preference in (("faithful", (1, 0)), ("sharp", (0, 2)))
    ]
    a, b = (nibabel.load(next(iter(one.values()))).get_fdata() for one in made)
    assert a.shape == b.shape and not np.array_equal(a, b)
    with pytest.raises(ValueError, match="it learned a front, so give --preference"):
        list(predict(tmp_path / "run", tmp_path / "x.nii.gz", tmp_path / "no"))


def test_subjects_are_told_by_what_is_below_the_folder(tmp_path):
    """A folder called sub-study would make one subject of all."""
    for k in range(3):
        save(tmp_path / "sub-study" / f"p{k}_T1.nii", (20, 20, 20))
    problem = get(with_folders("superresolution", {"volumes": tmp_path / "sub-study"}))
    data = problem.load(None, problem.profiles["cpu"], 0)
    assert [len(data.samples[which]) for which in ("train", "validation", "test")] == [1, 1, 1]
    for k in range(3):
        (tmp_path / "sub-study" / f"p{k}_T1.nii").rename(tmp_path / "sub-study" / f"scan_{k}.nii")
    with pytest.raises(ValueError, match=r"its 3 volumes have 1 \(scan\); a subject is sub-X in the path"):
        problem.load(None, problem.profiles["cpu"], 0)


@perceptual
def test_weights_have_torchvisions_names_or_ours_and_small_slices_are_left_out(tmp_path, capsys):
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    ours = superresolution.find_weights(DATA / "perceptual")
    assert [file.name.partition("_")[0] for file in ours] == ["alexnet", "lpips", "vgg16", "dists"]
    places = {
        "alexnet-owt-7be5be79.pth": (0, 3, 6, 8, 10),
        "vgg16-397923af.pth": (0, 2, 5, 7, 10, 12, 14, 17, 19, 21, 24, 26, 28),
    }
    for file, (name, layers) in zip(ours[::2], places.items(), strict=True):
        with np.load(file) as stored:
            state = {
                f"features.{place}.{part}": torch.from_numpy(stored[f"conv{k}.{part}"])
                for k, place in enumerate(layers)
                for part in ("weight", "bias")
            }
        torch.save(state, theirs / name)
    (theirs / "alex.pth").symlink_to(ours[1])
    with pytest.raises(FileNotFoundError, match=r"theirs has no dists_weights\.pt or weights\.pt"):
        superresolution.find_weights(theirs)
    (theirs / "weights.pt").symlink_to(ours[3])
    for k in range(4):
        save(tmp_path / "t1" / f"p{k}.nii", (40, 31 if k == 2 else 34, 20))
    problem = get(with_folders("superresolution", {"volumes": tmp_path / "t1", "perceptual": theirs}))
    data = problem.load(None, problem.profiles["cpu"], 0)
    assert sum(map(len, data.names.values())) == 3 and set(data.perceptual) == {"lpips", "dists"}
    assert "p2.nii: its slices are 40x31, LPIPS needs 32 pixels a side or more; skipped" in capsys.readouterr().err


def test_a_window_beyond_the_volume_sees_its_edge_repeated():
    """As in training: a border of zeros would be an edge that no patch had."""

    class Least(torch.nn.Module):
        def forward(self, x):
            return [torch.full_like(x, x.min())]

    low = torch.full((6, 20, 20), 0.5)
    whole = get("brain-t1:dimensions=3").reconstruct(Least(), low, (16, 16, 16))
    assert torch.allclose(whole, torch.full_like(low, 0.5 + 0.5 * superresolution.GAIN), atol=1e-5)


def test_what_cannot_be_is_refused(tmp_path):
    with pytest.raises(ValueError, match="dimensions must be 2 or 3, got 4"):
        get("brain-t1:dimensions=4")
    save(tmp_path / "only.nii")
    problem = get(f"superresolution:volumes={tmp_path}")
    with pytest.raises(ValueError, match=r"has no subject for validation: three are the least, its 1 volumes have 1"):
        problem.load(None, problem.profiles["cpu"], 0)
    assert "give --volumes DIR" in call("run", "superresolution", *SHORT, code=2).stderr
    assert superresolution.subject_of(Path("x/sub-A1/ses-2/sub-A1_ses-2_T1w.nii.gz")) == "A1"
    assert superresolution.subject_of(Path("x/OAS30012_MR_d1/a_T1w.nii")) == "OAS30012"
    assert superresolution.subject_of(Path("x/Subj7_T1.nii.gz")) == "Subj7"
    assert superresolution.subject_of(Path("T1_sub-02.nii.gz")) == "02"


BRAIN = DATA / "brain_mri"


@pytest.mark.skipif(
    "MADAMOO_DATA" not in os.environ or not BRAIN.is_dir(), reason="no folder brain_mri in MADAMOO_DATA"
)
def test_the_brains_are_scored_with_all_five_metrics():
    training = start(configure("brain-t1", model=SMALL, solver="cagrad"), DATA)
    assert [len(training.data.samples[which]) for which in ("train", "validation", "test")] == [16, 2, 5]
    training.advance()
    found = training.evaluate("validation")
    assert list(found.metrics) == ["lpips", "dists", "psnr", "ssim", "mae"]
    assert 0.1 < found.metrics["lpips"] < 0.6 and 15 < found.metrics["psnr"] < 25
