"""What NYUv2 and Cityscapes share: segmentation and depth for every pixel, the files, the augmentation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from .. import Data, Split, Supervised, Tally, cached, shuffled
from ._relative import delta_m

SPLIT_SEED = 42  # the same split in all runs
IGNORE = -1  # the label of pixels without one
SCALES = (1.0, 1.2, 1.5)

Size = tuple[int, int]


class Dense(Supervised):
    """Segmentation, depth and, after them, what a subclass adds.

    In memory: images uint8 [n, 3, H, W], labels int8 [n, H, W], depth [n, H, W] with 0 where it is unknown. Errors are
    means over all pixels of a split (the public code averages the means of batches).
    """

    bases: Mapping[str, float]  # of delta_m

    def shape(self, data: Data) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return tuple(data.train.inputs.shape[1:]), (self.classes(data), 1)

    def classes(self, data: Data) -> int:
        raise NotImplementedError

    def prepare(self, batch: Split, generator: torch.Generator | None) -> Split:
        """Images in [-1, 1]; in training at random scales and mirrored at random."""
        images = batch.inputs.float() / 127.5 - 1.0
        labels, *rest = batch.targets
        plain = Split(images, (labels.long(), *(target.float() for target in rest)))
        return plain if generator is None else augment(plain, generator)

    def criteria(self, outputs: Sequence[Tensor], targets: Sequence[Tensor]) -> list[Tensor]:
        valid = targets[1] > 0
        # A batch without any label or depth must give 0, not 0 / 0.
        labelled = (targets[0] != IGNORE).sum().clamp(min=1)
        segmentation = F.cross_entropy(outputs[0], targets[0], ignore_index=IGNORE, reduction="sum") / labelled
        depth = ((outputs[1].squeeze(1) - targets[1]).abs() * valid).sum() / valid.sum().clamp(min=1)
        return [segmentation, depth]

    def tally(self, outputs: Sequence[Tensor], targets: Sequence[Tensor]) -> Tally:
        classes = outputs[0].shape[1]
        labelled = targets[0] != IGNORE
        pairs = targets[0][labelled] * classes + outputs[0].argmax(1)[labelled]
        valid = targets[1] > 0
        truth = targets[1][valid].double()
        errors = (outputs[1].squeeze(1)[valid].double() - truth).abs()
        return {
            "confusion": torch.bincount(pairs, minlength=classes**2).view(classes, classes),  # [truth, prediction]
            "depth": torch.stack([errors.sum(), (errors / truth).sum()]),
            "depth_count": valid.sum(),
        }

    def summarise(self, tally: Tally) -> dict[str, float]:
        values = self.values(tally)
        return {"delta_m": delta_m(values, self.bases, self.metrics), **values}

    def values(self, tally: Tally) -> dict[str, float]:
        """All metrics but delta_m. Classes that neither occur nor are predicted do not count in the mIoU."""
        confusion = tally["confusion"].double()
        hits = confusion.diagonal()
        union = confusion.sum(0) + confusion.sum(1) - hits
        absolute, relative = (tally["depth"] / tally["depth_count"]).tolist()
        return {
            "miou": 100.0 * float((hits / union)[union > 0].mean()),
            "pix_acc": 100.0 * float(hits.sum() / confusion.sum()),
            "abs_err": absolute,
            "rel_err": relative,
        }


def augment(batch: Split, generator: torch.Generator) -> Split:
    """Each sample enlarged by 1, 1.2 or 1.5 and cropped to its size, then mirrored or not.

    Depth is divided by the scale: what looks larger is nearer. (The public code does so on Cityscapes too, where the
    "depth" is an inverse depth, and so do we.) A target [n, 3, H, W] is a normal, whose x changes its sign in a mirror.
    All targets take the nearest pixel, normals too: interpolation would mix them with the zeros of unknown ones.
    """
    height, width = batch.inputs.shape[-2:]
    count, device = len(batch), batch.inputs.device
    draws = torch.rand(4, count, generator=generator, device=generator.device).T.tolist()
    images, targets = [], []
    for k, (which, down, right, mirror) in enumerate(draws):
        scale = SCALES[int(which * len(SCALES))]
        h, w = int(height / scale), int(width / scale)
        top, left = int(down * (height - h + 1)), int(right * (width - w + 1))
        rows = top + (2 * torch.arange(height, device=device) + 1) * h // (2 * height)
        columns = left + (2 * torch.arange(width, device=device) + 1) * w // (2 * width)
        crop = batch.inputs[k : k + 1, :, top : top + h, left : left + w]
        image = F.interpolate(crop, size=(height, width), mode="bilinear")[0]
        if mirror < 0.5:
            image, columns = image.flip(-1), columns.flip(0)
        label, depth, *normals = (target[k][..., rows[:, None], columns] for target in batch.targets)
        if mirror < 0.5:
            normals = [torch.cat([-normal[:1], normal[1:]]) for normal in normals]
        images.append(image)
        targets.append((label, depth / scale, *normals))
    return Split(torch.stack(images), tuple(torch.stack(each) for each in zip(*targets, strict=True)))


def divide(whole: Split, train: int, of: int) -> tuple[Split, Split]:
    """Training and validation samples: ``train`` ``of`` so many, or in that proportion if there are fewer."""
    order = shuffled(len(whole), SPLIT_SEED)
    count = round(len(whole) * train / of)
    return whole[order[:count]], whole[order[count:]]


def read_folder(folder: Path, parts: Sequence[str], size: Size | None) -> Split:
    """The ``<k>.npy`` files in the folders ``parts`` (image, label, depth and perhaps normal), in the order of k.

    Images HxWx3 in [0, 1] (kept as bytes), labels HxW, depth HxWx1, normals HxWx3. With a ``size``, images are made
    smaller by averaging and the rest by taking pixels, and the result is cached.
    """
    files = [sorted((folder / part).glob("*.npy"), key=lambda path: int(path.stem)) for part in parts]
    names = [[path.name for path in each] for each in files]
    for part, found in zip(parts, names, strict=True):
        if not found or found != names[0]:
            raise ValueError(f"{folder} needs the same <k>.npy in {', '.join(parts)}: {part} has {len(found)}")

    def read() -> dict[str, Tensor]:
        return {str(k): torch.stack([_read(path, k, size) for path in each]) for k, each in enumerate(files)}

    if size is None:
        stored = read()
    else:
        sources = [path for each in files for path in each]
        stored = cached(f"dense-{size[0]}x{size[1]}", sources, read, key=f"{folder} {parts} {size}")
    return Split(stored["0"], tuple(stored[str(k)] for k in range(1, len(parts))))


def _read(path: Path, part: int, size: Size | None) -> Tensor:
    """One file, as it is kept in memory; the parts are image, label, depth and normal."""
    array = torch.from_numpy(np.load(path))
    if part == 0:
        image = array.permute(2, 0, 1)
        image = image.float() if array.dtype == torch.uint8 else image.float() * 255.0
        if size is not None:
            image = F.interpolate(image[None], size=size, mode="area")[0]
        return image.round().byte()
    array = array.permute(2, 0, 1) if part == 3 else array.reshape(array.shape[:2])
    if size is not None:
        height, width = array.shape[-2:]
        rows = (2 * torch.arange(size[0]) + 1) * height // (2 * size[0])
        columns = (2 * torch.arange(size[1]) + 1) * width // (2 * size[1])
        array = array[..., rows[:, None], columns]
    if part == 1:
        return torch.where((array < 0) | (array == 255), IGNORE, array).to(torch.int8)
    if part == 2:
        return array.float()
    return F.normalize(array.float(), dim=0).half()  # within 0.03 degrees, at half the memory
