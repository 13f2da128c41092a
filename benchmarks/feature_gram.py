"""What the Gram matrix of the features costs in quality, against that of the parameters, on the lab's data.

    MADAMOO_DATA=... python benchmarks/feature_gram.py sarcos-small --solvers mgda cagrad --seeds 0 1 2 [--epochs 20]
    MADAMOO_DATA=... python benchmarks/feature_gram.py multimnist --solvers mgda --seeds 0 1 --epochs 3

Both train under Adam, from the same weights and on the same batches; the table has the metrics of the lab.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from torch import Tensor, nn

from madamoo import MultiObjective
from madamoo.bench import configure, get
from madamoo.bench.problems import data_root
from madamoo.bench.training import Training


class AtFeatures(MultiObjective):
    """Remembers what the trunk gave out in the last forward pass."""

    seen: Tensor | None = None

    def backward(self, losses: Any, **options: Any) -> None:  # type: ignore[override]
        super().backward(losses, features=self.seen, **options)


class FeatureTraining(Training):
    def use_features(self) -> None:
        optimizer = AtFeatures(self.optimizer.optimizer, self.optimizer.solver, gram="features")
        trunk = self.model.trunk
        assert isinstance(trunk, nn.Module)
        trunk.register_forward_hook(lambda module, inputs, z: setattr(optimizer, "seen", z))
        self.optimizer = optimizer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benchmark")
    parser.add_argument("--solvers", nargs="+", default=["mgda", "cagrad"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--epochs", type=int)
    given = parser.parse_args()
    torch.set_num_threads(1)
    problem = get(given.benchmark)
    profile = problem.profiles["cpu"]
    for solver in given.solvers:
        for seed in given.seeds:
            data = problem.load(data_root(None), profile, seed)
            for gram in ("parameters", "features"):
                options = {} if given.epochs is None else {"epochs": given.epochs}
                config = configure(given.benchmark, solver=solver, optimizer="adam", seed=seed, **options)
                training = FeatureTraining(config, problem, profile, data, torch.device("cpu"))
                if gram == "features":
                    training.use_features()
                while not training.ended:
                    training.advance()
                assert training.best is not None
                metrics = " ".join(f"{key}={value:.4f}" for key, value in training.best["metrics"].items())
                print(f"{given.benchmark} {solver} seed={seed} gram={gram:10} {metrics}", flush=True)


if __name__ == "__main__":
    main()
