"""What stands in the table of a benchmark; :mod:`madamoo.presentation.tables` writes it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from madamoo.presentation.style import ADAM, CONTROL, MADAM, OPTIMIZERS, RATES, interval, plus_minus, rate_text
from madamoo.presentation.tables import Cell, Table, check_format, write_data, write_tables

Row = Mapping[str, Any]

NOTE = (
    "{split} data: mean ± standard deviation over the same seeds in a line. {mark} the better of Adam and MAdam. "
    "MAdam - Adam: paired by seed, with its 95 % t-interval."
)
TRAINING = (
    "Train loss: of the last epoch, mean over seeds, Adam -> MAdam. "
    "Steps, seconds: to the highest final training loss of the seed's compared runs, as a part of Adam's."
)
TIME = "Time: seconds to the common validation loss, MAdam / Adam."
DOUBTS = {
    "highest": ("≥", "the highest rate that was tried: a better one may lie above it"),
    "lowest": ("≤", "the lowest that was tried"),
    "only": ("?", "the only one"),
    "fewer": ("!", "a rate that has fewer seeds is better on these"),
}
MARKS = {"text": "*:", "markdown": "Bold:", "latex": "Bold:"}


def render_table(rows: Sequence[Row], format: str = "text", *, metric: str | None = None) -> str:
    """The rows as text.

    Args:
        format: text, markdown, latex (a document that uses booktabs can include it), csv or json.
        metric: "primary", "all", or the name of one. By default tables show the primary one, and data have all.
    """
    check_format(format)
    shown = _of_metric(rows, metric or ("all" if format in ("csv", "json") else "primary"))
    if format in ("csv", "json"):
        return write_data(shown, format)
    if not shown:
        return write_tables((), ("There are no runs to show.",), format)
    return write_tables(_tables(shown), _notes(shown, MARKS[format]), format)


def _of_metric(rows: Sequence[Row], metric: str) -> list[Row]:
    if metric == "all":
        return list(rows)
    if metric == "primary":
        return [row for row in rows if row["primary"]]
    shown = [row for row in rows if row["metric"] == metric]
    if rows and not shown:
        known = dict.fromkeys(row["metric"] for row in rows)
        raise ValueError(f"metric must be primary, all or one of {', '.join(known)}, got {metric!r}")
    return shown


def _tables(rows: Sequence[Row]) -> list[Table]:
    """A table per benchmark, metric and way of choosing rates, in the order in which they come.

    Rows of several benchmarks make a table per solver instead, with one line per benchmark.
    """
    of, line = ("solver", "benchmark") if _several(rows) else ("benchmark", "solver")
    order = {key: k for k, key in enumerate(dict.fromkeys((row[of], row["metric"]) for row in rows))}

    def block(row: Row) -> tuple[Any, ...]:
        return (
            order[row[of], row["metric"]],
            str(row.get("profile")),
            str(row.get("schedule")),
            list(RATES).index(row["rate"]),
        )

    return [table for _, group in groupby(sorted(rows, key=block), block) for table in _block(list(group), of, line)]


def _several(rows: Sequence[Row]) -> bool:
    return len({row["benchmark"] for row in rows}) > 1


def _block(rows: list[Row], of: str, line: str) -> list[Table]:
    first = rows[0]
    way = "higher" if first["higher_is_better"] else "lower"
    schedule = first.get("schedule", "constant")
    size = first.get("profile") if schedule == "constant" else f"{first.get('profile')}, schedule {schedule}"
    title = f"{first[of]} ({size}), {first['metric']}, {way} is better"
    title = f"{title}: {RATES[first['rate']]}"
    columns: dict[str, Callable[[Row], Cell]] = {
        line: lambda row: Cell(row[line]),
        ADAM: lambda row: _result(row, "adam"),
        CONTROL: lambda row: _result(row, "marginal"),
        MADAM: lambda row: _result(row, "madam"),
        f"{MADAM} - {ADAM}": lambda row: Cell(_difference(row)),
        "paper": lambda row: Cell(_paper(row)),
        "lr": lambda row: Cell(_rates(row)),
        "train loss": lambda row: Cell(_train_losses(row)),
        "steps": lambda row: Cell(_over_adam(row, "madam", "steps")),
        "seconds": lambda row: Cell(_over_adam(row, "madam", "seconds")),
        "time": lambda row: Cell("" if row["training"] else _time(row)),
        "seeds": lambda row: Cell(str(len(row["seeds"]))),
    }
    tables = [_table(title, columns, [row for row in rows if any(row[name] is not None for name in OPTIMIZERS)])]
    others: list[Row] = [{**row, **found, "optimizer": name} for row in rows for name, found in row["others"].items()]
    columns = {
        line: lambda row: Cell(row[line]),
        "optimizer": lambda row: Cell(row["optimizer"]),
        "result": lambda row: Cell(plus_minus(row["mean"], row["deviation"], row["digits"])),
        "lr": lambda row: Cell(_rate(row, row["optimizer"], row["lr"])),
        "train loss": lambda row: Cell(_loss(row["training"].get(row["optimizer"]))),
        "steps": lambda row: Cell(_over_adam(row, row["optimizer"], "steps")),
        "seconds": lambda row: Cell(_over_adam(row, row["optimizer"], "seconds")),
        "seeds": lambda row: Cell(str(len(row["per_seed"]))),
    }
    tables.append(_table(f"{title}; other optimizers", columns, others))
    return [table for table in tables if table.rows]


def _table(title: str, columns: Mapping[str, Callable[[Row], Cell]], rows: Iterable[Row]) -> Table:
    """Without the columns that have nothing to say."""
    body = [{heading: cell(row) for heading, cell in columns.items()} for row in rows]
    header = [heading for heading in columns if any(line[heading].text for line in body)]
    return Table(title, header, [[line[heading] for heading in header] for line in body])


def _result(row: Row, optimizer: str) -> Cell:
    if optimizer == "marginal" and row["marginal_is_madam"]:
        return Cell("= MAdam")
    diverged = row["diverged"].get(optimizer, 0)
    if diverged:
        return Cell(f"{diverged} of {len(row['seeds'])} diverged", row["better"] == optimizer)
    return Cell(plus_minus(row[optimizer], row["deviation"][optimizer], row["digits"]), row["better"] == optimizer)


def _difference(row: Row) -> str:
    found = row["difference"]
    if found is None or not math.isfinite(found["mean"]):
        return ""
    return interval(found["mean"], found["low"], found["high"], row["digits"])


def _paper(row: Row) -> str:
    if row["paper"] is None:
        return ""
    means = [row["paper"][name][0] for name in ("adam", "madam")]
    adam, madam = ("NaN" if math.isnan(mean) else f"{mean:.{row['digits']}f}" for mean in means)
    return f"{adam} -> {madam}" + (" †" if row["paper"]["of"] != row["benchmark"] else "")


def _rates(row: Row) -> str:
    """One rate if it is the same for all; else one per optimizer."""
    rates = [_rate(row, name, row["lr"][name]) for name in OPTIMIZERS]
    return rates[0] if len(set(rates) - {"-"}) == 1 and rates[0] != "-" else "/".join(rates)


def _rate(row: Row, optimizer: str, lr: float | None) -> str:
    doubt = row["doubts"].get(optimizer)
    return (DOUBTS[doubt][0] if doubt else "") + rate_text(lr)


def _train_losses(row: Row) -> str:
    adam, madam = (_loss(row["training"].get(name)) for name in ("adam", "madam"))
    return f"{adam} -> {madam}" if adam and madam else adam or madam


def _loss(found: Mapping[str, float] | None) -> str:
    return "" if found is None or found["loss"] is None else f"{found['loss']:.3g}"


def _over_adam(row: Row, optimizer: str, what: str) -> str:
    """The cost of getting to the target, as a part of Adam's."""
    adam, other = (row["training"].get(name, {}).get(what) for name in ("adam", optimizer))
    if not adam or other is None or not math.isfinite(adam):
        return ""
    return f"{other / adam:.2f}" if math.isfinite(other) else "never"


