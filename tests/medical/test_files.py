"""Files of all kinds that users have, and what is said of those that are not what they should be."""

import os
from pathlib import Path

import nibabel
import numpy as np
import pytest
import torch
from PIL import Image

from madamoo import medical

RNG = np.random.default_rng(0)
PHOTO = RNG.integers(0, 256, (20, 30, 3), dtype=np.uint8)


def test_rgb_rgba_grey_palette_and_16_bit_images_are_read_alike(tmp_path):
    opaque = np.dstack([PHOTO, RNG.integers(0, 256, (20, 30), dtype=np.uint8)])
    Image.fromarray(PHOTO).save(tmp_path / "rgb.png")
    Image.fromarray(opaque).save(tmp_path / "rgba.png")
    expected = torch.from_numpy(PHOTO).permute(2, 0, 1) / 255
    for name in ("rgb", "rgba"):
        assert torch.allclose(medical.read_image(tmp_path / f"{name}.png"), expected, atol=1e-6)
        assert medical.image_size(tmp_path / f"{name}.png") == (20, 30)
    grey = PHOTO[:, :, 0]
    Image.fromarray(grey).save(tmp_path / "grey.png")
    Image.fromarray(grey).convert("P").save(tmp_path / "palette.png")
    Image.fromarray(grey.astype(np.uint16) * 257).save(tmp_path / "deep.png")
    Image.fromarray(grey.astype(np.uint16) * 257).save(tmp_path / "deep.tif")
    for name in ("grey.png", "palette.png", "deep.png", "deep.tif"):
        found = medical.read_image(tmp_path / name)
        assert torch.allclose(found, expected[:1].expand(3, -1, -1), atol=1e-6), name
    Image.fromarray((3.0 * grey + 7).astype(np.float32)).save(tmp_path / "float.tif")
    low, high = float(grey.min()), float(grey.max())
    scaled = (torch.from_numpy(grey).float() - low) / (high - low)
    assert torch.allclose(medical.read_image(tmp_path / "float.tif")[0], scaled, atol=1e-5)


def test_images_are_resized_and_turned_as_their_header_says(tmp_path):
    flat = np.full((40, 24, 3), 77, dtype=np.uint8)
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(flat).save(tmp_path / "turned.jpg", exif=exif)
    assert medical.image_size(tmp_path / "turned.jpg") == (24, 40)
    assert medical.read_image(tmp_path / "turned.jpg").shape == (3, 24, 40)
    small = medical.read_image(tmp_path / "turned.jpg", (10, 12))
    assert small.shape == (3, 10, 12) and torch.allclose(small, torch.tensor(77 / 255), atol=0.01)


def test_masks_have_two_values_whatever_these_are(tmp_path):
    inside = np.zeros((12, 16), dtype=bool)
    inside[3:9, 4:12] = True
    kinds = {
        "255.png": inside.astype(np.uint8) * 255,
        "one.png": inside.astype(np.uint8),
        "deep.png": inside.astype(np.uint16) * 4000,
        "rgb.png": np.dstack([inside.astype(np.uint8) * 200] * 3),
        "rgba.png": np.dstack([inside.astype(np.uint8) * 200] * 3 + [np.full_like(inside, 255, dtype=np.uint8)]),
    }
    for name, pixels in kinds.items():
        Image.fromarray(pixels).save(tmp_path / name)
        assert np.array_equal(medical.read_mask(tmp_path / name).numpy(), inside), name
    Image.fromarray(inside.astype(np.uint8) * 255).save(tmp_path / "lossy.jpg", quality=60)
    assert (medical.read_mask(tmp_path / "lossy.jpg").numpy() != inside).mean() < 0.03
    Image.fromarray(inside).save(tmp_path / "bit.png")
    assert np.array_equal(medical.read_mask(tmp_path / "bit.png").numpy(), inside)
    Image.fromarray(np.zeros((5, 5), dtype=np.uint8)).save(tmp_path / "empty.png")
    Image.fromarray(np.full((5, 5), 9, dtype=np.uint8)).save(tmp_path / "full.png")
    assert not medical.read_mask(tmp_path / "empty.png").any() and medical.read_mask(tmp_path / "full.png").all()
    Image.fromarray(PHOTO).save(tmp_path / "photo.png")
    with pytest.raises(medical.BadFile, match=r"photo\.png: a mask has two values, this file has \d+"):
        medical.read_mask(tmp_path / "photo.png")


