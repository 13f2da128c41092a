"""A model in shards on several processes (``fully_shard``), with checkpoints that survive the death of a process.

``torchrun --nproc-per-node 2 --max-restarts 3 examples/fsdp.py --folder run`` trains for a few seconds and prints
losses and weights. If a process dies, torchrun starts all of them again, and they go on from the last checkpoint that
is whole; on another number of processes, too.
"""

from __future__ import annotations

import argparse
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch import distributed as dist
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard

from madamoo import MAdam, solvers

STEPS, SAVE_EVERY, SAMPLES = 60, 10, 64
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


def losses(network: nn.Module, step: int, rank: int, count: int) -> dict[str, Tensor]:
    """Those of this process' part of a batch that depends on the step alone."""
    x = torch.randn(SAMPLES, 16, generator=torch.Generator().manual_seed(step))[rank::count]
    predictions, labels = network(x), {"sum": x.sum(1) / 4, "largest": x.amax(1)}
    return {name: (predictions[name][:, 0] - labels[name]).square().mean() for name in OBJECTIVES}


def build() -> tuple[nn.Module, MAdam]:
    torch.manual_seed(0)
    network = Network()
    for layer in (network.trunk[0], network.trunk[2], *network.heads.values()):
        fully_shard(layer)
    fully_shard(network)
    return network, MAdam(network.parameters(), lr=3e-3, solver=solvers.UW(), objectives=OBJECTIVES)


def save(folder: Path, step: int, network: nn.Module, opt: MAdam) -> None:
    """Into a folder that gets its name once all of it is written: a checkpoint is whole, or not there."""
    part, done = folder / f"{step:06d}.part", folder / f"{step:06d}"
    if dist.get_rank() == 0:
        shutil.rmtree(part, ignore_errors=True)
    dist.barrier()
    model, optimizer = get_state_dict(network, opt)
    dcp.save({"model": model, "optimizer": optimizer, "step": step}, checkpoint_id=part)
    if dist.get_rank() == 0:
        part.rename(done)


def load(folder: Path, network: nn.Module, opt: MAdam) -> int:
    """Take on the last checkpoint, if there is one, and tell how many steps it has."""
    found = [sorted(p.name for p in folder.iterdir() if p.suffix != ".part") if folder.exists() else []]
    dist.broadcast_object_list(found)  # all load the same
    if not found[0]:
        return 0
    model, optimizer = get_state_dict(network, opt)
    state: dict[str, Any] = {"model": model, "optimizer": optimizer, "step": 0}
    dcp.load(state, checkpoint_id=folder / found[0][-1])
    set_state_dict(network, opt, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    return int(state["step"])


def main(folder: Path | None, steps: int) -> None:
    dist.init_process_group("gloo", timeout=timedelta(minutes=5))
    rank, count = dist.get_rank(), dist.get_world_size()
    network, opt = build()
    for step in range(0 if folder is None else load(folder, network, opt), steps):
        opt.zero_grad()
        opt.backward(losses(network, step, rank, count))
        opt.step()
        if folder is not None and (step + 1) % SAVE_EVERY == 0:
            save(folder, step + 1, network, opt)
    if rank == 0:
        for name, weight in opt.weights_by_name.items():
            print(f"{name}: loss {opt.losses_by_name[name]:.6f}, weight {weight:.6f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="where checkpoints are kept; default: nowhere")
    parser.add_argument("--steps", type=int, default=STEPS)
    arguments = parser.parse_args()
    main(arguments.folder, arguments.steps)
