"""What the averages take, what quality they buy, and what rounding costs.

    python benchmarks/memory.py state                           # bytes of each estimator and dtype, in buffers
    python benchmarks/memory.py records results/memory results/core --rate 6e-3   # quality beside bytes, from records
    python benchmarks/memory.py rounding [--data-dir DIR]       # error of d / M by rounding, on SARCOS

A buffer is as large as the parameters. Nothing here measures time.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path

import torch

from madamoo import MAdam, PreferenceMetric, solvers
from madamoo.bench import get
from madamoo.bench.problems import build_model, data_root
from madamoo.bench.runs import read_records

ESTIMATORS = ("collapsed", "diagonal", "full", "separable")  # pair takes what full does
DTYPES = (None, torch.bfloat16, torch.float8_e5m2)
CASES = {  # the networks of the lab: model, shape of the input, objectives
    "sarcos-small": ("mlp:depth=3:width=256", (21,), 7),
    "mulan/oes10": ("mlp:depth=2:width=128", (298,), 16),
    "four-digits": ("mlp:depth=2:width=128", (1, 28, 28), 40),
}


def state() -> None:
    print("| network | C | parameters | dtype |", " | ".join(ESTIMATORS), "|")
    print("| --- " * (4 + len(ESTIMATORS)) + "|")
    for name, (spec, inputs, count) in CASES.items():
        model = build_model(spec, inputs, (1,) * count)
        buffer = 4 * sum(p.numel() for p in model.parameters())
        for dtype in DTYPES:
            sizes = [
                PreferenceMetric(e, dtype=dtype).state_bytes(model.trunk, count, model.heads, static=e == "collapsed")
                for e in ESTIMATORS
            ]
            shown = " | ".join(f"{size / buffer:.2f}" for size in sizes)
            print(
                f"| {name} | {count} | {buffer // 4:,} | {str(dtype or 'float32').removeprefix('torch.')} | {shown} |"
            )


def records(roots: list[Path], rate: float | None) -> None:
    """The primary metric on test data, seed by seed; a line ends where its runs do."""
    tables = defaultdict(lambda: defaultdict(dict))
    for record in read_records(*roots):
        config = record["config"]
        if record["status"] == "finished" and rate in (None, config["lr"]):
            table = tables[config["benchmark"], config["solver"], config["lr"]]
            table[config["optimizer"]][config["seed"]] = record
    for (benchmark, solver, lr), table in sorted(tables.items()):
        if "adam" not in table or not any("estimator" in name for name in table):
            continue
        metric = get(benchmark).primary
        better = "higher" if metric.higher_is_better else "lower"
        seeds = sorted({seed for runs in table.values() for seed in runs})
        sizes = {name: max(r["cost"]["state_bytes"] for r in runs.values()) for name, runs in table.items()}
        print(f"\n{benchmark}, {solver}, rate {lr:g}: {metric.name}, {better} is better\n")
        print("| optimizer |", "".join(f" seed {seed} |" for seed in seeds), "state, KiB | of Adam's |")
        print("| --- " * (3 + len(seeds)) + "|")
        for name, runs in sorted(table.items(), key=lambda item: sizes[item[0]]):
            shown = [f" {runs[s]['metrics'][metric.name]:.2f} |" if s in runs else " |" for s in seeds]
            print(f"| {name} |", "".join(shown), f"{sizes[name] / 1024:,.0f} | {sizes[name] / sizes['adam']:.2f} |")


def rounding(root: Path | None, steps: int = 400) -> None:
    """Two metrics on the same gradients, one rounded: how far its d / M is from the other's after so many steps."""
    torch.set_num_threads(1)
    problem = get("sarcos-small")
    profile = problem.profiles["cpu"]
    train = problem.load(root, profile, 0).train
    print("| estimator | dtype | median error, % | 99 % of coordinates below, % |\n| --- | --- | --- | --- |")
    for estimator in ("separable", "full"):
        for dtype in DTYPES[1:]:
            torch.manual_seed(0)
            model = build_model(profile.model, (21,), (1,) * 7)
            first, second = (
                MAdam(model.parameters(), lr=3e-3, solver=solvers.RLW(), metric=PreferenceMetric(estimator, dtype=d))
                for d in (None, dtype)
            )
            generator = torch.Generator().manual_seed(0)
            for _ in range(steps):
                batch = train[torch.randint(len(train), (128,), generator=generator)]
                images = []
                for opt in (second, first):  # the second only looks: what it would do is undone
                    before = [p.detach().clone() for p in model.parameters()]
                    opt.zero_grad()
                    opt.backward(problem.losses(model, batch))
                    images.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
                    opt.step()
                    if opt is second:
                        with torch.no_grad():
                            for p, old in zip(model.parameters(), before, strict=True):
                                p.copy_(old)
            known = images[1] != 0
            error = 100.0 * (images[0][known] / images[1][known] - 1.0).abs()
            middle, most = error.quantile(torch.tensor([0.5, 0.99])).tolist()
            print(f"| {estimator} | {str(dtype).removeprefix('torch.')} | {middle:.1f} | {most:.1f} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("state", "records", "rounding"))
    parser.add_argument("roots", nargs="*", type=Path)
    parser.add_argument("--rate", type=float)
    parser.add_argument("--data-dir", type=Path)
    given = parser.parse_args()
    if given.what == "state":
        state()
    elif given.what == "records":
        records(given.roots, given.rate)
    else:
        rounding(data_root(given.data_dir))
