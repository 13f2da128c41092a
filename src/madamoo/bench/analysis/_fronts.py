"""The fronts in records, by names that tell them apart."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from madamoo.pareto import Front

from ..problems import Benchmark
from ..training import front_of
from ._benchmarks import benchmarks_of

NAMED = ("solver", "optimizer", "lr", "seed", "profile", "epochs", "batch", "model", "schedule")


def fronts_of(
    records: Sequence[dict[str, Any]], split: str = "test", own: Sequence[str] = ()
) -> tuple[dict[str, Front], tuple[float, ...], str]:
    """Fronts by name, the reference of their hypervolume, and the benchmark; a name says what differs among them.

    Args:
        own: files of benchmarks that the user named; see :func:`benchmarks_of`.
    """
    if split not in ("test", "validation"):
        raise ValueError(f"split must be test or validation, got {split!r}")
    learned = [record for record in records if record.get("front")]
    problems = benchmarks_of(learned, own)
    found = [record for record in learned if _fits(record, problems.get(record["config"]["benchmark"]), split)]
    if not found:
        raise ValueError("none of these runs learned a front: train one with `madamoo run BENCHMARK --method palora`")
    benchmarks = sorted({record["config"]["benchmark"] for record in found})
    if len(benchmarks) > 1:
        raise ValueError(f"these are fronts of several benchmarks, too many for one figure: {', '.join(benchmarks)}")
    configs = [record["config"] for record in found]
    differing = [key for key in NAMED if len({str(config[key]) for config in configs}) > 1] or ["solver", "optimizer"]
    named = {_name(config, differing): Front.from_dict(record["front"][split]) for config, record in
             zip(configs, found, strict=True)}  # fmt: skip
    return named, front_of(problems[benchmarks[0]]).reference, benchmarks[0]


def _fits(record: dict[str, Any], benchmark: Benchmark | None, split: str) -> bool:
    """Whether the front is one of the benchmark's; one of other metrics is named and left out."""
    if benchmark is None:
        return False
    spec, front = benchmark.front, record["front"].get(split)
    better = {metric.name: metric.higher_is_better for metric in benchmark.metrics}
    fits = (
        spec is not None
        and front is not None
        and tuple(front["names"]) == spec.metrics
        and front["maximise"] == [better[name] for name in spec.metrics]
        and len(front["preferences"][0]) == len(benchmark.objectives)
    )
    if not fits:
        print(f"madamoo: a record of {benchmark.name} has another front than it, and is left out", file=sys.stderr)
    return fits


def _name(config: dict[str, Any], keys: Sequence[str]) -> str:
    plain = ("solver", "optimizer")
    return ", ".join(str(config[key]) if key in plain else f"{key} {config[key]}" for key in keys)
