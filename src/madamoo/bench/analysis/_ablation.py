"""The paper's ablation, and ours: what each part of the method is worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from madamoo.presentation.style import plus_minus, rate_text
from madamoo.presentation.tables import Cell, Table, check_format, write_data, write_tables

from ..problems import Benchmark
from ..runs import Config, canonical, identity
from . import _paper
from ._table import COMPARED, rows

PAPER = "madam:bias_correction=False:eps=1e-08:floor=False:ramp=paper"  # the paper's plain form, but for the estimator
PAIR = "madam:estimator=pair"


@dataclass(frozen=True)
class Variant:
    label: str
    optimizer: str
    paper: str | None = None  # the name of its row in the paper


VARIANTS = tuple(
    Variant(label, canonical(optimizer), paper)
    for label, optimizer, paper in (
        ("paper's form", f"{PAPER}:estimator=pair", "full"),
        ("  without ramp-up", f"{PAPER}:estimator=pair:rampup=0", "no_rampup"),
        ("  without pair sampling", f"{PAPER}:estimator=full", "no_pair_sampling"),
        ("  without off-diagonals", f"{PAPER}:estimator=diagonal", "no_off_diagonals"),
        ("Adam", "adam", "baseline"),
        ("ours", "madam", None),
        ("ours, pair", PAIR, None),
        ("  without ramp-up", f"{PAIR}:rampup=0", None),
        ("  without bias correction", f"{PAIR}:bias_correction=False", None),
        ("  without floor", f"{PAIR}:floor=False", None),
        ("  paper's ramp", f"{PAIR}:ramp=paper", None),
        ("  without off-diagonals", "madam:estimator=diagonal", None),
        ("control (marginal)", "marginal", None),
    )
)


def ablation_rows(
    records: Sequence[dict[str, Any]], benchmark: Benchmark, configs: Sequence[Config]
) -> list[dict[str, Any]]:
    """One row per variant: mean and deviation of each metric over its runs among ``configs``.

    Of several learning rates, each variant's own best on validation data counts.
    """
    wanted = {identity(asdict(config)) for config in configs}
    mine = [record for record in records if identity(record["config"]) in wanted]
    own = configs[0].benchmark if configs else None  # the path, for a user's own file
    best = [row for row in rows(mine, benchmark, name=own) if row["rate"] == "best"]
    paper = _paper.ablation(benchmark.name) or {}
    found = []
    for variant in VARIANTS:
        metrics = {row["metric"]: _figure(row, variant.optimizer) for row in best}
        known = {name: figure for name, figure in metrics.items() if figure is not None}
        if known:
            lr = next(iter(known.values()))[2]
            values = {name: [mean, deviation] for name, (mean, deviation, _) in known.items()}
            of = paper.get(variant.paper) if variant.paper else None
            found.append({"variant": variant.label.strip(), "optimizer": variant.optimizer, "lr": lr, "metrics": values,
                          "paper": of})  # fmt: skip
    return found


def _figure(row: dict[str, Any], optimizer: str) -> tuple[Any, Any, Any] | None:
    """Mean, deviation and learning rate of an optimizer in a row of the table."""
    if optimizer in COMPARED:
        return None if row[optimizer] is None else (row[optimizer], row["deviation"][optimizer], row["lr"][optimizer])
    other = row["others"].get(optimizer)
    return None if other is None else (other["mean"], other["deviation"], other["lr"])


def render_ablation(found: Sequence[dict[str, Any]], benchmark: Benchmark, format: str) -> str:
    """The paper's layout: one line per variant, one column per metric, the paper's own figure beside the first."""
    check_format(format)
    if format in ("csv", "json"):
        return write_data(found, format)
    sign = -1 if benchmark.primary.higher_is_better else 1
    best = {
        m.name: min((sign * row["metrics"][m.name][0] for row in found if m.name in row["metrics"]), default=None)
        for m in benchmark.metrics
    }
    labels = {variant.optimizer: variant.label for variant in VARIANTS}
    body = []
    for row in found:
        figures = []
        for metric in benchmark.metrics:
            mean, deviation = row["metrics"][metric.name]
            figures.append(Cell(plus_minus(mean, deviation, metric.digits), sign * mean == best[metric.name]))
        paper = row["paper"] and row["paper"].get(benchmark.primary.name)
        beside = Cell(plus_minus(paper[0], paper[1], benchmark.primary.digits) if paper else "")
        body.append((Cell(labels[row["optimizer"]]), figures[0], beside, Cell(rate_text(row["lr"])), *figures[1:]))
    header = ("variant", benchmark.primary.name, "paper", "lr", *(m.name for m in benchmark.metrics[1:]))
    way = "higher" if benchmark.primary.higher_is_better else "lower"
    title = f"{benchmark.name}, ablation; {way} is better; each variant at its best learning rate on validation data"
    notes = ["Test data: mean ± standard deviation over seeds."]
    if any(row["paper"] for row in found):
        notes.append(f"paper: {_paper.CITATION}.")
    return write_tables([Table(title, header, tuple(body))], notes, format)
