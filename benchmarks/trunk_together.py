"""The trunk for all objectives together (``torch.vmap``) against one pass an objective: CPU time, one thread.

python benchmarks/trunk_together.py [--rounds 20]
"""

from __future__ import annotations

import argparse
import time

import torch
from problems import Problem
from steps import Arm, ours
from timing import mean_times
from torch import nn
from torch.nn.functional import mse_loss

SHAPES = [(7, 16, 64, 3), (40, 16, 64, 3), (10, 32, 64, 8), (7, 128, 256, 3), (40, 128, 256, 3)]


def _arm(count: int, batch: int, width: int, depth: int, together: bool) -> Arm:
    torch.manual_seed(0)
    sizes = [21, *[width] * depth]
    layers = [m for k in range(depth) for m in (nn.Linear(sizes[k], sizes[k + 1]), nn.ReLU())]
    heads = nn.ModuleList(nn.Linear(width, 1) for _ in range(count))
    y = [torch.randn(batch, 1) for _ in range(count)]
    problem = Problem(nn.Sequential(*layers), heads, torch.randn(batch, 21), y, [mse_loss] * count)
    return ours(problem, "pcgrad", None, features=together)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    print("   C  batch  width  depth  one by one, ms  together, ms  ratio")
    for shape in SHAPES:
        arms = {"one": _arm(*shape, together=False).step, "all": _arm(*shape, together=True).step}
        times = mean_times(arms, rounds, warmup=3, clock=time.process_time)
        one, all_of_them = 1e3 * times["one"], 1e3 * times["all"]
        cells = "{:4}  {:5}  {:5}  {:5}".format(*shape)
        print(f"{cells}  {one:14.2f}  {all_of_them:12.2f}  {all_of_them / one:5.2f}", flush=True)


if __name__ == "__main__":
    main()
