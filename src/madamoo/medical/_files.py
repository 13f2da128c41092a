"""Images, masks and volumes in a user's folders: found, paired, checked and read.

What a file's header shows to be wrong (it is empty, no image, of another size than its mask, not three-dimensional) is
found when a folder is listed: the file is named and skipped. What only the content shows (it is cut off, all its voxels
are equal, a mask has more than two values) is found when it is read: :class:`BadFile` names the file, and ends the run.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp")
LOSSY = (".jpg", ".jpeg", ".webp")  # a mask in such a file has other values around its edges
CAMERA = ("JPEG", "TIFF", "WEBP")  # formats whose header says how the camera was held
VOLUMES = (".nii", ".nii.gz")
MOST_BETWEEN = 0.25  # of a mask's pixels that are neither dark nor bright, in a file that lost detail
SMALLEST = 16  # voxels or pixels along the longest two axes

Say = Callable[[str], None]


class BadFile(ValueError):
    """A file that is not what it should be; the message begins with its path."""


def stem(path: Path) -> str:
    """The name without its ending, of which .nii.gz is one.

    Accents are written one way, for systems differ in it, and bytes that are no UTF-8 as backslashed codes.
    """
    name = unicodedata.normalize("NFC", path.name).encode(errors="backslashreplace").decode()
    return (name[:-3] if name.lower().endswith(".gz") else name).rpartition(".")[0]


def find_files(folder: Path, endings: Sequence[str]) -> list[Path]:
    """The files with one of the endings below a folder, by name; hidden ones are left out."""
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder}")
    found = [
        path
        for path in folder.rglob("*")
        if path.name.lower().endswith(tuple(endings)) and not path.name.startswith(".") and path.is_file()
    ]
    return sorted(found, key=lambda path: path.relative_to(folder).as_posix())


@dataclass(frozen=True)
class Pair:
    """An image with its mask.

    Example:
        >>> Pair("a", Path("photos/a.jpg"), Path("masks/a.png")).name
        'a'
    """

    name: str
    image: Path
    mask: Path


def find_pairs(images: Path, masks: Path, say: Say) -> list[Pair]:
    """Images with the masks of the same name, or of one that goes on with ``_`` (``a.jpg``, ``a_segmentation.png``).

    Where several images fit, a mask belongs to the one with the longest name. A file without its other half, and one
    whose header is wrong, is named to ``say`` and skipped.
    """
    of_images = _unique(find_files(images, IMAGES), say)
    of_masks = _unique(find_files(masks, IMAGES), say)
    owned: dict[str, list[str]] = {name: [] for name in of_images}
    for name, mask in of_masks.items():
        owner = _owner(name, of_images)
        if owner is None:
            say(f"{mask} is skipped: there is no image for it in {images}")
        else:
            owned[owner].append(name)
    pairs: list[Pair] = []
    for name, image in of_images.items():
        matches = [name] if name in owned[name] else owned[name]
        if len(matches) != 1:
            found = ", ".join(matches) if matches else "none"
            say(f"{image} is skipped: it needs one mask in {masks}, of its name or {name}_..., found {found}")
            continue
        mask = of_masks[matches[0]]
        try:
            sizes = image_size(image), image_size(mask)
        except BadFile as error:
            say(f"{error}; skipped")
            continue
        if sizes[0] != sizes[1]:
            say(f"{image} is skipped: it is {_by(sizes[0])}, its mask {mask.name} is {_by(sizes[1])}")
        else:
            pairs.append(Pair(name, image, mask))
    if not pairs:
        raise FileNotFoundError(f"there is no image in {images} with a mask in {masks}")
    return pairs


def _owner(mask: str, images: Container[str]) -> str | None:
    """The longest name of an image with which a mask's name begins, up to a ``_``."""
    name, rest = mask, "_"
    while rest and name not in images:
        name, rest, _ = name.rpartition("_")
    return name if name in images else None


def find_volumes(folder: Path, say: Say, part: str = "") -> list[Path]:
    """The NIfTI files below a folder; one whose header is wrong is named to ``say`` and skipped.

    Only those with ``part`` in their names, in capitals or not, are looked at.
    """
    named = [path for path in find_files(folder, VOLUMES) if part.lower() in path.name.lower()]
    kept = [path for path in named if _is_volume(path, say)]
    if not kept:
        raise FileNotFoundError(f"there is no readable NIfTI volume (*{part}.nii, *{part}.nii.gz) below {folder}")
    return kept


def _is_volume(path: Path, say: Say) -> bool:
    try:
        volume_shape(path)
    except BadFile as error:
        say(f"{error}; skipped")
        return False
    return True


