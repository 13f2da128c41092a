"""How long each solver takes for one set of weights, beside TorchJD's where it has the method and is installed.

    python benchmarks/solve_times.py [names of solvers] [--counts 2 7 40] [--seconds 0.5]

Times are medians in microseconds over the same Gram matrices, the two libraries in turn, in one process and one thread.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from torch import Tensor

from madamoo import solvers

# What TorchJD calls the method, and which options it needs. Its NashMTL takes the gradients, not their Gram matrix.
TORCHJD: dict[str, Callable[[Any, int], Any]] = {
    "alignedmtl": lambda jd, count: jd.AlignedMTLWeighting(),
    "cagrad": lambda jd, count: jd.CAGradWeighting(0.4),
    "dualproj": lambda jd, count: jd.DualProjWeighting(),
    "gradvac": lambda jd, count: jd.GradVacWeighting(),
    "imtlg": lambda jd, count: jd.IMTLGWeighting(),
    "ls": lambda jd, count: jd.MeanWeighting(),
    "mgda": lambda jd, count: jd.MGDAWeighting(),
    "nashmtl": lambda jd, count: jd.NashMTL(count).weighting,
    "pcgrad": lambda jd, count: jd.PCGradWeighting(),
    "rlw": lambda jd, count: jd.RandomWeighting(),
    "upgrad": lambda jd, count: jd.UPGradWeighting(),
}


def gradients(count: int) -> list[Tensor]:
    """Rows that hardly conflict, rows that agree, and as many rows as there are dimensions, which conflict much."""
    generator = torch.Generator().manual_seed(count)

    def draw(rows: int, size: int) -> Tensor:
        return torch.randn(rows, size, generator=generator, dtype=torch.float64)

    return [draw(count, 1000), 0.5 * draw(count, 1000) + draw(1, 1000), draw(count, count), draw(count, 2 * count)]


def torchjd_solver(name: str, count: int) -> Callable[[Tensor, Tensor], Any] | None:
    try:
        import torchjd.aggregation as jd

        weighting = TORCHJD[name](jd, count)
    except (ImportError, KeyError):
        return None
    return lambda rows, gram: weighting(rows if name == "nashmtl" else gram)


def madamoo_solver(name: str, count: int) -> Callable[[Tensor, Tensor], Any]:
    solver, losses = solvers.get(name), torch.linspace(0.5, 1.5, count, dtype=torch.float64)
    return lambda rows, gram: solver.solve(losses, gram)


def medians(calls: list[Callable[[Tensor, Tensor], Any]], count: int, seconds: float) -> list[float]:
    """The median time of each call, in microseconds; they take turns until the time is up, three rounds at least."""
    problems = [(rows, rows @ rows.T) for rows in gradients(count)]
    times: list[list[float]] = [[] for _ in calls]
    for call in calls:
        call(*problems[0])
    end = time.perf_counter() + seconds
    rounds = 0
    while rounds < 3 or time.perf_counter() < end:
        rounds += 1
        for rows, gram in problems:
            for call, record in zip(calls, times, strict=True):
                start = time.perf_counter()
                call(rows, gram)
                record.append(time.perf_counter() - start)
    return [1e6 * median(record) for record in times]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="solvers to time; all if none are given")
    parser.add_argument("--counts", nargs="+", type=int, default=[2, 3, 5, 7, 10, 20, 40], help="numbers of objectives")
    parser.add_argument("--seconds", type=float, default=0.5, help="time for each solver and number of objectives")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'microseconds':<20}{'':<9}" + "".join(f"{f'C = {count}':>10}" for count in arguments.counts))
    for name in arguments.names or solvers.available():
        lines: dict[str, list[str]] = {"madamoo": [], "torchjd": [], "ratio": []}
        for count in arguments.counts:
            theirs = torchjd_solver(name, count)
            calls = [madamoo_solver(name, count)] + ([theirs] if theirs is not None else [])
            found = medians(calls, count, arguments.seconds)
            lines["madamoo"].append(f"{found[0]:.0f}")
            if theirs is not None:
                lines["torchjd"].append(f"{found[1]:.0f}")
                lines["ratio"].append(f"{found[1] / found[0]:.1f}")
        for k, (label, cells) in enumerate(lines.items()):
            if cells:
                print(f"{name if k == 0 else '':<20}{label:<9}" + "".join(f"{cell:>10}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