def _time(row: Row) -> str:
    adam, madam = (row["seconds_to_target"].get(name) for name in ("adam", "madam"))
    return f"{madam / adam:.2f}" if adam and madam and math.isfinite(adam + madam) else ""


def _notes(rows: Sequence[Row], mark: str) -> list[str]:
    notes = [NOTE.format(mark=mark, split=rows[0].get("split", "test").capitalize())]
    if any(row["training"] for row in rows):
        notes.append(TRAINING)
    if any(_time(row) and not row["training"] for row in rows):
        notes.append(TIME)
    if any(len({row["lr"][name] for name in OPTIMIZERS} - {None}) > 1 for row in rows):
        notes.append(f"lr: {'/'.join(OPTIMIZERS.values())}, where they differ.")
    known = {doubt for row in rows for doubt in row["doubts"].values()}
    if doubts := [f"{sign} {text}" for key, (sign, text) in DOUBTS.items() if key in known]:
        notes.append(f"lr: {'; '.join(doubts)}.")
    borrowed = dict.fromkeys(r["paper"]["of"] for r in rows if r["paper"] and r["paper"]["of"] != r["benchmark"])
    left_out = dict.fromkeys((row["benchmark"], row["left_out"]) for row in rows if row["left_out"])
    return [
        *notes,
        *_ahead(rows),
        *(f"† The paper's figure is of {of}: the full data." for of in borrowed),
        *(f"{name}: {count} runs of other profiles or sizes are not shown." for name, count in left_out),
    ]


def _ahead(rows: Sequence[Row]) -> list[str]:
    """In how many lines MAdam is ahead, table by table, where benchmarks are compared; and in how many of the paper."""
    if not _several(rows):
        return []
    notes = []
    for solver, rate in dict.fromkeys((row["solver"], row["rate"]) for row in rows if row["primary"]):
        mine = [row for row in rows if row["primary"] and (row["solver"], row["rate"]) == (solver, rate)]
        pairs = [row for row in mine if row["adam"] is not None and row["madam"] is not None]
        if not pairs:
            continue
        won = sum(row["better"] == "madam" for row in pairs)
        lost = sum(row["better"] == "adam" for row in pairs)
        text = f"{solver}, {RATES[rate]}: MAdam is ahead in {won} of {won + lost} lines that count"
        idle = len(pairs) - won - lost
        notes.append(f"{text}; {idle} are equal or learned nothing." if idle else f"{text}.")
    limits = dict.fromkeys(row["unsolved"] for row in rows if row["unsolved"] is not None)
    return [*notes, *(f"A line counts where one of the two is better than {limit:g}." for limit in limits)]
