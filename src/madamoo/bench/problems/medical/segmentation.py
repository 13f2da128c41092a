"""Lesion segmentation with two objectives, cross-entropy and soft Dice: ISIC 2018, PH2, and images of a user's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from madamoo import medical

from .. import Batches, Data, DataSource, Metric, Profile, Split, Supervised, Tally, cache_root, from_option
from ._reading import Planned, say

SHARES = (0.6, 0.15, 0.25)  # training, validation, test, where a data set does not say
CONSIDERED, SHOWN = 200, 6  # test images for a report, and those that it shows

ISIC_SOURCE = DataSource(
    "ISIC 2018, Task 1: Skin Lesion Analysis Toward Melanoma Detection, with HAM10000",
    "N. Codella, V. Rotemberg, P. Tschandl and others",
    "https://challenge.isic-archive.com/data/#2018",
    "CC BY-NC 4.0",
)
PH2_SOURCE = DataSource(
    "PH2: A dermoscopic image database for research and benchmarking (EMBC 2013)",
    "T. Mendonça, P. M. Ferreira, J. S. Marques, A. R. S. Marçal, J. Rozeira",
    "https://www.fc.up.pt/addi/ph2%20database.html",
    "for research and education",
)


def standardise(image: Tensor) -> Tensor:
    """An image [3, height, width] with mean 0 and deviation 1 over all its values: light and gain are left out."""
    image = image.float()
    return (image - image.mean()) / image.std().clamp(min=1e-3)


def prepare_pair(image: Path, mask: Path, size: tuple[int, int]) -> medical.Sample:
    """What a network sees of an image, and the mask: float16 [3, height, width] and bool [height, width]."""
    return standardise(medical.read_image(image, size)).half(), medical.read_mask(mask, size)


@dataclass(frozen=True)
class Files:
    """Images in files, as a split of the lab: read when a batch needs them."""

    samples: medical.Samples
    device: torch.device | None = None

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: Tensor | slice) -> Split:
        chosen = range(len(self))[index] if isinstance(index, slice) else index.tolist()
        return self.collate([self.samples[k] for k in chosen])

    def collate(self, read: Sequence[medical.Sample]) -> Split:
        images, masks = zip(*read, strict=True)
        split = Split(torch.stack(images), (torch.stack(masks),))
        return split if self.device is None else split.to(self.device)

    def to(self, device: torch.device) -> Files:
        return replace(self, device=device)


def profiles_of(epochs: int) -> dict[str, Profile]:
    """The recipe's size, and one for a single core with so many epochs."""
    cpu = Profile(
        epochs=epochs,
        batch=8,
        lr=3e-3,
        model="unet:width=8:depth=4",
        schedule="cosine",
        threads=1,
        reductions=(
            "images of 96x128, not 256x256",
            "a UNet of four stages of 8 to 64 filters, not five of 32 to 512",
            f"{epochs} epochs of batches of 8, not 100 of 16",
            "the learning rate falls to zero along a cosine",
        ),
        options={"size": (96, 128)},
    )
    paper = Profile(epochs=100, batch=16, lr=1e-3, model="unet:width=32:depth=5", options={"size": (256, 256)})
    return {"cpu": cpu, "paper": paper}


