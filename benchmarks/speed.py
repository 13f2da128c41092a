"""How long a training step takes: plain Adam, MAdam, TorchJD, and the least that it can take.

    python benchmarks/speed.py [--threads 2] [--rounds 60] [--cpu] [--only "SARCOS MLP"] [--out results/speed]

All arms take turns in one process, in random order, and the figures are ratios of their means. Ramp-ups are over
(``rampup=0``). "bare" is a forward pass, one backward pass per objective and Adam's step, and nothing made of the rows.
With --cpu the times are CPU times, for a machine that is busy otherwise: give --threads 1 then, since a thread that
waits for another counts as busy. Writes a table (.md) and a plot (.svg).
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import metric_alone
import torch
from problems import PROBLEMS, build
from speed_plot import draw
from steps import SOLVERS, Arm, arms
from timing import describe_machine, mean_times, peak_bytes

MB = 1e6


def time_steps(name: str, rounds: int, clock: Callable[[], float]) -> tuple[dict[str, float], dict[str, Arm]]:
    found = dict(arms(name))
    return mean_times({label: arm.step for label, arm in found.items()}, rounds, warmup=3, clock=clock), found


def _ratio(times: Mapping[str, float], label: str, other: str) -> str:
    return f"{times[label] / times[other]:.2f}" if other in times and other != label else ""


def _best_peer(times: Mapping[str, float], solver: str) -> str:
    """The fastest of TorchJD's ways to do the same."""
    return min((k for k in times if k.startswith(f"{solver} TorchJD")), key=times.__getitem__, default="")


def steps_table(times: Mapping[str, float], found: Mapping[str, Arm]) -> list[str]:
    """One row per arm: its time, and by plain Adam, the same solver with Adam, the bare passes, the best of TorchJD."""
    lines = [
        "| arm | ms | / plain | / same with Adam | / bare | / best TorchJD | held MB | peak MB |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for label, seconds in times.items():
        solver = label.split()[0]
        each_row = solver not in ("plain", "bare", "ls", "uw") and "TorchJD" not in label
        cells = [
            label,
            f"{1e3 * seconds:.2f}",
            _ratio(times, label, "plain"),
            _ratio(times, label, f"{solver} Adam") if "TorchJD" not in label else "",
            _ratio(times, label, "bare") if each_row else "",
            _ratio(times, label, _best_peer(times, solver)) if each_row else "",
            f"{found[label].held_bytes() / MB:.2f}",
            f"{peak_bytes(found[label].step) / MB:.2f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def metric_table(found: list[metric_alone.Found]) -> list[str]:
    lines = [
        "| estimator | C | parameters | averages | ms | / fused Adam | / copy | / copy with rows | held MB | peak MB |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for f in found:
        c = f.case
        cells = [c.estimator, str(c.count), f"{c.size:.0e}", str(c.averages), f"{1e3 * f.metric:.2f}"]
        cells += [f"{f.metric / other:.2f}" for other in (f.adam, f.copy, f.copy_all)]
        cells += [f"{f.held / MB:.1f}", f"{f.peak / MB:.1f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=60, help="rounds of whole steps; a fifth of them for the metric")
    parser.add_argument("--only", nargs="*", default=[*PROBLEMS, "metric"], help="networks, or 'metric'")
    parser.add_argument("--cpu", action="store_true", help="CPU time in place of elapsed time")
    parser.add_argument("--out", type=Path, default=Path("results/speed"))
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    clock = time.process_time if given.cpu else time.perf_counter
    command = shlex.join(["python", "benchmarks/speed.py", *sys.argv[1:]])
    kind = "CPU" if given.cpu else "elapsed"
    text = ["# Speed", "", f"`{command}`: {describe_machine()}, {kind} time, {given.rounds} rounds."]
    text += ["Written by the command; what it means is in [docs/performance.md](../docs/performance.md)."]
    every: dict[str, dict[str, float]] = {}
    for name in (n for n in PROBLEMS if n in given.only):
        times, found = time_steps(name, given.rounds, clock)
        problem = build(name)
        size = sum(p.numel() for p in problem.params)
        text += ["", f"## {name}: C = {problem.count}, {size:,} parameters", "", *steps_table(times, found)]
        every[name] = times
        print("\n".join(text[-len(times) - 4 :]), flush=True)
    if "metric" in given.only:
        alone = [metric_alone.measure(case, max(given.rounds // 5, 3), clock) for case in metric_alone.cases()]
        text += ["", "## The metric alone", "", *metric_table(alone)]
        print("\n".join(text[-len(alone) - 4 :]), flush=True)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.with_suffix(".md").write_text("\n".join(text) + "\n", encoding="utf-8")
    if every:
        draw(every, SOLVERS, given.out.with_suffix(".svg"))


if __name__ == "__main__":
    main()
