"""Figure 4: the fronts that PaLoRA and PaMaL learned in the lab, under Adam and under MAdam, from records of runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from madamoo.bench.analysis import COMPARED, benchmarks_of, front_in, rows
from madamoo.bench.problems import Benchmark
from madamoo.bench.runs import Say, canonical, parse, read_records
from madamoo.bench.training import front_of
from madamoo.pareto import Front, draw_fronts
from madamoo.presentation.style import OPTIMIZERS

METHODS = ("palora", "pamal")
ORDER = ("madam", "adam", "marginal")  # gives them the other figures' colours
TO_RUN = (
    "madamoo sweep multimnist --solvers palora,pamal --optimizers adam,madam,marginal --seeds 0,1,2 --results runs",
    "madamoo figures --only fronts --fronts runs",
)


@dataclass(frozen=True)
class Learned:
    """What one method learned on one benchmark: the mean front of each optimizer, ray by ray."""

    benchmark: str
    method: str
    fronts: dict[str, Front]
    reference: tuple[float, ...]
    numbers: dict[str, Any]

    @property
    def name(self) -> str:
        return f"fronts-{Path(self.benchmark).stem}-{self.method.replace(':', '-').replace('=', '-')}".replace("/", "-")

    def draw(self, path: Path) -> Path:
        return draw_fronts(
            self.fronts, path, reference=self.reference, title=f"{Path(self.benchmark).stem}, {self.method}"
        )


def learned(folder: Path, own: Sequence[str], say: Say) -> Iterator[Learned]:
    """Everything that can be drawn from the records below ``folder``; what cannot goes to ``say``.

    Each optimizer is shown at the learning rate that is best on validation data, with the mean over the seeds that all
    of them have; see :func:`madamoo.bench.analysis.rows`.
    """
    records = [record for record in read_records(folder, say=say) if record.get("front")]
    records = [record for record in records if parse(record["config"]["solver"])[0] in METHODS]
    for benchmark, problem in benchmarks_of(records, own, say).items():
        for row in rows(records, problem, name=benchmark, say=say):
            if row["primary"] and row["rate"] == "best":
                chosen = _fronts(records, problem, row, say)
                if chosen:
                    yield Learned(benchmark, row["solver"], chosen, front_of(problem).reference, _numbers(row))


def _fronts(records: list[dict[str, Any]], problem: Benchmark, row: dict[str, Any], say: Say) -> dict[str, Front]:
    """The mean front of each optimizer over the seeds of the row."""
    same = ("benchmark", "profile", "epochs", "batch", "model", "schedule")
    found: dict[str, list[Front]] = {}
    for record in records:
        config = record["config"]
        optimizer = canonical(config["optimizer"])
        fits = all(config[key] == row[key] for key in same) and canonical(config["solver"]) == row["solver"]
        if fits and config["seed"] in row["seeds"] and config["lr"] == row["lr"].get(optimizer):
            front = front_in(record, problem, say=say)
            if front is not None:
                found.setdefault(optimizer, []).append(front)
    rays = {len(front.points) for fronts in found.values() for front in fronts}
    if len(rays) > 1:  # no mean ray by ray
        say(f"the fronts of {row['benchmark']}, {row['solver']}, have {sorted(rays)} rays and are not drawn")
        return {}
    return {OPTIMIZERS[optimizer]: _mean(found[optimizer]) for optimizer in ORDER if optimizer in found}


def _mean(fronts: list[Front]) -> Front:
    first = fronts[0]
    return Front(
        first.preferences, torch.stack([front.points for front in fronts]).mean(dim=0), first.maximise, first.names
    )


def _numbers(row: dict[str, Any]) -> dict[str, Any]:
    """Hypervolumes: the mean over seeds, the deviation, the rate; the seeds."""
    by_optimizer = {
        OPTIMIZERS[optimizer]: {
            "hypervolume": row[optimizer],
            "deviation": row["deviation"][optimizer],
            "rate": row["lr"][optimizer],
        }
        for optimizer in COMPARED
        if row[optimizer] is not None
    }
    return {"seeds": row["seeds"], **by_optimizer}
