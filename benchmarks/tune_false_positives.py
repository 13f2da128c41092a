"""How often `madamoo tune` calls something better than Adam where nothing is: many searches among equals.

The validation number is noise: drawn again for each run from its seed and its final parameters, so that all contenders
have the same distribution, whatever their solver, optimizer and rate.

    OMP_NUM_THREADS=1 python benchmarks/tune_false_positives.py --searches 200 > results/tune.txt
"""

from __future__ import annotations

import argparse
import hashlib
import math
import shlex
import sys

import torch
from torch import Tensor

import madamoo
from madamoo.tuning import Setup

NOISES = {"normal": lambda x: x, "lognormal": math.exp}


def noisy(noise: str):
    """A problem in which nothing can be better than anything else."""

    def build(seed: int) -> Setup:
        w = torch.nn.Parameter(torch.randn(2))

        def losses() -> list[Tensor]:
            return [(w[0] - 1).square(), (w[1] + 1).square()]

        def validate() -> float:
            digest = hashlib.sha256(f"{seed} {w.tolist()}".encode()).digest()
            draw = torch.randn(1, generator=torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1))
            return NOISES[noise](float(draw))

        return Setup([w], losses, validate, steps=4)

    return build


def interval(hits: int, count: int) -> str:
    """A share with its 95 % interval (Wilson's), in per cent."""
    z, share = 1.96, hits / count
    middle = (share + z**2 / (2 * count)) / (1 + z**2 / count)
    half = z * math.sqrt(share * (1 - share) / count + z**2 / (4 * count**2)) / (1 + z**2 / count)
    return f"{100 * share:.1f} % [{100 * (middle - half):.1f}, {100 * (middle + half):.1f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--searches", type=int, default=200)
    parser.add_argument("--budget", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--finalists", type=int, default=3)
    parser.add_argument("--noise", nargs="+", choices=NOISES, default=["normal"])
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(f"# OMP_NUM_THREADS=1 python {shlex.join(sys.argv)}", flush=True)
    for noise in args.noise:
        better = apart = naive = 0
        for k in range(args.searches):
            found = madamoo.tune(
                noisy(noise), budget=args.budget, seeds=args.seeds, finalists=args.finalists, seed=1000 * k
            )
            better += found.beats_adam
            apart += any(f.comparison.distinct for f in found.finalists)
            naive += any(sum(f.values) < sum(found.baseline.values) for f in found.finalists)
            print(f"{noise} {k + 1}/{args.searches}: better {better}, apart {apart}", file=sys.stderr, flush=True)
        n = args.searches
        print(f"{noise} noise, {n} searches of {args.budget} trials, {args.finalists} finalists, {args.seeds} seeds:")
        print(f"  called better than Adam beyond chance: {better} of {n}, {interval(better, n)}")
        print(f"  told apart from Adam, better or worse: {apart} of {n}, {interval(apart, n)}  (at most 5 % wanted)")
        print(f"  a finalist with a better mean than Adam's, which is no evidence: {naive} of {n}", flush=True)


if __name__ == "__main__":
    main()