def test_a_mask_in_colours_is_the_brighter_of_two_and_what_is_no_mask_is_refused(tmp_path):
    inside = np.zeros((12, 16), dtype=bool)
    inside[3:9, 4:12] = True

    def save(name, there, elsewhere, **options):
        Image.fromarray(np.where(inside[..., None], there, elsewhere).astype(np.uint8)).save(tmp_path / name, **options)
        return tmp_path / name

    white_on_red = save("white.png", (255, 255, 255), (255, 0, 0))
    assert np.array_equal(medical.read_mask(white_on_red).numpy(), inside)
    with pytest.raises(medical.BadFile, match=r"the two colours of this file \(0/255/0, 255/0/0\) are equally bright"):
        medical.read_mask(save("even.png", (255, 0, 0), (0, 255, 0)))
    labels = np.where(inside[..., None], (255, 0, 0), (0, 0, 0)).astype(np.uint8)
    labels[0, :4] = (0, 255, 0)  # a third label, as bright as the first
    Image.fromarray(labels).save(tmp_path / "labels.png")
    with pytest.raises(medical.BadFile, match=r"a mask has two values, this file has 3 \(0/0/0, 0/255/0, 255/0/0"):
        medical.read_mask(tmp_path / "labels.png")
    with pytest.raises(medical.BadFile, match=r"clear\.png: all of it has one colour, and the mask is in its transpar"):
        medical.read_mask(save("clear.png", (0, 0, 0, 255), (0, 0, 0, 0)))
    ramp = np.tile(np.linspace(0, 255, 16).astype(np.uint8), (12, 1))
    Image.fromarray(ramp).save(tmp_path / "photo.jpg", quality=95)
    with pytest.raises(medical.BadFile, match=r"photo\.jpg: a mask is dark and bright, .*is it an image\?"):
        medical.read_mask(tmp_path / "photo.jpg")


def test_both_byte_orders_of_16_bits_are_read_alike(tmp_path):
    grey = PHOTO[:, :, 0].astype(np.uint16) * 100
    for mode, order in (("I;16", "<u2"), ("I;16B", ">u2")):
        image = Image.frombytes(mode, grey.shape[::-1], grey.astype(order).tobytes())
        image.save(tmp_path / f"{order[1:]}{order[0] == '<'}.tif")
    little, big = (medical.read_image(tmp_path / f"u2{first}.tif") for first in (True, False))
    assert torch.equal(little, big) and little.max().item() == pytest.approx(grey.max() / 65535)


def test_names_are_the_same_however_accents_and_endings_are_written(tmp_path):
    composed, decomposed = "\u00e9", "e\u0301"  # two ways to write one letter
    (tmp_path / "i").mkdir()
    (tmp_path / "m").mkdir()
    Image.fromarray(PHOTO).save(tmp_path / "i" / f"{composed}.JPG")
    Image.fromarray(PHOTO).save(tmp_path / "m" / f"{decomposed}.png")
    (pair,) = medical.find_pairs(tmp_path / "i", tmp_path / "m", print)
    assert pair.name == composed
    foreign = Path(os.fsdecode(b"\xe9.png"))  # from a system with another encoding
    assert medical.stem(foreign).encode().decode() == r"\udce9"
    assert medical.stem(tmp_path / "A.b.NII.GZ") == "A.b" == medical.stem(tmp_path / "A.b.nii")