class Segmentation(Supervised):
    """One binary mask per image. Dice (per cent) and HD95 (pixels of the resized image) are means over images.

    ``deep`` further outputs, at 1/2, 1/4, ... of the resolution, are supervised too: two more objectives each.
    """

    metrics = (Metric("dice", True, 2), Metric("hd95", False, 2))
    profiles: Mapping[str, Profile] = profiles_of(epochs=40)

    def __init__(self, name: str, deep: int = 0) -> None:
        if not isinstance(deep, int) or not 0 <= deep <= 3:
            raise ValueError(f"deep must be a whole number from 0 to 3, got {deep!r}")
        self.deep = deep
        self.name = f"{name}:deep={deep}" if deep else name
        self.objectives = tuple(o for k in range(deep + 1) for o in medical.segmentation_names(k))
        self.kinds = ("classification",) * len(self.objectives)

    def size(self, profile: Profile) -> tuple[int, int]:
        height, width = profile.options["size"]
        return height, width

    def from_pairs(self, pairs: Sequence[Sequence[medical.Pair]], profile: Profile) -> Data[Files]:
        """The three splits of files; what was prepared once is cached."""
        size = self.size(profile)
        prepare = partial(prepare_pair, size=size)
        found = []
        for which, part in zip(("training", "validation", "test"), pairs, strict=True):
            if not part:
                count = sum(map(len, pairs))
                raise ValueError(f"{self.name} has no images for {which}: there are {count}, three are the least")
            files = [(pair.image, pair.mask) for pair in part]
            found.append(Files(medical.Samples(files, prepare, cache=cache_root() / "images", key=f"pair 2 {size}")))
        return Data(*found)

    def shape(self, data: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return (3, *self.size(self.profiles["cpu"])), (1,) * (self.deep + 1)

    def batches(self, data: Data, size: int) -> Batches:
        if not isinstance(data.train, Files):
            return super().batches(data, size)
        train = data.train
        count = min(size, len(train))
        steps = len(train) // count

        def plan(generator: torch.Generator) -> Tensor:
            return torch.randperm(len(train), generator=generator)[: steps * count].view(steps, count)

        return Planned(train.samples, steps, plan, lambda read, generator: self.prepare(train.collate(read), generator))

    def prepare(self, batch: Split, generator: torch.Generator | None) -> Split:
        """In training, mirrored at random along each axis."""
        images, (mask,) = batch.inputs.float(), batch.targets
        if generator is not None:
            for axis in (-1, -2):
                turned = torch.rand(len(images), generator=generator) < 0.5
                images[turned], mask[turned] = images[turned].flip(axis), mask[turned].flip(axis)
        return Split(images, (mask,))

    def criteria(self, outputs: Sequence[Tensor], targets: Sequence[Tensor]) -> list[Tensor]:
        return list(medical.segmentation_losses(outputs, targets[0][:, None]).values())

    def tally(self, outputs: Sequence[Tensor], targets: Sequence[Tensor]) -> Tally:
        predicted = outputs[0][:, 0] > 0
        return {
            "dice": medical.dice_score(predicted, targets[0]).sum(),
            "hd95": medical.hd95(predicted, targets[0]).sum(),
            "count": torch.tensor(len(predicted)),
        }

    def summarise(self, tally: Tally) -> dict[str, float]:
        count = float(tally["count"])
        return {"dice": 100.0 * float(tally["dice"]) / count, "hd95": float(tally["hd95"]) / count}

    @torch.no_grad()
    def maps(self, model: nn.Module, data: Data, size: int) -> list[dict[str, Any]]:
        """Overlays of prediction and truth on some test images, spread evenly over the quality they have."""
        batch = self.prepare(data.test[:CONSIDERED], None)
        predicted = torch.cat([model(part)[0][:, 0] > 0 for part in batch.inputs.split(max(1, size))])
        scores = medical.dice_score(predicted, batch.targets[0])
        order = scores.argsort()
        chosen = order[torch.linspace(0, len(order) - 1, min(SHOWN, len(order))).long()]
        found = []
        for k in chosen.tolist():
            image = batch.inputs[k].permute(1, 2, 0)
            image = (image - image.min()) / (image.max() - image.min()).clamp(min=1e-6)
            found.append(
                {
                    "kind": "overlay",
                    "what": f"Dice {100 * scores[k]:.1f}",
                    "input": image.cpu(),
                    "prediction": predicted[k].float().cpu(),
                    "truth": batch.targets[0][k].float().cpu(),
                }
            )
        return found

    def inputs(self, path: Path) -> list[Path]:
        return [path] if path.is_file() else medical.find_files(path, medical.IMAGES)

    @torch.no_grad()
    def predict(self, model: nn.Module, profile: Profile, file: Path, folder: Path) -> Path:
        """A mask of the image's own size, 0 and 255, as PNG."""
        from PIL import Image

        image = medical.read_image(file, self.size(profile))
        logits = model(standardise(image)[None])[0]
        whole = F.interpolate(logits, size=medical.image_size(file), mode="bilinear")[0, 0] > 0
        folder.mkdir(parents=True, exist_ok=True)
        target = folder / f"{medical.stem(file)}.png"
        Image.fromarray((whole.numpy() * np.uint8(255)).astype(np.uint8)).save(target)
        return target


class ISIC(Segmentation):
    """ISIC 2018, Task 1: 2,594 images for training, of which a fifth validates, and the challenge's test set.

    Without the test images the training images are split in three.
    """

    source = ISIC_SOURCE
    profiles = profiles_of(epochs=4)
    TRAIN = ("ISIC2018_Task1-2_Training_Input", "ISIC2018_Task1_Training_GroundTruth")
    TEST = ("ISIC2018_Task1-2_Test_Input", "ISIC2018_Task1_Test_GroundTruth")
    files = (
        tuple(f"isic/{part}" for part in (*TRAIN, *TEST)),
        tuple(f"isic/{part}" for part in TRAIN),
        ("isic/images", "isic/masks"),
    )
    layout = (
        "  isic/ISIC2018_Task1-2_Training_Input/<name>.jpg and isic/ISIC2018_Task1_Training_GroundTruth/"
        "<name>_segmentation.png,\n"
        "  and, for the test, the same with Test in place of Training; or\n"
        "  isic/images/<name>.jpg and isic/masks/<name>_segmentation.png"
    )

    def __init__(self, deep: int = 0) -> None:
        super().__init__("isic", deep)

    def load(self, root: Path | None, profile: Profile, seed: int) -> Data[Files]:
        folders = self.locate(root)
        train = medical.find_pairs(folders[0], folders[1], say)
        if len(folders) == 2:
            return self.from_pairs(_split(train, SHARES), profile)
        test = medical.find_pairs(folders[2], folders[3], say)
        return self.from_pairs([*_split(train, (0.8, 0.2)), test], profile)

    def row_of_paper(self, solver: str, setting: Mapping[str, Any]) -> str:
        """The paper has LS on both backbones."""
        return f"{solver}, {str(setting.get('model')).partition(':')[0]}"


class PH2(Segmentation):
    """The 200 dermoscopic images of PH2 at 96x128, in one file."""

    source = PH2_SOURCE
    files = (("ph2/ph2_128x96.npz",),)
    layout = "  ph2/ph2_128x96.npz with x [200, 96, 128, 3], mask [200, 96, 128] and name"

    def __init__(self, deep: int = 0) -> None:
        super().__init__("ph2", deep)

    def load(self, root: Path | None, profile: Profile, seed: int) -> Data[Split]:
        (file,) = self.locate(root)
        try:
            with np.load(file) as stored:
                images, masks = torch.from_numpy(stored["x"]), torch.from_numpy(stored["mask"])
                names = [str(name) for name in stored["name"]]
        except (OSError, ValueError, KeyError) as error:
            raise medical.BadFile(f"{file}: it has no x, mask and name ({error})") from None
        if images.shape[:-1] != masks.shape or images.dim() != 4 or len(names) != len(masks):
            raise medical.BadFile(f"{file}: x is {list(images.shape)}, but mask is {list(masks.shape)}")
        images = images.permute(0, 3, 1, 2).float() / 255
        size = self.size(profile)
        if images.shape[2:] != size:
            images = F.interpolate(images, size=size, mode="bilinear", antialias=True)
            masks = F.interpolate(masks[:, None].float(), size=size, mode="nearest-exact")[:, 0] > 0.5
        whole = Split(torch.stack([standardise(image) for image in images]), (masks.bool(),))
        return Data(*(whole[torch.tensor(part)] for part in medical.split_by_name(names, SHARES)))


class Own(Segmentation):
    """Images and masks of a user's own: files in two folders that have the same names.

    ``madamoo run segmentation --images DIR --masks DIR`` writes the folders into the benchmark's name.
    """

    def __init__(self, images: str = "", masks: str = "", deep: int = 0) -> None:
        super().__init__("segmentation", deep)
        self.folders = str(images), str(masks)
        if images or masks:
            self.name = f"{self.name}:images={images}:masks={masks}"

    def state(self, root: Path | None) -> str:
        return "your own: madamoo run segmentation --images DIR --masks DIR"

    def load(self, root: Path | None, profile: Profile, seed: int) -> Data[Files]:
        if not all(self.folders):
            raise ValueError("segmentation needs the folders of your images and masks: give --images DIR --masks DIR")
        images, masks = map(from_option, self.folders)
        pairs = medical.find_pairs(images, masks, say)
        return self.from_pairs(_split(pairs, SHARES), profile)


def _split(pairs: Sequence[medical.Pair], shares: Sequence[float]) -> list[list[medical.Pair]]:
    return [[pairs[k] for k in part] for part in medical.split_by_name([pair.name for pair in pairs], shares)]


BENCHMARKS = {"isic": ISIC, "ph2": PH2, "segmentation": Own}
