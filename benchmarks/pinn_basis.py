"""What the basis of the metric does to the training loss of small physics-informed networks.

    python benchmarks/pinn_basis.py > results/pinn/basis.txt

Three of PINNacle's problems, a tanh network of 3 x 32, 256 points in the domain, LS, 1,000 full-batch steps, the rate
falling to zero along a cosine. Each number is the geometric mean over the seeds of the mean total loss of the last 20
steps, at the best of the rates for each problem; the last column is the geometric mean over the problems. Seconds are
CPU seconds of all runs of a line.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from madamoo import MSOAP, MAdam, MultiObjective, PreferenceMetric
from madamoo.pinn import cases
from madamoo.relatives import SOAP

PROBLEMS = ("burgers1d", "poisson5d", "ns2d-cavity")
Build = Callable[[list[Tensor], float], Any]
CONTENDERS: dict[str, Build] = {
    "Adam": lambda p, lr: MAdam(p, lr=lr, metric=None),
    "Adam, beta2 0.99": lambda p, lr: MAdam(p, lr=lr, betas=(0.9, 0.99), metric=None),
    "MAdam": lambda p, lr: MAdam(p, lr=lr),
    "SOAP": lambda p, lr: MultiObjective(SOAP(p, lr=lr)),
    "MSOAP": lambda p, lr: MSOAP(p, lr=lr),
    "eigenbasis": lambda p, lr: MAdam(p, lr=lr, metric=PreferenceMetric(basis="eigen")),
    "eigenbasis, then SGD": lambda p, lr: MultiObjective(
        torch.optim.SGD(p, lr=lr, momentum=0.95, dampening=0.95),
        metric=PreferenceMetric(basis="eigen"),
    ),
}


def final_loss(name: str, build: Build, lr: float, seed: int, steps: int) -> float:
    """The total loss, averaged over the last steps of one run."""
    torch.manual_seed(seed)
    case = cases.get(name)
    problem = case.problem(num_domain=256, num_boundary=64, num_initial=64, reference=False)
    network = case.network(width=32, depth=3)
    opt = build(list(network.parameters()), lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, steps)
    last = []
    for step in range(steps):
        opt.zero_grad()
        losses = problem.losses(network)
        opt.backward(losses)
        opt.step()
        schedule.step()
        if step >= steps - 20:
            last.append(sum(float(loss.detach()) for loss in losses.values()))
    return sum(last) / len(last)


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(sum(math.log(max(value, 1e-30)) for value in values) / len(values))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--contenders", nargs="*", default=[*CONTENDERS], choices=[*CONTENDERS])
    parser.add_argument("--rates", nargs="*", type=float, default=[1e-2, 3e-2])
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1])
    parser.add_argument("--steps", type=int, default=1000)
    given = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'':24s} {'  '.join(f'{name:>16s}' for name in PROBLEMS)}    all     seconds", flush=True)
    for label in given.contenders:
        start, cells, best = time.process_time(), [], []
        for name in PROBLEMS:
            means = {
                lr: geometric_mean([final_loss(name, CONTENDERS[label], lr, s, given.steps) for s in given.seeds])
                for lr in given.rates
            }
            lr = min(means, key=means.__getitem__)
            best.append(means[lr])
            cells.append(f"{means[lr]:.1e} at {lr:.0e}")
        seconds = time.process_time() - start
        print(
            f"{label:24s} {'  '.join(f'{c:>16s}' for c in cells)}  {geometric_mean(best):.1e}  {seconds:6.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