def test_pairs_are_found_and_what_is_wrong_is_named_and_skipped(tmp_path):
    images, masks = tmp_path / "images", tmp_path / "masks"
    images.mkdir()
    masks.mkdir()
    mask = np.zeros((20, 30), dtype=np.uint8)
    for name in ("a", "b", "c", "d", "e", "f"):
        Image.fromarray(PHOTO).save(images / f"{name}.jpg")
    Image.fromarray(mask).save(masks / "a.png")
    Image.fromarray(mask).save(masks / "b_segmentation.png")
    Image.fromarray(mask[:10]).save(masks / "c.png")  # of another size
    (masks / "d.png").write_bytes(b"")
    Image.fromarray(mask).save(masks / "e.png")
    (images / "e.jpg").write_bytes(b"no image")
    Image.fromarray(mask).save(masks / "z.png")  # without image; f has no mask
    (images / "notes.txt").write_text("not looked at")
    said = []
    pairs = medical.find_pairs(images, masks, said.append)
    assert [(pair.name, pair.mask.name) for pair in pairs] == [("a", "a.png"), ("b", "b_segmentation.png")]
    text = "\n".join(said)
    for part in (
        "c.jpg is skipped: it is 20x30, its mask c.png is 10x30",
        "d.png: it cannot be read as an image (it is empty)",
        "e.jpg: it cannot be read",
        "f.jpg is skipped: it needs one mask in",
        "z.png is skipped: there is no image",
    ):
        assert part in text
    assert len(said) == 5
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        medical.find_pairs(tmp_path / "none", masks, said.append)
    (images / "notes").mkdir()
    with pytest.raises(FileNotFoundError, match="there is no image in"):
        medical.find_pairs(images, images / "notes", said.append)


def test_a_mask_belongs_to_the_image_with_the_longest_name(tmp_path):
    for folder, names in {"i": ("a", "a_1", "b"), "m": ("a_mask", "a_1_mask", "b_1", "b_2")}.items():
        (tmp_path / folder).mkdir()
        for name in names:
            Image.fromarray(PHOTO).save(tmp_path / folder / f"{name}.png")
    said = []
    pairs = medical.find_pairs(tmp_path / "i", tmp_path / "m", said.append)
    assert {pair.name: pair.mask.stem for pair in pairs} == {"a": "a_mask", "a_1": "a_1_mask"}
    assert len(said) == 1 and said[0].endswith("of its name or b_..., found b_1, b_2")


def test_an_image_that_is_cut_off_is_named_when_it_is_read(tmp_path):
    Image.fromarray(PHOTO).save(tmp_path / "whole.png")
    (tmp_path / "cut.png").write_bytes((tmp_path / "whole.png").read_bytes()[:400])
    assert medical.image_size(tmp_path / "cut.png") == (20, 30)
    with pytest.raises(medical.BadFile, match=r"cut\.png: it cannot be read as an image"):
        medical.read_image(tmp_path / "cut.png")


AFFINES = {
    "straight": np.diag([0.8, 0.8, 3.0, 1.0]),
    "flipped": np.array([[-2.0, 0, 0, 90], [0, -2, 0, 120], [0, 0, 2, -70], [0, 0, 0, 1]]),
    "turned": np.array([[0.0, 0, 1.5, 5], [-1, 0, 0, 6], [0, -1, 0, 7], [0, 0, 0, 1]]),  # sagittal slices
}


@pytest.mark.parametrize("kind", AFFINES)
@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float32])
def test_a_volume_is_written_with_the_affine_and_spacing_it_came_with(tmp_path, kind, dtype):
    values = RNG.integers(0, 100, (17, 20, 23)).astype(dtype)
    nibabel.save(nibabel.Nifti1Image(values, AFFINES[kind]), tmp_path / "in.nii.gz")
    volume = medical.read_volume(tmp_path / "in.nii.gz")
    volume.save(2 * volume.voxels + 1, tmp_path / "deep" / "out.nii.gz")
    before, after = nibabel.load(tmp_path / "in.nii.gz"), nibabel.load(tmp_path / "deep" / "out.nii.gz")
    assert np.array_equal(before.affine, after.affine)
    assert before.header.get_zooms() == after.header.get_zooms()
    assert np.allclose(after.get_fdata(), 2 * before.get_fdata() + 1)
    assert volume.slicing_axis == {"straight": 2, "flipped": 2, "turned": 0}[kind]
    if kind == "flipped":
        assert np.allclose(volume.voxels.numpy(), values[::-1, ::-1])
    with pytest.raises(ValueError, match=r"voxels must be \["):
        volume.save(torch.zeros(2, 2, 2), tmp_path / "no.nii")


