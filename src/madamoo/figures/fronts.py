"""Figure 4: the fronts that PaLoRA and PaMaL learned in the lab, under Adam and under MAdam, from records of runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from madamoo.bench import available, get
from madamoo.bench._methods import front_of
from madamoo.bench._records import read_records
from madamoo.bench._spec import canonical, parse
from madamoo.bench._table import COMPARED, rows
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


def learned(folder: Path, say: Callable[[str], None]) -> Iterator[Learned]:
    """Everything that can be drawn from the records below ``folder``; what cannot is told to ``say``.

    Each optimizer is shown at the learning rate that is best on validation data, with the mean over the seeds that all
    of them have; see :func:`madamoo.bench._table.rows`.
    """
    records = [record for record in read_records(folder) if record.get("front")]
    records = [record for record in records if parse(record["config"]["solver"])[0] in METHODS]
    for benchmark in sorted({record["config"]["benchmark"] for record in records}):
        if benchmark not in available():  # a record must not make us run its author's file
            say(f"No fronts of {benchmark}: it is a benchmark of its author's, whose code is not run")
            continue
        problem = get(benchmark)
        for row in rows(records, problem, name=benchmark):
            if row["primary"] and row["rate"] == "best":
                chosen = _fronts(records, row)
                if chosen:
                    yield Learned(benchmark, row["solver"], chosen, front_of(problem).reference, _numbers(row))


def _fronts(records: list[dict[str, Any]], row: dict[str, Any]) -> dict[str, Front]:
    """The mean front of each optimizer over the seeds of the row."""
    same = ("benchmark", "profile", "epochs", "batch", "model", "schedule")
    found: dict[str, list[Front]] = {}
    for record in records:
        config = record["config"]
        optimizer = canonical(config["optimizer"])
        fits = all(config[key] == row[key] for key in same) and canonical(config["solver"]) == row["solver"]
        if fits and config["seed"] in row["seeds"] and config["lr"] == row["lr"].get(optimizer):
            found.setdefault(optimizer, []).append(Front.from_dict(record["front"]["test"]))
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
