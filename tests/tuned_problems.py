"""Small problems for ``madamoo.tune`` whose best answer is known."""

import hashlib

import torch

from madamoo.tuning import Setup


def two_sizes(seed):
    """Two wishes that differ, one with a loss 10,000 times larger; the number to judge by counts both alike.

    Its best is half-way, where the number is |a - b|^2 / 2 = 4; summed losses end at b, where it is 8.
    """
    a, b = torch.ones(8) / 2, -torch.ones(8) / 2
    w = torch.nn.Parameter(3 * torch.randn(8))

    def losses():
        return {"small": (w - a).square().sum(), "large": 1e4 * (w - b).square().sum()}

    def validate():
        return (w - a).square().sum() + (w - b).square().sum()

    return Setup([w], losses, validate, steps=60)


def rotated(seed):
    """A matrix seen through two ill-conditioned rotations, half of it per objective: Adam's own basis is a bad one."""
    fixed = torch.Generator().manual_seed(7)
    left, right = (torch.linalg.qr(torch.randn(8, 8, generator=fixed))[0] for _ in range(2))
    left, right = left * torch.logspace(0, -1, 8), right * torch.logspace(0, -1, 8)
    w = torch.nn.Parameter(torch.randn(8, 8))

    def losses():
        seen = (left.T @ w @ right).square()
        return [seen[:, ::2].sum(), seen[:, 1::2].sum()]

    def validate():
        return float(torch.stack(losses()).sum())

    return Setup([w], losses, validate, 80, schedule=lambda opt: torch.optim.lr_scheduler.CosineAnnealingLR(opt, 80))


def _trivial(validate, **options):
    def build(seed):
        w = torch.nn.Parameter(torch.randn(2))
        return Setup([w], lambda: [(w[0] - 1).square(), (w[1] + 1).square()], lambda: validate(seed, w), 4, **options)

    return build


by_seed = _trivial(lambda seed, w: float(seed % 7))
"""The number depends on the seed alone: all are level, exactly."""


def _noise(seed, w):
    digest = hashlib.sha256(f"{seed} {w.tolist()}".encode()).digest()
    return torch.randn(1, generator=torch.Generator().manual_seed(int.from_bytes(digest[:7], "big")))


noise = _trivial(_noise)
"""Each run draws a number of its own: all are level in distribution."""

accuracy = _trivial(lambda seed, w: -float((w.detach() - torch.tensor([1.0, -1.0])).norm()), higher_is_better=True)
"""Higher is better."""
