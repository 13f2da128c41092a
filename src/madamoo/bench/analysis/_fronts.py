"""The fronts in records, by names that tell them apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from madamoo.pareto import Front

from ..problems import get
from ..training import front_of

NAMED = ("solver", "optimizer", "lr", "seed", "profile", "epochs", "batch", "model", "schedule")


def fronts_of(
    records: Sequence[dict[str, Any]], split: str = "test"
) -> tuple[dict[str, Front], tuple[float, ...], str]:
    """Fronts by name, the reference of their hypervolume, and the benchmark; a name says what differs among them."""
    if split not in ("test", "validation"):
        raise ValueError(f"split must be test or validation, got {split!r}")
    found = [record for record in records if record.get("front")]
    if not found:
        raise ValueError("none of these runs learned a front: train one with `madamoo run BENCHMARK --method palora`")
    benchmarks = sorted({record["config"]["benchmark"] for record in found})
    if len(benchmarks) > 1:
        raise ValueError(f"these are fronts of several benchmarks, too many for one figure: {', '.join(benchmarks)}")
    configs = [record["config"] for record in found]
    differing = [key for key in NAMED if len({str(config[key]) for config in configs}) > 1] or ["solver", "optimizer"]
    named = {_name(config, differing): Front.from_dict(record["front"][split]) for config, record in
             zip(configs, found, strict=True)}  # fmt: skip
    return named, front_of(get(benchmarks[0])).reference, benchmarks[0]


def _name(config: dict[str, Any], keys: Sequence[str]) -> str:
    plain = ("solver", "optimizer")
    return ", ".join(str(config[key]) if key in plain else f"{key} {config[key]}" for key in keys)
