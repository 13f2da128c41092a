"""Which solver, optimizer and rate for two tasks on one trunk? ``madamoo tune examples/tuning.py`` answers.

One task predicts a length in metres, the other a length in millimetres: its loss is a million times larger, and summed
losses train the second task alone. ``python examples/tuning.py`` runs a small search in some seconds.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import madamoo
from madamoo.tuning import Setup


class Network(nn.Module):
    """A trunk and two heads; nothing in it knows of madamoo."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(6, 16), nn.Tanh())
        self.heads = nn.ModuleList([nn.Linear(16, 1), nn.Linear(16, 1)])

    def forward(self, x: Tensor) -> list[Tensor]:
        z = self.trunk(x)
        return [head(z).squeeze(-1) for head in self.heads]


def lengths(x: Tensor) -> list[Tensor]:
    return [torch.sin(x[:, 0] + x[:, 1]), 1000 * torch.sin(x[:, 2] * x[:, 3])]


def build(seed: int) -> Setup:
    """One training run: the seed decides on weights and batches; validation data are the same for all seeds."""
    model = Network()  # torch's generator already begins at the seed
    generator = torch.Generator().manual_seed(seed)
    held_out = torch.randn(200, 6, generator=torch.Generator().manual_seed(1234))

    def losses() -> dict[str, Tensor]:
        x = torch.randn(32, 6, generator=generator)
        pairs = zip(model(x), lengths(x), strict=True)
        return {name: nn.functional.mse_loss(y, t) for name, (y, t) in zip(("metres", "mm"), pairs, strict=True)}

    def validate() -> float:
        """The mean over the tasks of the share of variance that is not explained."""
        found = zip(model(held_out), lengths(held_out), strict=True)
        return float(sum((y - t).square().mean() / t.var() for y, t in found) / 2)

    return Setup(model, losses, validate, steps=100)


def main() -> None:
    found = madamoo.tune(build, budget=8, seeds=5, solvers=["ls", "uw", "imtl"], optimizers=["adam", "soap"])
    print(found)
    print("another choice than Adam with LS is better beyond chance:", found.beats_adam)


if __name__ == "__main__":
    main()
