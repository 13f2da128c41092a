"""The networks to time: four with a trunk, a head per objective and a batch of random data, and one of physics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from madamoo import pinn
from madamoo.bench.problems.models import lenet, mlp

Loss = Callable[[Tensor, Tensor], Tensor]


@dataclass
class Problem:
    """A network in two parts, and one batch; ``losses`` are its forward pass."""

    trunk: nn.Module
    heads: nn.ModuleList
    x: Tensor
    targets: Sequence[Tensor]
    criteria: Sequence[Loss]

    @property
    def count(self) -> int:
        return len(self.heads)

    @property
    def params(self) -> list[Tensor]:
        return [*self.trunk.parameters(), *self.heads.parameters()]

    def losses(self) -> tuple[list[Tensor], Tensor]:
        """The losses, and the features: where trunk and heads meet."""
        z = self.trunk(self.x)
        parts = zip(self.heads, self.criteria, self.targets, strict=True)
        return [loss(head(z), y) for head, loss, y in parts], z


@dataclass
class Physics:
    """A physics-informed network: all objectives share all of it."""

    network: nn.Module
    declared: pinn.Problem
    trunk: None = None

    @property
    def count(self) -> int:
        return len(self.declared.objectives)

    @property
    def params(self) -> list[Tensor]:
        return list(self.network.parameters())

    def losses(self) -> tuple[list[Tensor], None]:
        return list(self.declared.losses(self.network).values()), None


def _burgers() -> Physics:
    """Burgers' equation with PINNacle's network on an eighth of its points."""
    declared = pinn.Problem(
        pinn.Interval(-1, 1) * pinn.TimeDomain(0, 1),
        lambda f: f.u_t + f.u * f.u_x - 0.01 / torch.pi * f.u_xx,
        {"initial": pinn.IC(lambda x: -torch.sin(torch.pi * x[:, :1])), "ends": pinn.DirichletBC(0.0)},
        num_domain=1024,
        num_boundary=256,
        num_initial=256,
    )
    return Physics(pinn.FNN([2, *[100] * 5, 1]), declared)


def _lenet() -> Problem:
    net = lenet.build((1, 28, 28), (10, 10))
    y = [torch.randint(10, (256,)) for _ in range(2)]
    trunk = nn.Sequential(net.features, net.trunk)  # type: ignore[arg-type]
    return Problem(trunk, net.heads, torch.randn(256, 1, 28, 28), y, [F.cross_entropy] * 2)  # type: ignore[arg-type]


def _sarcos() -> Problem:
    net = mlp.build((21,), (1,) * 7)
    y = [torch.randn(512, 1) for _ in range(7)]
    return Problem(net.trunk, net.heads, torch.randn(512, 21), y, [F.mse_loss] * 7)  # type: ignore[arg-type]


def _segnet() -> Problem:
    """Segmentation, depth and normals of images, as on NYUv2, but small."""
    widths = (3, 16, 32, 64, 32, 16)
    layers: list[nn.Module] = []
    for k, (before, after) in enumerate(pairwise(widths)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.GroupNorm(4, after), nn.ReLU()]
        layers += [nn.MaxPool2d(2)] if k < 2 else [nn.Upsample(scale_factor=2)] if k > 2 else []
    sizes = (13, 1, 3)
    heads = nn.ModuleList(nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.Conv2d(16, n, 1)) for n in sizes)
    y = [torch.randint(13, (8, 48, 48)), torch.randn(8, 1, 48, 48), torch.randn(8, 3, 48, 48)]
    criteria = [F.cross_entropy, F.l1_loss, F.mse_loss]
    return Problem(nn.Sequential(*layers), heads, torch.randn(8, 3, 48, 48), y, criteria)


class _Blocks(nn.Module):
    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.blocks(x).mean(1)


def _transformer() -> Problem:
    heads = nn.ModuleList(nn.Sequential(nn.Linear(128, 64), nn.GELU(), nn.Linear(64, 5)) for _ in range(4))
    y = [torch.randint(5, (16,)) for _ in range(4)]
    return Problem(_Blocks(128, 3), heads, torch.randn(16, 32, 128), y, [F.cross_entropy] * 4)


PROBLEMS: dict[str, Callable[[], Problem | Physics]] = {
    "LeNet": _lenet,
    "SARCOS MLP": _sarcos,
    "SegNet": _segnet,
    "transformer": _transformer,
    "PINN": _burgers,
}


def build(name: str) -> Problem | Physics:
    torch.manual_seed(0)
    return PROBLEMS[name]()