def image_size(path: Path) -> tuple[int, int]:
    """Height and width as the image is shown; only the header is read."""
    from PIL import Image, UnidentifiedImageError

    try:
        _not_empty(path)
        with Image.open(path) as image:
            width, height = image.size
            turned = image.format in CAMERA and image.getexif().get(0x0112, 1) >= 5  # EXIF: shown on its side
    except (OSError, UnidentifiedImageError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise _bad(path, "it cannot be read as an image", error) from None
    return (width, height) if turned else (height, width)


def volume_shape(path: Path) -> tuple[int, ...]:
    """The three sizes of a volume, from its header."""
    return tuple(_header(path).shape[:3])


def read_image(path: Path, size: tuple[int, int] | None = None) -> Tensor:
    """An image as [3, height, width] between 0 and 1, resized to ``size`` (height, width).

    Grey, palette, RGBA (its alpha is left out) and 16-bit files are read too; 1 is the largest value of the format, or
    the largest in the file where the format has none (floats, 32 bits).
    """
    pixels = _without_alpha(_pixels(path))
    if pixels.dtype in (np.uint8, np.uint16):
        largest = float(np.iinfo(pixels.dtype).max)
    else:
        if not np.isfinite(pixels).all():
            raise BadFile(f"{path}: it has values that are not finite")
        pixels = pixels - pixels.min()
        largest = float(pixels.max()) or 1.0
    values = torch.from_numpy(pixels.astype(np.float32) / largest).permute(2, 0, 1)
    values = values.expand(3, -1, -1)
    if size is None or values.shape[1:] == size:
        return values.contiguous()
    return F.interpolate(values[None], size=size, mode="bilinear", antialias=True)[0].clamp(0.0, 1.0)


def read_mask(path: Path, size: tuple[int, int] | None = None) -> Tensor:
    """A binary mask as bool [height, width]: what has the larger of its two values.

    Of two colours it is the brighter one. A file with one value is an empty mask if that is zero, else a full one. More
    than two values are refused, for they are labels or an image, but for formats that lose detail, where the mask is
    what is brighter than half.
    """
    pixels = _pixels(path)
    colours = _without_alpha(pixels)
    grey = colours.sum(axis=2, dtype=np.float64)
    low, high = grey.min(), grey.max()
    if path.suffix.lower() in LOSSY:
        if low < high and (np.abs(grey / high - 0.5) < 0.25).mean() > MOST_BETWEEN:
            raise BadFile(f"{path}: a mask is dark and bright, this file has mostly values between: is it an image?")
        low = 0.0
    else:
        _check_binary(path, pixels, grey)
    mask = torch.from_numpy(grey > ((low + high) / 2 if low < high else 0.0))
    if size is None or mask.shape == size:
        return mask
    return F.interpolate(mask[None, None].float(), size=size, mode="nearest-exact")[0, 0] > 0.5


def _check_binary(path: Path, pixels: Any, grey: Any) -> None:
    """Raise BadFile unless all pixels have the colour of the darkest or of the brightest."""
    colours = _without_alpha(pixels)
    ends = [colours[np.unravel_index(k, grey.shape)] for k in (grey.argmin(), grey.argmax())]
    if not np.logical_or(*((colours == end).all(axis=2) for end in ends)).all():
        found = np.unique(colours.reshape(-1, colours.shape[2]), axis=0)
        shown = ", ".join("/".join(f"{v:g}" for v in colour) for colour in found[:6])
        if len(found) == 2:
            raise BadFile(
                f"{path}: a mask is dark and bright, the two colours of this file ({shown}) are equally bright"
            )
        raise BadFile(f"{path}: a mask has two values, this file has {len(found)} ({shown}, ...)")
    if (ends[0] == ends[1]).all() and np.ptp(pixels[:, :, -1]):
        raise BadFile(
            f"{path}: all of it has one colour, and the mask is in its transparency: save it as black and white"
        )


def _without_alpha(pixels: Any) -> Any:
    return pixels[:, :, :-1] if pixels.shape[2] in (2, 4) else pixels


@dataclass(frozen=True)
class Volume:
    """A volume's voxels in the standard orientation (right, anterior, superior), and the image they came from.

    Example:
        >>> Volume(torch.zeros(4, 5, 6), None).voxels.shape
        torch.Size([4, 5, 6])
    """

    voxels: Tensor  # [x, y, z], float32
    source: Any  # nibabel's image

    @property
    def slicing_axis(self) -> int:
        """The axis with the coarsest spacing, across which slices are sharpest; the last of several.

        One that leaves slices of fewer than 16 voxels along an axis comes last: of a volume 5x40x40 it is the first.
        """
        return _slices(self.source)[0]

    def save(self, voxels: Tensor, path: Path) -> Path:
        """Write other voxels of the same shape with this volume's affine and spacing, in its own orientation."""
        import nibabel
        from nibabel import orientations

        if voxels.shape != self.voxels.shape:
            raise ValueError(f"voxels must be {list(self.voxels.shape)}, got {list(voxels.shape)}")
        own = orientations.io_orientation(self.source.affine)
        back = orientations.ornt_transform(orientations.axcodes2ornt(("R", "A", "S")), own)
        values = orientations.apply_orientation(voxels.float().cpu().numpy(), back).astype(np.float32)
        header = self.source.header.copy()
        header.set_data_dtype(np.float32)
        header.set_slope_inter(1.0, 0.0)
        header["cal_min"] = header["cal_max"] = 0.0
        if len(header.get_data_shape()) > 3:
            header.set_data_shape(values.shape)
        path.parent.mkdir(parents=True, exist_ok=True)
        nibabel.save(type(self.source)(values, self.source.affine, header), path)
        return path


def read_volume(path: Path) -> Volume:
    """The volume in a NIfTI file, all of it."""
    import nibabel

    image = _header(path)
    try:
        values = np.asarray(nibabel.as_closest_canonical(image).dataobj, dtype=np.float32)
    except Exception as error:  # nibabel, gzip and zlib have many for a file that is cut off
        raise _bad(path, "its voxels cannot be read", error) from None
    # A copy always: numpy takes a mirrored axis of one voxel for contiguous, torch refuses its negative stride.
    return Volume(torch.from_numpy(values.reshape(values.shape[:3]).copy()), image)


def slice_size(path: Path) -> tuple[int, int]:
    """Height and width of a volume's slices across its :attr:`Volume.slicing_axis`, from its header."""
    return _slices(_header(path))[1]


def _slices(image: Any) -> tuple[int, tuple[int, int]]:
    """The slicing axis of nibabel's image in the standard orientation, and the size of its slices; no voxel is read."""
    from nibabel import orientations

    # Row k of an orientation says which axis the file's axis k becomes.
    order = np.argsort(orientations.io_orientation(image.affine)[:, 0])
    shape = [int(image.shape[k]) for k in order]
    zooms = [round(float(image.header.get_zooms()[k]), 3) for k in order]
    planes = [(shape[1], shape[2]), (shape[0], shape[2]), (shape[0], shape[1])]
    axis = max(range(3), key=lambda axis: (min(planes[axis]) >= SMALLEST, zooms[axis], axis))
    return axis, planes[axis]


def _header(path: Path) -> Any:
    import nibabel

    try:
        _not_empty(path)
        image: Any = nibabel.load(path)
    except Exception as error:
        raise _bad(path, "it cannot be read as NIfTI", error) from None
    shape = image.shape
    if len(shape) < 3 or any(n != 1 for n in shape[3:]):
        raise BadFile(f"{path}: a volume has three dimensions, this file has {_by(shape)}")
    if sorted(shape[:3])[1] < SMALLEST:
        raise BadFile(f"{path}: {_by(shape)} voxels are too few, {SMALLEST} along two axes are the least")
    if image.get_data_dtype().kind not in "iuf":
        raise BadFile(f"{path}: a voxel has one real number, this file has {image.get_data_dtype()}")
    axes = image.affine[:3, :3]
    if not np.isfinite(axes).all() or np.linalg.det(axes) == 0:
        raise BadFile(f"{path}: its affine has no inverse, so its voxels have no place in space: {axes.tolist()}")
    return image


def _pixels(path: Path) -> Any:
    """An array [height, width, channels] as it is in the file."""
    from PIL import Image, ImageOps

    try:
        _not_empty(path)
        with Image.open(path) as opened:
            image: Any = ImageOps.exif_transpose(opened) if opened.format in CAMERA else opened
            if image.mode in ("P", "CMYK", "YCbCr", "LAB", "HSV", "PA", "RGBX"):
                image = image.convert("RGBA" if "transparency" in image.info else "RGB")
            elif image.mode == "1":
                image = image.convert("L")
            pixels = np.asarray(image)
            pixels = pixels.astype(pixels.dtype.newbyteorder("="), copy=False)  # TIFF has both orders
    except Exception as error:  # Pillow has many for what is no image, or only part of one
        raise _bad(path, "it cannot be read as an image", error) from None
    if pixels.dtype == np.int32 and pixels.min() >= 0 and pixels.max() <= 65535:
        pixels = pixels.astype(np.uint16)  # how Pillow gives some 16-bit files
    return pixels[:, :, None] if pixels.ndim == 2 else pixels


def _not_empty(path: Path) -> None:
    if not path.stat().st_size:
        raise OSError("it is empty")


def _bad(path: Path, what: str, error: Exception) -> BadFile:
    return BadFile(f"{path}: {what} ({str(error).partition(chr(10))[0] or type(error).__name__})")


def _by(size: Iterable[int]) -> str:
    return "x".join(map(str, size))


def _unique(files: list[Path], say: Say) -> dict[str, Path]:
    """Files by name without ending; of several with one name the first is kept."""
    found: dict[str, Path] = {}
    for path in files:
        if stem(path) in found:
            say(f"{path} is skipped: {found[stem(path)]} has the same name")
        else:
            found[stem(path)] = path
    return found
