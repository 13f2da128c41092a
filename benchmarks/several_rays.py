"""Several preferences in one step: one sample of the averages for all of them together, or one for each ray?

``pareto.merge`` makes of W rays one row per objective, and the metric sees one sample per step. The other way is ray by
ray: update the averages with each ray's gradients (decay beta^(1/W), so that a step forgets as much), divide each ray's
direction by the root of its own curvature, and add up. This trains both, and Adam, on the same seeds and prints the
hypervolumes::

    python benchmarks/several_rays.py digits pamal palora --seeds 0,1,2
"""

from __future__ import annotations

import argparse
import time
from itertools import combinations_with_replacement

import torch

from madamoo.bench import configure, get
from madamoo.bench.problems import data_root
from madamoo.bench.training import FrontTraining
from madamoo.metric import ReferenceMetric

BETA, RAMPUP = 0.999, 300  # as PreferenceMetric has them


class RayByRay(FrontTraining):
    """The same training, but for how the rays of a step meet the metric; the inner optimizer is AdamW all the same."""

    def prepare(self) -> None:
        groups = [{"params": group["params"], "lr": group["lr"]} for group in self.optimizer.param_groups]
        self.optimizer = torch.optim.AdamW(groups, weight_decay=0.0)
        self.params = [p for group in groups for p in group["params"]]
        self.metrics: list[ReferenceMetric] = []

    def advance(self) -> bool:
        batch = self.batches.draw(self.step % self.batches.steps, self.generator)
        rays = self.method.sampler(self.step / self.total_steps)
        self.set_rates()
        if not self.metrics:
            beta, rampup = BETA ** (1 / len(rays)), RAMPUP * len(rays)
            self.metrics = [ReferenceMetric(beta, rampup=rampup) for _ in self.params]
        whitened = [torch.zeros_like(p) for p in self.params]
        for ray in rays:
            with self.model.at(ray):
                losses = self.benchmark.losses(self.model, batch)
            each = [torch.autograd.grad(loss, self.params, retain_graph=True, allow_unused=True) for loss in losses]
            for k, metric in enumerate(self.metrics):
                rows = {i: row[k] for i, row in enumerate(each) if row[k] is not None}
                d = sum(float(ray[i]) * g for i, g in rows.items())
                whitened[k] += metric.step(rows, [*combinations_with_replacement(rows, 2)], ray.tolist(), d)
        for param, value in zip(self.params, whitened, strict=True):
            param.grad = value
        self.optimizer.step()
        self.step += 1
        if self.step % self.batches.steps:
            return False
        self._end_epoch()
        return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benchmark")
    parser.add_argument("methods", nargs="+")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--lr", type=float)
    parser.add_argument("--epochs", type=int)
    given = parser.parse_args()
    torch.set_num_threads(1)
    problem = get(given.benchmark)
    profile = problem.profiles["cpu"]
    print("method   seed  way         hypervolume, test  validation  seconds")
    for method in given.methods:
        for seed in map(int, given.seeds.split(",")):
            data = problem.load(data_root(None), profile, seed)
            for way, kind in (("Adam", FrontTraining), ("merged", FrontTraining), ("ray by ray", RayByRay)):
                optimizer = "adam" if way == "Adam" else "madam"
                options = {"lr": given.lr, "epochs": given.epochs, "seed": seed}
                config = configure(given.benchmark, solver=method, optimizer=optimizer, **options)
                training = kind(config, problem, profile, data, torch.device("cpu"))
                if isinstance(training, RayByRay):
                    training.prepare()
                begin = time.perf_counter()
                while not training.ended:
                    training.advance()
                assert training.best is not None
                test, validation = (training.best[key]["hypervolume"] for key in ("metrics", "validation"))
                seconds = time.perf_counter() - begin
                print(f"{method:8} {seed:4}  {way:10}  {test:17.4f}  {validation:10.4f}  {seconds:7.0f}", flush=True)


if __name__ == "__main__":
    main()
