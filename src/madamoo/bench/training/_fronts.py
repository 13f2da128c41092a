"""Runs that end in a front: one model for all preferences, or one model per ray."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from madamoo.pareto import Conditioned, Front, merge, monotonicity
from madamoo.solvers import Solver

from ..problems import Benchmark, Evaluation
from ..runs import PART, Config
from ._loop import Training
from ._methods import build_method, each_ray, front_of, ray_solver, rays_of


def make_front(benchmark: Benchmark, results: Sequence[dict[str, float]]) -> Front:
    """The front of the metrics on each ray, in the units in which it is measured."""
    spec = front_of(benchmark)
    better = {metric.name: metric.higher_is_better for metric in benchmark.metrics}
    points = [[row[name] / unit for name, unit in zip(spec.metrics, spec.units, strict=True)] for row in results]
    return Front(rays_of(benchmark), points, [better[name] for name in spec.metrics], spec.metrics)


def front_metrics(benchmark: Benchmark, front: Front, results: Sequence[dict[str, float]]) -> dict[str, float]:
    """What is reported of a front; ``best_primary`` is the benchmark's own first metric on the ray where it is best."""
    primary = benchmark.primary
    values = [row[primary.name] for row in results]
    return {
        "hypervolume": front.hypervolume(front_of(benchmark).reference),
        "monotonicity": float(monotonicity(front.points, front.preferences, front.maximise).mean()),
        f"best_{primary.name}": max(values) if primary.higher_is_better else min(values),
    }


def front_result(
    benchmark: Benchmark, validation: Sequence[dict[str, float]], test: Sequence[dict[str, float]]
) -> dict[str, Any]:
    """Metrics and fronts, as a record has them, from the benchmark's own metrics on each ray."""
    fronts = {"validation": make_front(benchmark, validation), "test": make_front(benchmark, test)}
    return {
        "metrics": front_metrics(benchmark, fronts["test"], test),
        "validation": front_metrics(benchmark, fronts["validation"], validation),
        "front": {name: front.to_dict() for name, front in fronts.items()},
    }


class FrontTraining(Training):
    """One model for all preferences. While it trains it is judged at equal preference, in the end on all rays."""

    model: Conditioned

    def build_model(self, data: Any) -> nn.Module:
        self.method = build_method(self.config.solver, self.benchmark, self.config.seed)
        count = len(self.benchmark.objectives)
        self.equal = torch.full((count,), 1.0 / count)
        return self.method.make(super().build_model(data))

    def build_solver(self) -> Solver:
        return self.method.solver

    def parameter_groups(self) -> Any:
        return self.model.parameter_groups(self.config.lr)

    def losses(self, batch: Any) -> tuple[list[Tensor], Tensor | None]:
        rays = self.method.sampler(self.step / self.total_steps)
        each = []
        for ray in rays:
            with self.model.at(ray):
                each.append(self.benchmark.losses(self.model, batch))
        return merge(each, rays, penalty=self.method.penalty)

    def evaluate(self, split: str) -> Evaluation:
        with self.model.at(self.equal):
            return super().evaluate(split)

    def maps(self) -> list[dict[str, Any]]:
        with self.model.at(self.equal):
            return super().maps()

    def result(self, validation: dict[str, float]) -> dict[str, Any]:
        return front_result(self.benchmark, self._on_rays("validation"), self._on_rays("test"))

    def _on_rays(self, split: str) -> list[dict[str, float]]:
        results = []
        for ray in rays_of(self.benchmark):
            with self.model.at(ray):
                results.append(super().evaluate(split).metrics)
        return results

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "sampler": self.method.sampler.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.method.sampler.load_state_dict(state["sampler"])


class RayTraining(Training):
    """One model for one preference."""

    def build_solver(self) -> Solver:
        solver, self.ray = ray_solver(self.config.solver, self.benchmark)
        return solver

    def losses(self, batch: Any) -> tuple[list[Tensor], Tensor | None]:
        return super().losses(batch)[0], self.ray


def train_rays(
    config: Config, benchmark: Benchmark, folder: Path, train: Callable[[Config, Path], dict[str, Any]]
) -> dict[str, Any]:
    """One training per ray, each in a folder of its own below this one, and the record of the front they make."""
    parts = [
        train(replace(config, solver=spec), folder / f"{PART}{k}")
        for k, spec in enumerate(each_ray(config.solver, benchmark))
    ]
    return {**parts[0], "config": asdict(config), **_together(benchmark, parts)}


def _together(benchmark: Benchmark, parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    diverged = any(part["status"] == "diverged" for part in parts)
    found: dict[str, Any] = {"metrics": None, "validation": None, "front": {}}
    if not diverged:
        found = front_result(benchmark, [part["validation"] for part in parts], [part["metrics"] for part in parts])
    costs = [part["cost"] for part in parts]
    seconds, steps = sum(cost["seconds"] for cost in costs), sum(part["steps"] for part in parts)
    peaks = [cost["peak_memory_bytes"] for cost in costs if cost["peak_memory_bytes"] is not None]
    return {
        **found,
        "status": "diverged" if diverged else "finished",
        "validation_loss": None,
        "steps": steps,
        "refused_steps": sum(part["refused_steps"] for part in parts),
        "cost": {
            "seconds": seconds,
            "seconds_per_step": seconds / steps,
            "peak_memory_bytes": max(peaks, default=None),
            "state_bytes": max(cost["state_bytes"] for cost in costs),
            "curve": [],
        },
    }
