"""Replicas of a model on several processes (DistributedDataParallel), with labels that some of them lack.

``torchrun --nproc-per-node 2 --max-restarts 3 examples/ddp.py`` trains for a few seconds and prints losses and weights.
A process that dies takes the others with it; torchrun starts all of them again, and they go on from the checkpoint.
``python examples/ddp.py`` does the same in one process, with the same numbers.
"""

from __future__ import annotations

import argparse
import os
from datetime import timedelta
from pathlib import Path

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.nn.parallel import DistributedDataParallel

from madamoo import MAdam, solvers

STEPS, SAVE_EVERY, MICRO_BATCHES, SAMPLES = 60, 10, 2, 64
OBJECTIVES = ("sum", "largest")


class Network(nn.Module):
    """A trunk and a head for each objective."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
        self.heads = nn.ModuleDict({name: nn.Linear(64, 1) for name in OBJECTIVES})

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        z = self.trunk(x)
        return {name: head(z) for name, head in self.heads.items()}


def batch(step: int, rank: int, count: int) -> list[tuple[Tensor, dict[str, Tensor]]]:
    """The micro-batches of this process: a part of a batch that depends on the step alone. NaN is no label."""
    x = torch.randn(SAMPLES, 16, generator=torch.Generator().manual_seed(step))
    labels = {"sum": x.sum(1) / 4, "largest": torch.where(x[:, 0] > 0.5, x.amax(1), torch.nan)}
    here = slice(rank, None, count)
    parts = [value[here].chunk(MICRO_BATCHES) for value in (x, *labels.values())]
    return [(inputs, dict(zip(OBJECTIVES, rest, strict=True))) for inputs, *rest in zip(*parts, strict=True)]


def losses(model: nn.Module, x: Tensor, labels: dict[str, Tensor]) -> tuple[dict[str, Tensor | None], dict[str, int]]:
    """Of each objective the mean over the samples that have its label, and how many these are."""
    predictions, found, counts = model(x), {}, {}
    for name, label in labels.items():
        known = ~label.isnan()
        counts[name] = int(known.sum())
        errors = (predictions[name][:, 0] - label)[known].square()
        found[name] = errors.mean() / MICRO_BATCHES if counts[name] else None
    return found, counts


def main(folder: Path | None, steps: int) -> None:
    rank, count = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if count > 1:
        dist.init_process_group("gloo", timeout=timedelta(minutes=5))
    torch.manual_seed(0)
    network = Network()
    model = DistributedDataParallel(network) if count > 1 else network
    opt = MAdam(model.parameters(), lr=3e-3, solver=solvers.CAGrad(), objectives=OBJECTIVES)
    file, begin = None if folder is None else folder / "checkpoint.pt", 0
    if file is not None and file.exists():
        state = torch.load(file, weights_only=True)
        network.load_state_dict(state["network"])
        opt.load_state_dict(state["optimizer"])
        begin = state["step"]
    for step in range(begin, steps):
        opt.zero_grad()
        *first, last = batch(step, rank, count)
        with opt.no_sync():  # gradients wait for the last micro-batch, which sends them
            for x, labels in first:
                found, counts = losses(model, x, labels)
                opt.backward(found, counts=counts)
        found, counts = losses(model, *last)
        opt.backward(found, counts=counts)
        opt.step()
        if file is not None and rank == 0 and (step + 1) % SAVE_EVERY == 0:
            state = {"network": network.state_dict(), "optimizer": opt.state_dict(), "step": step + 1}
            torch.save(state, file.with_suffix(".part"))
            file.with_suffix(".part").replace(file)  # whole, or not there
    if rank == 0:
        for name, weight in opt.weights_by_name.items():
            print(f"{name}: loss {opt.losses_by_name[name]:.4f}, weight {weight:.4f}")
    if count > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="where the checkpoint is kept; default: nowhere")
    parser.add_argument("--steps", type=int, default=STEPS)
    arguments = parser.parse_args()
    main(arguments.folder, arguments.steps)
