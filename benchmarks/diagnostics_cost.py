"""What a probe costs: step time with one at its default ``every``, by step time without.

    python benchmarks/diagnostics_cost.py [--width 256] [--batch 128] [--blocks 20] [--cpu]

An MLP with seven objectives, under LS (one backward pass per step otherwise, so the worst case) and under CAGrad (seven
anyway). Steps with and without take turns in one process and one thread; the ratio is that of the times of ``every``
steps, the median over blocks of so many, and must stay below 1.05. The other columns are medians over single steps, in
milliseconds. With --cpu they are CPU times, for a machine that is busy otherwise.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median

import torch
from torch import nn

from madamoo import MAdam, diagnostics, solvers

COUNT = 7


class Contender:
    def __init__(self, solver: str, width: int, batch: int, probe: bool, clock: Callable[[], float]) -> None:
        self.clock = clock
        torch.manual_seed(0)
        self.model = nn.Sequential(
            nn.Linear(21, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, COUNT)
        )
        self.x, self.y = torch.randn(batch, 21), torch.randn(batch, COUNT)
        self.opt = MAdam(self.model.parameters(), solver=solvers.get(solver))
        self.probe = diagnostics.attach(self.opt) if probe else None

    def step(self) -> float:
        start = self.clock()
        losses = (self.model(self.x) - self.y).square().mean(0).unbind()
        self.opt.zero_grad()
        self.opt.backward(losses)
        self.opt.step()
        return self.clock() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("solvers", nargs="*", default=["ls", "cagrad"])
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--blocks", type=int, default=20)
    parser.add_argument("--cpu", action="store_true")
    arguments = parser.parse_args()
    clock = time.process_time if arguments.cpu else time.perf_counter
    torch.set_num_threads(1)
    print(f"{'':<10}{'without':>10}{'with':>10}{'measured':>10}{'every':>10}{'ratio':>10}")
    for name in arguments.solvers:
        pair = [Contender(name, arguments.width, arguments.batch, probe, clock) for probe in (False, True)]
        probe = pair[1].probe
        assert probe is not None
        plain, other, measured, ratios = [], [], [], []
        for _ in range(probe.every):  # warm up; the first step is a measured one
            for contender in pair:
                contender.step()
        for _ in range(arguments.blocks):
            steps = [[contender.step() for contender in pair] for _ in range(probe.every)]
            blocks = list(zip(*steps, strict=True))
            ratios.append(sum(blocks[1]) / sum(blocks[0]))
            plain += blocks[0]
            measured.append(blocks[1][0])
            other += blocks[1][1:]
        times = [f"{1e3 * median(record):>10.3f}" for record in (plain, other, measured)]
        print(f"{name:<10}{''.join(times)}{probe.every:>10}{median(ratios):>10.3f}", flush=True)


if __name__ == "__main__":
    main()
