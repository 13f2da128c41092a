"""The fronts in records, by names that tell them apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from madamoo.pareto import Front

from ..problems import Benchmark
from ..runs import Say, to_stderr
from ..training import front_of
from ._benchmarks import benchmarks_of

NAMED = ("solver", "optimizer", "lr", "seed", "profile", "epochs", "batch", "model", "schedule")


def fronts_of(
    records: Sequence[dict[str, Any]], split: str = "test", own: Sequence[str] = (), say: Say = to_stderr
) -> tuple[dict[str, Front], tuple[float, ...], str]:
    """Fronts by name, the reference of their hypervolume, and the benchmark; a name says what differs among them.

    Args:
        own: files of benchmarks that the user named; see :func:`benchmarks_of`.
        say: gets what is left out.
    """
    if split not in ("test", "validation"):
        raise ValueError(f"split must be test or validation, got {split!r}")
    learned = [record for record in records if record.get("front")]
    problems = benchmarks_of(learned, own, say)
    named = [record for record in learned if record["config"]["benchmark"] in problems]
    fronts = [(r["config"], front_in(r, problems[r["config"]["benchmark"]], split, say)) for r in named]
    found = [(config, front) for config, front in fronts if front is not None]
    if not found:
        raise ValueError("none of these runs learned a front: train one with `madamoo run BENCHMARK --method palora`")
    benchmarks = sorted({config["benchmark"] for config, _ in found})
    if len(benchmarks) > 1:
        raise ValueError(f"these are fronts of several benchmarks, too many for one figure: {', '.join(benchmarks)}")
    differing = [key for key in NAMED if len({str(c[key]) for c, _ in found}) > 1] or ["solver", "optimizer"]
    by_name = {_name(config, differing): front for config, front in found}
    return by_name, front_of(problems[benchmarks[0]]).reference, benchmarks[0]


def front_in(record: dict[str, Any], benchmark: Benchmark, split: str = "test", say: Say = to_stderr) -> Front | None:
    """The front that a run of the benchmark learned; None, and ``say`` is called, if it is not one of its metrics."""
    spec, front = benchmark.front, record["front"].get(split)
    better = {metric.name: metric.higher_is_better for metric in benchmark.metrics}
    if (
        spec is not None
        and front is not None
        and tuple(front["names"]) == spec.metrics
        and front["maximise"] == [better[name] for name in spec.metrics]
        and len(front["preferences"][0]) == len(benchmark.objectives)
    ):
        return Front.from_dict(front)
    say(f"a record of {benchmark.name} has another front than it, and is left out")
    return None


def _name(config: dict[str, Any], keys: Sequence[str]) -> str:
    plain = ("solver", "optimizer")
    return ", ".join(str(config[key]) if key in plain else f"{key} {config[key]}" for key in keys)
