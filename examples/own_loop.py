"""A network of your own, in a loop of your own: accumulation, bfloat16, missing labels, a checkpoint that resumes.

``python examples/own_loop.py`` trains for a few seconds in a temporary folder, stops half-way, goes on from the
checkpoint, and prints the errors and the weights.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from madamoo import MAdam, PreferenceMetric, solvers

STEPS, MICRO_BATCHES = 300, 2
OBJECTIVES = ("sum", "largest", "sign")


class Network(nn.Module):
    """A trunk and a head for each objective; nothing in it knows of madamoo."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.heads = nn.ModuleDict({name: nn.Linear(64, 1) for name in OBJECTIVES})

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        z = self.trunk(x)
        return {name: head(z).squeeze(-1) for name, head in self.heads.items()}


def batches(count: int, seed: int) -> Iterator[tuple[Tensor, dict[str, Tensor]]]:
    """Inputs, and labels by objective; every fourth batch has none for "sign"."""
    generator = torch.Generator().manual_seed(seed)
    for step in range(count):
        x = torch.randn(64, 16, generator=generator)
        labels = {"sum": x.sum(1) / 4, "largest": x.amax(1), "sign": (x[:, 0] * x[:, 1] > 0).float()}
        if step % 4 == 3:
            del labels["sign"]
        yield x, labels


def losses(network: Network, x: Tensor, labels: dict[str, Tensor]) -> dict[str, Tensor]:
    with torch.autocast("cpu", torch.bfloat16):
        predictions = network(x)
    criteria = {"sum": nn.MSELoss(), "largest": nn.MSELoss(), "sign": nn.BCEWithLogitsLoss()}
    return {name: criteria[name](predictions[name].float(), label) for name, label in labels.items()}


def build() -> tuple[Network, MAdam, torch.optim.lr_scheduler.LRScheduler]:
    torch.manual_seed(0)
    network = Network()
    metric = PreferenceMetric(rampup=0.1, total_steps=STEPS)
    opt = MAdam(network.parameters(), lr=3e-3, solver=solvers.CAGrad(), metric=metric, objectives=OBJECTIVES)
    return network, opt, torch.optim.lr_scheduler.CosineAnnealingLR(opt, STEPS)


def train(checkpoint: Path, until: int) -> tuple[Network, MAdam]:
    """Train up to step ``until``, from the checkpoint if there is one, and leave one behind."""
    network, opt, scheduler = build()
    parts: dict[str, Any] = {"network": network, "opt": opt, "scheduler": scheduler}
    done = 0
    if checkpoint.exists():
        state = torch.load(checkpoint, weights_only=True)
        done = state.pop("done")
        for name, part in parts.items():
            part.load_state_dict(state[name])
    for step in range(done, until):
        opt.zero_grad()
        for x, labels in batches(MICRO_BATCHES, seed=step):
            opt.backward({name: loss / MICRO_BATCHES for name, loss in losses(network, x, labels).items()})
        opt.step()
        scheduler.step()
    torch.save({"done": until, **{name: part.state_dict() for name, part in parts.items()}}, checkpoint)
    return network, opt


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Path(folder, "checkpoint.pt")
        train(checkpoint, STEPS // 2)
        network, opt = train(checkpoint, STEPS)
        whole, _ = train(Path(folder, "another.pt"), STEPS)
    same = all(torch.equal(a, b) for a, b in zip(network.parameters(), whole.parameters(), strict=True))
    with torch.no_grad():
        ((x, labels),) = batches(1, seed=STEPS)
        for name, loss in losses(network, x, labels).items():
            print(f"{name:8} loss {float(loss):.4f}")
    assert opt.weights is not None and opt.objectives is not None
    print("weights of the last step:", dict(zip(opt.objectives, opt.weights.tolist(), strict=True)))
    print("stopped and resumed, the same to the last bit:", same)


if __name__ == "__main__":
    main()
