"""What a step costs on two processes: MAdam under DDP beside plain DDP with Adam.

    python benchmarks/processes.py [--rounds 30] [--width 512]

Both processes take all arms by turns. The figures are CPU times of one process, with gloo's own threads in them and
without waiting, and ratios to plain DDP + Adam, which adds the losses up and calls ``backward``: one thread each.
Bytes are those that are given to all-reduce.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import torch
import torch.multiprocessing
from torch import Tensor, nn
from torch import distributed as dist
from torch.nn.parallel import DistributedDataParallel

from madamoo import MAdam, PreferenceMetric

OBJECTIVES, SAMPLES = 3, 64
ARMS = {
    "LS, one average": ("ls", PreferenceMetric, {"rampup": 0}),
    "UW, marginal": ("uw", PreferenceMetric, {"estimator": "marginal", "rampup": 0}),
    "UW, full": ("uw", PreferenceMetric, {"estimator": "full", "rampup": 0}),
    "CAGrad, no metric": ("cagrad", None, {}),
    "CAGrad, full": ("cagrad", PreferenceMetric, {"estimator": "full", "rampup": 0}),
    "CAGrad, separable": ("cagrad", PreferenceMetric, {"estimator": "separable", "rampup": 0}),
}


def network(width: int) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(64, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, OBJECTIVES)
    )


def losses(model: nn.Module, x: Tensor) -> list[Tensor]:
    return [column.square().mean() for column in (model(x) - 1.0).unbind(1)]


def plain(model: nn.Module) -> Callable[[Tensor], None]:
    opt = torch.optim.AdamW(model.parameters(), fused=True)

    def step(x: Tensor) -> None:
        opt.zero_grad()
        torch.stack(losses(model, x)).mean().backward()
        opt.step()

    return step


def ours(model: nn.Module, solver: str, metric: object) -> Callable[[Tensor], None]:
    opt = MAdam(model.parameters(), solver=solver, metric=metric)  # type: ignore[arg-type]

    def step(x: Tensor) -> None:
        opt.zero_grad()
        opt.backward(losses(model, x))
        opt.step()

    return step


def measure(rank: int, file: str, rounds: int, width: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
    arms = {"DDP, Adam": plain(DistributedDataParallel(network(width)))}
    for label, (solver, metric, options) in ARMS.items():
        arms[label] = ours(
            DistributedDataParallel(network(width)), solver, None if metric is None else metric(**options)
        )
    x = torch.randn(SAMPLES, 64, generator=torch.Generator().manual_seed(rank))
    times, sent = dict.fromkeys(arms, 0.0), dict.fromkeys(arms, 0)
    real = dist.all_reduce

    def counted(label: str) -> Callable[..., object]:
        def reduce(tensor: Tensor, *args: object, **options: object) -> object:
            sent[label] += tensor.numel() * tensor.element_size()
            return real(tensor, *args, **options)  # type: ignore[arg-type]

        return reduce

    for turn in range(rounds + 3):
        for label, step in arms.items():
            dist.barrier()
            begin = time.process_time()
            with mock.patch.object(dist, "all_reduce", counted(label)):
                step(x)
            if turn >= 3:
                times[label] += time.process_time() - begin
    if rank == 0:
        base, size = times["DDP, Adam"], 4 * sum(p.numel() for p in network(width).parameters())
        print(f"| arm (width {width}, {OBJECTIVES} objectives) | ms | / DDP + Adam | bytes / parameters' |")
        print("|---|--:|--:|--:|")
        for label, seconds in times.items():
            share = 1.0 if label == "DDP, Adam" else sent[label] / (rounds + 3) / size  # DDP sends in C++, each once
            print(f"| {label} | {1e3 * seconds / rounds:.2f} | {seconds / base:.2f} | {share:.2f} |")
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--width", type=int, default=512)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        torch.multiprocessing.spawn(measure, (str(Path(place, "store")), given.rounds, given.width), 2)  # type: ignore[no-untyped-call]
