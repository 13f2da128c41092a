"""What a step costs compared with another, and what the import costs: a quick look that nothing has become much slower.

    python benchmarks/ratios.py [--rounds 40]

Least CPU times of whole training steps on one small network, taken by turns in one thread. "most" is what each ratio
was at most when this was written, with a wide margin; speed.py has the full tables.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

import torch
from torch import Tensor, nn

from madamoo import MultiObjective, PreferenceMetric, solvers

COUNT = 4
RATIOS = (
    ("ls metric", "ls", 1.7),
    ("mgda", "bare", 2.2),
    ("mgda metric", "mgda", 1.7),
    ("uw metric", "uw", COUNT + 0.5),  # C passes in place of one
    ("mgda features", "mgda", 1.0),
)
IMPORT = """
import time, torch
start = time.perf_counter()
import madamoo
print(time.perf_counter() - start)
"""


class Way:
    """One way to train a small network; without a solver, the bare passes."""

    def __init__(
        self, solver: str | None = None, metric: PreferenceMetric | None = None, *, features: bool = False
    ) -> None:
        torch.manual_seed(0)
        self.trunk = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU())
        self.heads = nn.ModuleList(nn.Linear(256, 1) for _ in range(COUNT))
        self.x = torch.randn(256, 32)
        self.params = [*self.trunk.parameters(), *self.heads.parameters()]
        self.adam = torch.optim.AdamW(self.params, lr=1e-4, fused=True)
        self.features = features
        self.opt: MultiObjective | None = None
        if solver is not None:
            chosen = solvers.get(solver)
            self.opt = MultiObjective(self.adam, chosen, metric, gram="features" if features else "parameters")

    def step(self) -> None:
        z = self.trunk(self.x)
        losses = [(head(z) - i).square().mean() for i, head in enumerate(self.heads)]
        self.adam.zero_grad()
        if self.opt is None:
            self._pass(losses)
            self.adam.step()
        else:
            self.opt.zero_grad()
            self.opt.backward(losses, features=z if self.features else None)
            self.opt.step()

    def _pass(self, losses: list[Tensor]) -> None:
        for i, loss in enumerate(losses):
            rows = torch.autograd.grad(loss, self.params, retain_graph=i + 1 < COUNT, allow_unused=True)
        for p, row in zip(self.params, rows, strict=True):
            p.grad = torch.zeros_like(p) if row is None else row


def least_times(rounds: int) -> dict[str, float]:
    """The least CPU time of a step in many rounds: what else the machine does can only add to it."""
    ways = {
        "bare": Way(),
        "ls": Way("ls"),
        "ls metric": Way("ls", PreferenceMetric(rampup=0)),
        "mgda": Way("mgda"),
        "mgda metric": Way("mgda", PreferenceMetric(rampup=0)),
        "mgda features": Way("mgda", features=True),
        "uw": Way("uw"),
        "uw metric": Way("uw", PreferenceMetric(rampup=0)),
    }
    least = dict.fromkeys(ways, float("inf"))
    for _ in range(rounds):
        for name, way in ways.items():
            start = time.process_time()
            way.step()
            least[name] = min(least[name], time.process_time() - start)
    return least


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40)
    torch.set_num_threads(1)
    times = least_times(parser.parse_args().rounds)
    print(f"{'step':<16}{'ms':>8}")
    for name, seconds in times.items():
        print(f"{name:<16}{1e3 * seconds:>8.2f}")
    print(f"\n{'step':<16}{'over':<10}{'ratio':>8}{'most':>8}")
    for name, other, most in RATIOS:
        print(f"{name:<16}{other:<10}{times[name] / times[other]:>8.2f}{most:>8.1f}")
    command = [sys.executable, "-c", IMPORT]
    seconds = min(float(subprocess.run(command, capture_output=True, text=True, check=True).stdout) for _ in range(3))
    print(f"\nimport madamoo, beyond torch: {seconds:.2f} s (at most 0.3 on a quiet machine)")


if __name__ == "__main__":
    main()
