"""Perceptual distances on the features of networks trained on photographs: LPIPS and DISTS.

Nothing is downloaded: the weights are read from files that the user names. Features come in torchvision's checkpoints
(``alexnet-*.pth``, ``vgg16-*.pth``) or as ``.npz`` with ``convK.weight`` and ``convK.bias`` in the order of the layers;
the heads of LPIPS (``lin0.model.1.weight``, ...) and DISTS's ``alpha`` and ``beta`` as their authors publish them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Layer:
    """A convolution and ReLU; ``pool`` comes before it, ``tap`` says whether its output is a feature."""

    channels: int
    kernel: int = 3
    stride: int = 1
    padding: int = 1
    pool: bool = False
    tap: bool = False


ALEXNET = (
    Layer(64, 11, 4, 2, tap=True),
    Layer(192, 5, 1, 2, pool=True, tap=True),
    Layer(384, pool=True, tap=True),
    Layer(256, tap=True),
    Layer(256, tap=True),
)
VGG16 = tuple(
    Layer(channels, pool=k == 0 and block > 0, tap=k == count - 1)
    for block, (channels, count) in enumerate(((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)))
    for k in range(count)
)
NETWORKS = {"alex": ALEXNET, "vgg": VGG16}
SMALLEST = {"alex": 32, "vgg": 16}  # pixels a side: below, a feature map has none
# As both works have them: LPIPS scales images in [-1, 1], DISTS those in [0, 1].
LPIPS_SHIFT, LPIPS_SCALE = (-0.030, -0.088, -0.188), (0.458, 0.448, 0.450)
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
STABLE = 1e-6  # of DISTS's quotients


class Features(nn.Module):
    """The convolutions of AlexNet or VGG16, frozen: an image to the list of its feature maps."""

    def __init__(self, network: str, file: str | Path, *, smooth_pooling: bool = False) -> None:
        super().__init__()
        if network not in NETWORKS:
            raise ValueError(f"network must be one of {', '.join(NETWORKS)}, got {network!r}")
        self.network, self.layers = network, NETWORKS[network]
        self.smooth_pooling = smooth_pooling
        weights = _convolutions(Path(file))
        if len(weights) != len(self.layers):
            raise ValueError(f"{file} has {len(weights)} convolutions, {network} has {len(self.layers)}")
        before = 3
        for k, (layer, (weight, bias)) in enumerate(zip(self.layers, weights, strict=True)):
            wanted = (layer.channels, before, layer.kernel, layer.kernel)
            if weight.shape != wanted or bias.shape != wanted[:1]:
                raise ValueError(f"{file}: convolution {k} has {list(weight.shape)}, {network} has {list(wanted)}")
            self.register_buffer(f"weight{k}", weight)
            self.register_buffer(f"bias{k}", bias)
            before = layer.channels
        hann = torch.tensor([0.25, 0.5, 0.25])
        self.register_buffer("window", torch.outer(hann, hann))

    @property
    def channels(self) -> list[int]:
        return [layer.channels for layer in self.layers if layer.tap]

    def forward(self, x: Tensor) -> list[Tensor]:
        found = []
        for k, layer in enumerate(self.layers):
            if layer.pool:
                x = self._smooth(x) if self.smooth_pooling else F.max_pool2d(x, 3 if self.network == "alex" else 2, 2)
            weight, bias = self.get_buffer(f"weight{k}"), self.get_buffer(f"bias{k}")
            x = F.conv2d(x, weight, bias, layer.stride, layer.padding).relu()
            if layer.tap:
                found.append(x)
        return found

    def _smooth(self, x: Tensor) -> Tensor:
        """The root of the weighted mean of squares: pooling that does not alias."""
        count = x.shape[1]
        window = self.get_buffer("window").expand(count, 1, 3, 3)
        return (F.conv2d(x.square(), window, stride=2, padding=1, groups=count) + 1e-12).sqrt()


class LPIPS(nn.Module):
    """Learned perceptual image patch similarity, version 0.1 (`Zhang et al., 2018 <https://arxiv.org/abs/1801.03924>`_).

    Args:
        features: the file with AlexNet's or VGG16's convolutions.
        heads: the file with the linear heads of the same network.
        network: "alex" (what is usually reported) or "vgg".

    Called on two batches of images [n, 1 or 3, height, width] between 0 and 1, it gives [n] distances, 0 for equal
    images, which must have ``smallest`` pixels a side or more. A grey image counts as one with three equal channels.
    Gradients reach the images, no weight is trained.
    """

    def __init__(self, features: str | Path, heads: str | Path, network: str = "alex") -> None:
        super().__init__()
        self.features = Features(network, features)
        self.smallest = SMALLEST[network]
        stored = _state(Path(heads))
        for k, channels in enumerate(self.features.channels):
            head = stored.get(f"lin{k}.model.1.weight")
            if head is None or head.numel() != channels:
                raise ValueError(
                    f"{heads} lacks lin{k}.model.1.weight with {channels} numbers: it is no head of {network}"
                )
            self.register_buffer(f"head{k}", head.float().view(1, -1, 1, 1))
        self.register_buffer("shift", _colour(LPIPS_SHIFT))
        self.register_buffer("scale", _colour(LPIPS_SCALE))
        self.eval()

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        total = torch.zeros(len(x), device=x.device)
        pairs = zip(self._maps(x), self._maps(check_images(y, x.shape, self.features.network)), strict=True)
        for k, (a, b) in enumerate(pairs):
            total = total + ((a - b).square() * self.get_buffer(f"head{k}")).sum(1).mean((1, 2))
        return total

    def _maps(self, x: Tensor) -> list[Tensor]:
        """Feature maps with unit vectors in all places."""
        x = check_images(x, x.shape, self.features.network)
        x = (2 * x - 1 - self.get_buffer("shift")) / self.get_buffer("scale")
        # torch's norm has the gradient zero where all features are zero; that of a square root is not finite there.
        return [a / (torch.linalg.vector_norm(a, dim=1, keepdim=True) + 1e-10) for a in self.features(x)]


class DISTS(nn.Module):
    """Deep image structure and texture similarity (`Ding et al., 2020 <https://arxiv.org/abs/2004.07728>`_).

    Args:
        features: the file with VGG16's convolutions.
        weights: the file with ``alpha`` and ``beta``.

    Called as :class:`LPIPS` is.
    """

    def __init__(self, features: str | Path, weights: str | Path) -> None:
        super().__init__()
        self.features = Features("vgg", features, smooth_pooling=True)
        self.smallest = SMALLEST["vgg"]
        stored = _state(Path(weights))
        self.channels = [3, *self.features.channels]
        for name in ("alpha", "beta"):
            if name not in stored or stored[name].numel() != sum(self.channels):
                raise ValueError(
                    f"{weights} lacks {name} with {sum(self.channels)} numbers: it holds no weights of DISTS"
                )
        total = stored["alpha"].sum() + stored["beta"].sum()
        for name in ("alpha", "beta"):
            self.register_buffer(name, (stored[name] / total).float().flatten())
        self.register_buffer("mean", _colour(MEAN))
        self.register_buffer("deviation", _colour(DEVIATION))
        self.eval()

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        y = check_images(y, x.shape, "vgg")
        similar = torch.zeros(len(x), device=x.device)
        weights = (self.get_buffer(name).split(self.channels) for name in ("alpha", "beta"))
        for a, b, alpha, beta in zip(self._maps(x), self._maps(y), *weights, strict=True):
            mean_a, mean_b = a.mean((2, 3)), b.mean((2, 3))
            both = (a * b).mean((2, 3)) - mean_a * mean_b
            variances = a.square().mean((2, 3)) - mean_a.square() + b.square().mean((2, 3)) - mean_b.square()
            texture = (2 * mean_a * mean_b + STABLE) / (mean_a.square() + mean_b.square() + STABLE)
            structure = (2 * both + STABLE) / (variances + STABLE)
            similar = similar + (alpha * texture + beta * structure).sum(1)
        return 1 - similar

    def _maps(self, x: Tensor) -> list[Tensor]:
        """The image itself, and its feature maps."""
        x = check_images(x, x.shape, "vgg")
        return [x, *self.features((x - self.get_buffer("mean")) / self.get_buffer("deviation"))]


def check_images(x: Tensor, shape: torch.Size, network: str) -> Tensor:
    """The images with three channels; raises ValueError unless they have this shape and are large enough."""
    if x.shape != shape:
        raise ValueError(f"both batches must have one shape, got {list(shape)} and {list(x.shape)}")
    if x.dim() != 4 or x.shape[1] not in (1, 3):
        raise ValueError(f"images must be [n, 1 or 3, height, width], got {list(x.shape)}")
    if min(x.shape[2:]) < SMALLEST[network]:
        raise ValueError(f"images must have {SMALLEST[network]} pixels a side or more, got {list(x.shape[2:])}")
    return x.expand(-1, 3, -1, -1).float()


def _colour(values: tuple[float, ...]) -> Tensor:
    return torch.tensor(values).view(1, 3, 1, 1)


def _convolutions(file: Path) -> list[tuple[Tensor, Tensor]]:
    """Weight and bias of each convolution, in the order of the layers."""
    stored = {
        name.removeprefix("features."): value
        for name, value in _state(file).items()
        if not name.startswith("classifier")
    }
    layers = sorted({name.rpartition(".")[0] for name in stored}, key=_number)
    try:
        return [(stored[f"{layer}.weight"].float(), stored[f"{layer}.bias"].float()) for layer in layers]
    except KeyError as error:
        raise ValueError(f"{file} has no {error}: it is neither torchvision's checkpoint nor convK.weight") from None


def _number(layer: str) -> int:
    digits = "".join(c for c in layer if c.isdigit())
    return int(digits) if digits else -1


def _state(file: Path) -> Mapping[str, Tensor]:
    """Tensors by name, from a checkpoint or an ``.npz``; nothing in the file is executed."""
    if not file.is_file():
        raise FileNotFoundError(f"there is no file {file} with the weights of a perceptual distance")
    try:
        if file.suffix == ".npz":
            with np.load(file, allow_pickle=False) as stored:
                return {name: torch.from_numpy(stored[name]) for name in stored}
        found = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # numpy and torch have many for what is no such file
        raise ValueError(f"{file} cannot be read as weights: {type(error).__name__}: {error}") from None
    if not isinstance(found, dict) or not all(isinstance(value, Tensor) for value in found.values()):
        raise ValueError(f"{file} holds no tensors by name, as a checkpoint does")
    return found