@pytest.mark.parametrize(
    ("shape", "zooms", "axis"),
    [
        ((40, 44, 36), (1, 1, 1), 2),
        ((5, 40, 44), (1, 1, 1), 0),  # slices across the last axis would be 5 voxels wide
        ((40, 1, 44), (1, 1, 4), 1),
        ((40, 44, 36), (1, 4, 1), 1),
    ],
)
@pytest.mark.parametrize("turned", [False, True])
def test_slices_are_large_enough_and_the_header_tells_their_size(tmp_path, shape, zooms, axis, turned):
    affine = np.diag([*map(float, zooms), 1.0])
    image = nibabel.Nifti1Image(np.zeros(shape, dtype=np.float32), affine)
    if turned:  # the same voxels in space, stored along other axes
        image = image.as_reoriented(nibabel.orientations.axcodes2ornt("SLA"))
    nibabel.save(image, tmp_path / "a.nii")
    volume = medical.read_volume(tmp_path / "a.nii")
    assert volume.slicing_axis == axis
    assert medical.slice_size(tmp_path / "a.nii") == volume.voxels.movedim(axis, 0).shape[1:]
    assert min(medical.slice_size(tmp_path / "a.nii")) >= 16


def test_an_oblique_volume_keeps_its_affine_and_its_scaled_intensities(tmp_path):
    turn = np.deg2rad(25)
    affine = np.eye(4)
    affine[:2, :2] = [[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]]
    affine[:3, :3] = affine[:3, :3] @ np.diag([-1.0, 1.2, 3.0])  # left-handed
    image = nibabel.Nifti1Image(RNG.integers(0, 100, (17, 20, 23)).astype(np.int16), affine)
    image.header.set_slope_inter(2.5, -100)
    nibabel.save(image, tmp_path / "in.nii")
    before = nibabel.load(tmp_path / "in.nii")
    volume = medical.read_volume(tmp_path / "in.nii")
    after = nibabel.load(volume.save(volume.voxels, tmp_path / "out.nii.gz"))
    assert np.array_equal(before.affine, after.affine) and before.header["qform_code"] == after.header["qform_code"]
    assert np.allclose(before.get_fdata(), after.get_fdata()) and before.get_fdata().min() < -50


def test_volumes_that_are_none_are_named_and_skipped_or_refused(tmp_path):
    def save(name, values):
        nibabel.save(nibabel.Nifti1Image(values, np.eye(4)), tmp_path / name)

    save("good.nii", np.ones((16, 16, 16), dtype=np.float32))
    save("one_time.nii.gz", np.ones((16, 16, 16, 1), dtype=np.float32))
    save("series.nii", np.ones((16, 16, 16, 3), dtype=np.float32))
    save("tiny.nii", np.ones((4, 4, 4), dtype=np.float32))
    save("complex.nii", np.ones((16, 16, 16), dtype=np.complex64))
    save("nowhere.nii", np.ones((16, 16, 16), dtype=np.float32))
    header = bytearray((tmp_path / "nowhere.nii").read_bytes())
    header[280:328] = bytes(48)  # the affine
    (tmp_path / "nowhere.nii").write_bytes(header)
    (tmp_path / "empty.nii.gz").write_bytes(b"")
    (tmp_path / "text.nii").write_text("no volume at all")
    (tmp_path / "cut.nii").write_bytes((tmp_path / "good.nii").read_bytes()[:5000])
    said = []
    found = medical.find_volumes(tmp_path, said.append)
    assert [path.name for path in found] == ["cut.nii", "good.nii", "one_time.nii.gz"]
    text = "\n".join(said)
    for part in (
        "series.nii: a volume has three dimensions, this file has 16x16x16x3",
        "empty.nii.gz: it cannot be read",
        "tiny.nii: 4x4x4 voxels are too few",
        "text.nii: it cannot be read as NIfTI",
        "complex.nii: a voxel has one real number, this file has complex64",
        "nowhere.nii: its affine has no inverse",
    ):
        assert part in text
    with pytest.raises(medical.BadFile, match=r"cut\.nii: its voxels cannot be read"):
        medical.read_volume(tmp_path / "cut.nii")
    assert medical.read_volume(tmp_path / "one_time.nii.gz").voxels.shape == (16, 16, 16)
    said.clear()
    assert [path.name for path in medical.find_volumes(tmp_path, said.append, "OOD")] == ["good.nii"] and not said
    (tmp_path / "none").mkdir()
    with pytest.raises(FileNotFoundError, match="there is no readable NIfTI volume"):
        medical.find_volumes(tmp_path / "none", said.append)
