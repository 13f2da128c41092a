"""Brain-MRI super-resolution, x4, five objectives on one reconstruction: OASIS-3, 23 T1 volumes, and a user's own."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from madamoo import medical

from .. import Batches, Benchmark, DataSource, Evaluation, FrontSpec, Metric, Profile, cache_root, find, from_option
from ._reading import Planned, say

FACTOR = 4
SHARES = (0.7, 0.1, 0.2)  # of the subjects: training, validation, test
VOLUMES_PER_BATCH = 2
EVALUATED = (0.2, 0.8)  # slices are scored in this part of a volume: beyond it there is hardly any brain
GAIN = 0.1  # of what the network adds: a new network then leaves the enlarged volume nearly as it is
OVERLAP = 0.25  # of neighbouring windows in three dimensions

PERCEPTUAL = (  # AlexNet and LPIPS's heads, VGG16 and DISTS's weights: the names under which users have them
    ("alexnet_features*.npz", "alexnet-*.pth"),
    ("lpips*alex.pth", "alex.pth"),
    ("vgg16_features*.npz", "vgg16-*.pth"),
    ("dists_weights.pt", "weights.pt"),
)
PERCEPTUAL_LAYOUT = f"  perceptual/ with {', '.join(' or '.join(names) for names in PERCEPTUAL)}"
DISTORTION = (Metric("psnr", True, 3, gain="points"), Metric("ssim", True, 4, gain="value"), Metric("mae", False, 5))
PERCEPTION = (Metric("lpips", False, 4), Metric("dists", False, 4))

OASIS_SOURCE = DataSource(
    "OASIS-3: Longitudinal Neuroimaging, Clinical, and Cognitive Dataset for Normal Aging and Alzheimer Disease (2019)",
    "P. J. LaMontagne, T. L. S. Benzinger, J. C. Morris and others",
    "https://sites.wustl.edu/oasisbrains/home/oasis-3/",
    "OASIS data use terms",
)
BRAIN_SOURCE = DataSource(
    "23 T1-weighted brain volumes of older adults, at 2 mm",
    "not stated",
    "not stated",
    "for research",
)


def prepare_volume(file: Path) -> medical.Sample:
    """Intensities between 0 and 1, slices first, as float16, and the same reduced four times along each axis."""
    volume = medical.read_volume(file)
    try:
        scaled = medical.intensity_range(volume.voxels).scale(volume.voxels)
    except ValueError as error:
        raise medical.BadFile(f"{file}: {error}") from None
    slices = scaled.movedim(volume.slicing_axis, 0).contiguous()
    return slices.half(), medical.reduce_volume(slices, FACTOR).half()


@dataclass
class Loaded:
    """Volumes and the names of their subjects, by split, and the perceptual distances if their weights are there."""

    samples: Mapping[str, medical.Samples]
    names: Mapping[str, Sequence[str]]
    profile: Profile
    perceptual: Mapping[str, nn.Module]
    device: torch.device | str = "cpu"

    def to(self, device: torch.device) -> Loaded:
        moved = {name: distance.to(device) for name, distance in self.perceptual.items()}
        return replace(self, device=device, perceptual=moved)


class SuperResolution(Benchmark):
    """A network adds to an enlarged volume what it lacks: slice by slice, or in three dimensions in windows.

    Metrics are computed for each volume on slices between 20 and 80 % of its depth, and averaged over the volumes.

    Args:
        dimensions: 2 (slices) or 3.
        slider: two objectives instead of five: ``faithful`` is L1, ``sharp`` the mean of the other four. A method that
            learns a whole front then gives one network for all trade-offs between PSNR and DISTS.
    """

    def __init__(self, name: str, dimensions: int = 2, slider: bool = False, perceptual: bool = True) -> None:
        if dimensions not in (2, 3):
            raise ValueError(f"dimensions must be 2 or 3, got {dimensions!r}")
        options = {"dimensions": dimensions if dimensions == 3 else None, "slider": slider or None}
        self.name = ":".join([name, *(f"{key}={value}" for key, value in options.items() if value is not None)])
        self.dimensions, self.slider = dimensions, slider
        self.objectives = ("faithful", "sharp") if slider else medical.SUPER_RESOLUTION
        self.kinds = ("regression",) * len(self.objectives)
        self.metrics = (*PERCEPTION, *DISTORTION) if perceptual else DISTORTION
        self.profiles = {"cpu": self._cpu(), "paper": self._paper()}
        if slider and perceptual:
            # Of the perceptual distances DISTS, which answers to the sharp losses; LPIPS follows PSNR here.
            self.front = FrontSpec(("psnr", "dists"), (1.0, 1.0), (15.0, 0.6), rays=5)

    def _paper(self) -> Profile:
        patch = (128, 128) if self.dimensions == 2 else (96, 96, 96)
        return Profile(
            epochs=100,
            batch=16 if self.dimensions == 2 else 2,
            lr=1e-4,
            model="swin:width=48:blocks=2",
            options={"patch": patch, "steps": 1000, "slices": None},
        )

    def _cpu(self) -> Profile:
        flat = self.dimensions == 2
        patch = (64, 64) if flat else (64, 64, 64)
        epochs, steps, batch = (15, 120, 2) if flat else (4, 6, 1)
        return Profile(
            epochs=epochs,
            batch=batch,
            lr=1e-3,
            model="swin:width=12:blocks=1",
            schedule="cosine",
            threads=1,
            reductions=(
                "a Swin UNETR of 12 features and one block per stage, not 48 and two",
                f"{epochs} epochs of {steps} batches of {batch} patches of {'x'.join(map(str, patch))}",
                "scores on 6 slices per volume",
                "the learning rate falls to zero along a cosine",
            ),
            options={"patch": patch, "steps": steps, "slices": 6},
        )

    def volumes(self, root: Path | None) -> tuple[Path, list[Path], Path | None]:
        """A folder, the files below it, and the folder of the perceptual distances' weights."""
        raise NotImplementedError

    def load(self, root: Path | None, profile: Profile, seed: int) -> Loaded:
        folder, files, weights = self.volumes(root)
        perceptual: dict[str, nn.Module] = {}
        if weights is not None:
            alex, heads, vgg, ratios = find_weights(weights)
            lpips, dists = medical.LPIPS(alex, heads), medical.DISTS(vgg, ratios)
            perceptual = {"lpips": lpips, "dists": dists}
            least = max(lpips.smallest, dists.smallest)
            files = [file for file in files if _is_large(file, least)]
        subjects = [subject_of(file.relative_to(folder)) for file in files]
        parts = dict(zip(("train", "validation", "test"), medical.split_by_name(subjects, SHARES), strict=True))
        for which, part in parts.items():
            if not part:
                names = ", ".join(sorted(set(subjects)))
                raise ValueError(
                    f"{self.name} has no subject for {which}: three are the least, its {len(files)} volumes have "
                    f"{len(set(subjects))} ({names}); a subject is sub-X in the path, else the name up to the first _"
                )
        everything = medical.Samples(
            [(file,) for file in files], prepare_volume, cache=cache_root() / "volumes", key=f"volume 2 x{FACTOR}"
        )
        return Loaded(
            {which: everything.subset(part) for which, part in parts.items()},
            {which: [medical.stem(files[k]) for k in part] for which, part in parts.items()},
            profile,
            perceptual,
        )

    def shape(self, data: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return (1, *(64,) * self.dimensions), (1,)

    def batches(self, data: Loaded, size: int) -> Batches:
        train, steps = data.samples["train"], int(data.profile.options["steps"])
        patch = tuple(data.profile.options["patch"])
        each = min(size, VOLUMES_PER_BATCH)

        def plan(generator: torch.Generator) -> Tensor:
            return torch.randint(len(train), (steps, each), generator=generator)

        def make(read: list[medical.Sample], generator: torch.Generator) -> tuple[Tensor, Tensor]:
            pairs = [random_patch(read[k % each], patch, generator) for k in range(size)]
            low, high = (torch.stack(side)[:, None] for side in zip(*pairs, strict=True))
            return low.to(data.device), high.to(data.device)

        return Planned(train, steps, plan, make)

    def losses(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> list[Tensor]:
        low, high = batch
        return self.criteria(low + GAIN * model(low)[0], high)

    def criteria(self, prediction: Tensor, truth: Tensor) -> list[Tensor]:
        faithful, *sharp = medical.super_resolution_losses(prediction, truth).values()
        return [faithful, torch.stack(sharp).mean()] if self.slider else [faithful, *sharp]

    @torch.no_grad()
    def reconstruct(self, model: nn.Module, low: Tensor, window: Sequence[int]) -> Tensor:
        """Slices [n, height, width], or a whole volume, as the network gives them."""
        if self.dimensions == 2:
            parts = [part + GAIN * model(part)[0] for part in low[:, None].split(8)]
            return torch.cat(parts)[:, 0].clamp(0.0, 1.0)
        from monai.inferers import sliding_window_inference

        added: Any = sliding_window_inference(
            low[None, None],
            tuple(window),
            1,
            lambda part: model(part)[0],
            overlap=OVERLAP,
            mode="gaussian",
            padding_mode="replicate",
        )
        return (low + GAIN * added[0, 0]).clamp(0.0, 1.0)

    def scored(self, model: nn.Module, data: Loaded, split: str) -> list[tuple[str, dict[str, float], list[Tensor]]]:
        """For each volume its name, its metrics, and the slices on which they were computed: low, predicted, true."""
        options = data.profile.options
        found = []
        for k, name in enumerate(data.names[split]):
            high, reduced = data.samples[split][k]
            slices = evaluated_slices(len(high), options.get("slices"))
            if self.dimensions == 2:
                low = medical.enlarge(reduced, high.shape, slices).to(data.device)
                predicted = self.reconstruct(model, low, options["patch"])
            else:
                whole = medical.enlarge(reduced, high.shape).to(data.device)
                predicted = self.reconstruct(model, whole, options["patch"])[slices]
                low = whole[slices]
            truth = high[slices].float().to(data.device)
            found.append((name, self.metrics_of(predicted, truth, data.perceptual), [low, predicted, truth]))
        return found

    @torch.no_grad()
    def metrics_of(self, predicted: Tensor, truth: Tensor, perceptual: Mapping[str, nn.Module]) -> dict[str, float]:
        """Of one volume's slices [n, height, width]: errors over all of them, SSIM, LPIPS and DISTS as means."""
        a, b = predicted[:, None], truth[:, None]
        parts = list(zip(a.split(4), b.split(4), strict=True))  # few at a time: VGG16's features are large
        deep = {name: torch.cat([distance(x, y) for x, y in parts]).mean() for name, distance in perceptual.items()}
        flat = {
            "psnr": medical.psnr(predicted[None], truth[None]).mean(),
            "ssim": medical.ssim(a, b).mean(),
            "mae": medical.mae(predicted[None], truth[None]).mean(),
        }
        return {metric.name: float({**deep, **flat}[metric.name]) for metric in self.metrics}

    @torch.no_grad()
    def evaluate(self, model: nn.Module, data: Loaded, split: str, size: int) -> Evaluation:
        scored = self.scored(model, data, split)
        losses = [torch.stack(self.criteria(p[:, None], t[:, None])).double() for _, _, (_, p, t) in scored]
        means = {m.name: sum(metrics[m.name] for _, metrics, _ in scored) / len(scored) for m in self.metrics}
        return Evaluation(means, torch.stack(losses).mean(0).tolist())

    def maps(self, model: nn.Module, data: Loaded, size: int) -> list[dict[str, Any]]:
        """The middle one of the scored slices of each test volume, with the volume's metrics; of ten at most."""
        found = []
        for name, metrics, parts in self.scored(model, data, "test")[:10]:
            low, predicted, truth = (part[len(part) // 2].T.flip(0).contiguous().cpu() for part in parts)
            numbers = ", ".join(f"{m.name.upper()} {metrics[m.name]:.{m.digits}f}" for m in self.metrics)
            found.append(
                {"kind": "slices", "what": f"{name}: {numbers}", "input": low, "prediction": predicted, "truth": truth}
            )
        return found

    def inputs(self, path: Path) -> list[Path]:
        return [path] if path.is_file() else medical.find_files(path, medical.VOLUMES)

    def predict(self, model: nn.Module, profile: Profile, file: Path, folder: Path) -> Path:
        """The sharpened volume, on the grid of the one given, which is taken to be blurred: same spacing and affine."""
        volume = medical.read_volume(file)
        try:
            span = medical.intensity_range(volume.voxels)
        except ValueError as error:
            raise medical.BadFile(f"{file}: {error}") from None
        low = span.scale(volume.voxels).movedim(volume.slicing_axis, 0)
        sharp = span.restore(self.reconstruct(model, low, profile.options["patch"]))
        return volume.save(sharp.movedim(0, volume.slicing_axis), folder / f"{medical.stem(file)}.nii.gz")


def random_patch(sample: medical.Sample, patch: Sequence[int], generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """A patch at a random place, enlarged and as it is; of a volume that is smaller, all there is along that axis."""
    high, reduced = sample
    flat = len(patch) == 2
    size = (1, *patch) if flat else tuple(patch)
    draws = torch.rand(3, generator=generator).tolist()
    starts = [int(u * (max(0, n - p) + 1)) for u, n, p in zip(draws, high.shape, size, strict=True)]
    d, h, w = (slice(s, s + p) for s, p in zip(starts, size, strict=True))
    planes = torch.arange(high.shape[0])[d]
    low = medical.enlarge(reduced, high.shape, planes)[:, h, w]
    true = high[d, h, w].float()
    short = [p - n for p, n in zip(size, true.shape, strict=True)]
    if any(short):  # a small volume: its edge is repeated, so that patches can be stacked
        padding = [v for n in reversed(short) for v in (0, n)]
        low, true = (torch.nn.functional.pad(x[None, None], padding, mode="replicate")[0, 0] for x in (low, true))
    return (low[0], true[0]) if flat else (low, true)


def evaluated_slices(depth: int, count: int | None) -> Tensor:
    """So many slices, evenly spaced, or all, between 20 and 80 % of the depth."""
    first, last = (int(share * (depth - 1)) for share in EVALUATED)
    return torch.arange(first, last + 1) if count is None else torch.linspace(first, last, count).long().unique()


class BrainT1(SuperResolution):
    """23 T1 volumes of 2 mm, one per subject."""

    source = BRAIN_SOURCE
    files = (("brain_mri/t1", "perceptual"),)
    layout = f"  brain_mri/t1/<subject>_T1.nii.gz and\n{PERCEPTUAL_LAYOUT}"

    def __init__(self, dimensions: int = 2, slider: bool = False) -> None:
        super().__init__("brain-t1", dimensions, slider)

    def volumes(self, root: Path | None) -> tuple[Path, list[Path], Path | None]:
        folder, weights = find(root, self.name, self.layout, *self.files)
        return folder, medical.find_volumes(folder, say), weights


class OASIS(SuperResolution):
    """The T1 volumes of OASIS-3: several sessions of a subject stay together in a split."""

    source = OASIS_SOURCE
    files = (("oasis", "perceptual"),)
    layout = (
        "  oasis/<subject>/<session>/anat/sub-<subject>_ses-<session>_T1w.nii.gz, or\n"
        "  oasis/<subject>_MR_<session>/anat<k>/NIFTI/*_T1w.nii.gz, as downloaded; and\n" + PERCEPTUAL_LAYOUT
    )

    def __init__(self, dimensions: int = 2, slider: bool = False) -> None:
        super().__init__("oasis", dimensions, slider)

    def volumes(self, root: Path | None) -> tuple[Path, list[Path], Path | None]:
        folder, weights = find(root, self.name, self.layout, *self.files)
        return folder, medical.find_volumes(folder, say, "T1w"), weights


class Own(SuperResolution):
    """Volumes of a user's own; LPIPS and DISTS are scored if a folder with their weights is given.

    ``madamoo run superresolution --volumes DIR`` writes the folder into the benchmark's name.
    """

    def __init__(self, volumes: str = "", perceptual: str = "", dimensions: int = 2, slider: bool = False) -> None:
        super().__init__("superresolution", dimensions, slider, perceptual=bool(perceptual))
        self.folder, self.weights = str(volumes), str(perceptual)
        head, *options = self.name.split(":")
        given = {"perceptual": self.weights, "volumes": self.folder}
        options += [f"{key}={value}" for key, value in given.items() if value]
        self.name = ":".join([head, *sorted(options)])

    def state(self, root: Path | None) -> str:
        return "your own: madamoo run superresolution --volumes DIR"

    def volumes(self, root: Path | None) -> tuple[Path, list[Path], Path | None]:
        if not self.folder:
            raise ValueError("superresolution needs the folder of your volumes: give --volumes DIR")
        folder = from_option(self.folder)
        return folder, medical.find_volumes(folder, say), from_option(self.weights) if self.weights else None


def find_weights(folder: Path) -> list[Path]:
    """The four files of LPIPS and DISTS in a folder."""
    found = []
    for names in PERCEPTUAL:
        files = [file for name in names for file in sorted(folder.glob(name))]
        if not files:
            raise FileNotFoundError(f"{folder} has no {' or '.join(names)}, which LPIPS and DISTS need")
        found.append(files[0])
    return found


def _is_large(file: Path, least: int) -> bool:
    size = medical.slice_size(file)
    if min(size) < least:
        say(f"{file}: its slices are {size[0]}x{size[1]}, LPIPS needs {least} pixels a side or more; skipped")
    return min(size) >= least


def subject_of(file: Path) -> str:
    """Whose volume it is, by its path in its folder: ``sub-X`` or ``OAS3XXXX``, else its name up to the first ``_``."""
    found = re.search(r"OAS3\d{4}|(?<![A-Za-z0-9])sub-([A-Za-z0-9]+)", file.as_posix())
    return found[0].removeprefix("sub-") if found else medical.stem(file).partition("_")[0]


BENCHMARKS = {"brain-t1": BrainT1, "oasis": OASIS, "superresolution": Own}
