"""Which metric under a preference that is drawn for each step? One network for every preference, as in the demo.

    python benchmarks/front_metrics.py > results/front_metrics.txt

PaMaL on the two-digit images, a network of 2 x 12 units, one preference drawn per step. Each line has the hypervolume
on test data, the mean and the seeds, at the rate with the best mean hypervolume on validation data. Seconds are CPU
seconds of all runs of a line.
"""

from __future__ import annotations

import argparse
from statistics import fmean

import torch

from madamoo import MSOAP, MAdam, MultiObjective, PreferenceMetric
from madamoo.demo.contest import BUILD
from madamoo.demo.digits import FRONT_RATES, train_front

MOMENTUM = {"momentum": 0.95, "dampening": 0.95}
# Beside those of the demo, whose names are Adam, MAdam, MSOAP and SOAP.
BUILD |= {
    "Adam, beta2 0.9": lambda p, lr, solver: MAdam(p, lr=lr, betas=(0.9, 0.9), solver=solver, metric=None),
    "MSOAP, separable": lambda p, lr, solver: MSOAP(p, lr=lr, solver=solver, estimator="separable"),
    "MSOAP, full": lambda p, lr, solver: MSOAP(p, lr=lr, solver=solver, estimator="full"),
    "eigenbasis": lambda p, lr, solver: MAdam(p, lr=lr, solver=solver, metric=PreferenceMetric(basis="eigen")),
    "eigenbasis, marginal": lambda p, lr, solver: MAdam(
        p, lr=lr, solver=solver, metric=PreferenceMetric("marginal", basis="eigen")
    ),
    "eigenbasis, then SGD": lambda p, lr, solver: MultiObjective(
        torch.optim.SGD(p, lr=lr, **MOMENTUM), solver, PreferenceMetric(basis="eigen")
    ),
}
CONTENDERS = (
    "Adam",
    "Adam, beta2 0.9",
    "MAdam",
    "SOAP",
    "MSOAP",
    "MSOAP, separable",
    "MSOAP, full",
    "eigenbasis",
    "eigenbasis, marginal",
    "eigenbasis, then SGD",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--contenders", nargs="*", default=[*CONTENDERS], choices=[*CONTENDERS])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=8)
    given = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{given.seeds} seeds, {given.epochs} epochs, rates {FRONT_RATES}")
    for label in given.contenders:
        runs = {lr: [train_front(label, lr, s, given.epochs) for s in range(given.seeds)] for lr in FRONT_RATES}
        lr = max(runs, key=lambda rate: fmean(run.score for run in runs[rate]))
        found = [run.hypervolume for run in runs[lr]]
        seconds = sum(run.seconds for both in runs.values() for run in both)
        each = " ".join(f"{value:.3f}" for value in found)
        print(f"{label:22s} {fmean(found):.3f} at {lr:.0e}   {each}   {seconds:5.0f} s", flush=True)


if __name__ == "__main__":
    main()
