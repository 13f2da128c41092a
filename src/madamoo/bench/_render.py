"""Rows as a table in the paper's layout (text, Markdown, LaTeX) or as data (CSV, JSON)."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

Row = Mapping[str, Any]

FORMATS = ("text", "markdown", "latex", "csv", "json")
TITLES = {
    "equal": "all at the same learning rate",
    "best": "each at its best learning rate on validation data",
}
NAMES = {"adam": "Adam", "marginal": "Adam twice", "madam": "MAdam"}
NOTE = (
    "{split} data: mean ± standard deviation over the same seeds in a line. {mark} the better of Adam and MAdam. "
    "MAdam - Adam: paired by seed, with its 95 % t-interval. "
    "Time: seconds to the common validation loss, MAdam / Adam."
)
WIDTH = 120  # of notes; tables are as wide as they need to be
MARKS = {"text": "*:", "markdown": "Bold:", "latex": "Bold:"}


class Cell(NamedTuple):
    text: str
    bold: bool = False


@dataclass(frozen=True)
class Table:
    title: str
    header: tuple[str, ...]
    body: tuple[tuple[Cell, ...], ...]


def render(rows: Sequence[Row], format: str = "text", *, metric: str | None = None) -> str:
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


def check_format(format: str) -> None:
    if format not in FORMATS:
        raise ValueError(f"format must be one of {', '.join(FORMATS)}, got {format!r}")


def write_data(records: Sequence[Row], format: str) -> str:
    """Records as JSON, or as CSV with one line each."""
    if format == "json":
        return json.dumps(_clean(list(records)), indent=1, allow_nan=False) + "\n"
    return _csv([_flat(_clean(record)) for record in records])


def write_tables(tables: Sequence[Table], notes: Sequence[str], format: str) -> str:
    return {"text": _text, "markdown": _markdown, "latex": _latex}[format](tables, notes)


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


# ---------------------------------------------------------------- what is in a table


def _tables(rows: Sequence[Row]) -> list[Table]:
    """A table for each benchmark, metric and way of choosing rates, in the order in which they come."""

    order = {key: k for k, key in enumerate(dict.fromkeys((row["benchmark"], row["metric"]) for row in rows))}

    def block(row: Row) -> tuple[Any, ...]:
        return (
            order[row["benchmark"], row["metric"]],
            str(row.get("profile")),
            str(row.get("schedule")),
            list(TITLES).index(row["rate"]),
        )

    return [table for _, group in groupby(sorted(rows, key=block), block) for table in _block(list(group))]


def _block(rows: list[Row]) -> list[Table]:
    first = rows[0]
    way = "higher" if first["higher_is_better"] else "lower"
    schedule = first.get("schedule", "constant")
    size = first.get("profile") if schedule == "constant" else f"{first.get('profile')}, schedule {schedule}"
    title = f"{first['benchmark']} ({size}), {first['metric']}, {way} is better"
    title = f"{title}: {TITLES[first['rate']]}"
    columns: dict[str, Callable[[Row], Cell]] = {
        "solver": lambda row: Cell(row["solver"]),
        "Adam": lambda row: _result(row, "adam"),
        "Adam twice": lambda row: _result(row, "marginal"),
        "MAdam": lambda row: _result(row, "madam"),
        "MAdam - Adam": lambda row: Cell(_difference(row)),
        "paper": lambda row: Cell(_paper(row)),
        "lr": lambda row: Cell(_rates(row)),
        "time": lambda row: Cell(_time(row)),
        "seeds": lambda row: Cell(str(len(row["seeds"]))),
    }
    tables = [_table(title, columns, [row for row in rows if any(row[name] is not None for name in NAMES)])]
    others: list[Row] = [
        {**found, "solver": row["solver"], "optimizer": name, "digits": row["digits"]}
        for row in rows
        for name, found in row["others"].items()
    ]
    columns = {
        "solver": lambda row: Cell(row["solver"]),
        "optimizer": lambda row: Cell(row["optimizer"]),
        "result": lambda row: Cell(spread(row["mean"], row["deviation"], row["digits"])),
        "lr": lambda row: Cell(rate_text(row["lr"])),
        "seeds": lambda row: Cell(str(len(row["per_seed"]))),
    }
    tables.append(_table(f"{title}; other optimizers", columns, others))
    return [table for table in tables if table.body]


def _table(title: str, columns: Mapping[str, Callable[[Row], Cell]], rows: Iterable[Row]) -> Table:
    """Without the columns that have nothing to say."""
    body = [{heading: cell(row) for heading, cell in columns.items()} for row in rows]
    header = tuple(heading for heading in columns if any(line[heading].text for line in body))
    return Table(title, header, tuple(tuple(line[heading] for heading in header) for line in body))


def _result(row: Row, optimizer: str) -> Cell:
    if optimizer == "marginal" and row["marginal_is_madam"]:
        return Cell("= MAdam")
    diverged = row["diverged"].get(optimizer, 0)
    if diverged:
        return Cell(f"{diverged} of {len(row['seeds'])} diverged", row["better"] == optimizer)
    return Cell(spread(row[optimizer], row["deviation"][optimizer], row["digits"]), row["better"] == optimizer)


def spread(mean: float | None, deviation: float | None, digits: int) -> str:
    if mean is None:
        return ""
    if not math.isfinite(mean):
        return "diverged"
    return f"{mean:.{digits}f}" + ("" if deviation is None else f" ± {deviation:.{digits}f}")


def _difference(row: Row) -> str:
    difference, digits = row["difference"], row["digits"]
    if difference is None or not math.isfinite(difference["mean"]):
        return ""
    text = f"{difference['mean']:+.{digits}f}"
    if difference["low"] is not None:
        text += f" [{difference['low']:+.{digits}f}, {difference['high']:+.{digits}f}]"
    return text


def _paper(row: Row) -> str:
    if row["paper"] is None:
        return ""
    adam, madam = (f"{row['paper'][name][0]:.{row['digits']}f}" for name in ("adam", "madam"))
    return f"{adam} -> {madam}" + (" †" if row["paper"]["of"] != row["benchmark"] else "")


def _rates(row: Row) -> str:
    """One rate if it is the same for all; else those of Adam, Adam twice and MAdam."""
    rates = [rate_text(row["lr"][name]) for name in NAMES]
    return rates[0] if len(set(rates) - {"-"}) == 1 and rates[0] != "-" else "/".join(rates)


def rate_text(lr: float | None) -> str:
    if lr is None:
        return "-"
    mantissa, exponent = f"{lr:.2e}".split("e")
    return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"


def _time(row: Row) -> str:
    adam, madam = (row["seconds_to_target"].get(name) for name in ("adam", "madam"))
    return f"{madam / adam:.2f}" if adam and madam and math.isfinite(adam + madam) else ""


def _notes(rows: Sequence[Row], mark: str) -> list[str]:
    notes = [NOTE.format(mark=mark, split=rows[0].get("split", "test").capitalize())]
    if any(len({row["lr"][name] for name in NAMES} - {None}) > 1 for row in rows):
        notes.append("lr: Adam/Adam twice/MAdam, where they differ.")
    borrowed = dict.fromkeys(r["paper"]["of"] for r in rows if r["paper"] and r["paper"]["of"] != r["benchmark"])
    left_out = dict.fromkeys((row["benchmark"], row["left_out"]) for row in rows if row["left_out"])
    return [
        *notes,
        *(f"† The paper's figure is of {of}: the full data." for of in borrowed),
        *(f"{name}: {count} runs of other profiles or sizes are not shown." for name, count in left_out),
    ]


# ---------------------------------------------------------------- how it is written


def _text(tables: Sequence[Table], notes: Sequence[str]) -> str:
    parts = []
    for table in tables:
        body = [[f"*{cell.text}" if cell.bold else cell.text for cell in line] for line in table.body]
        widths = [max(map(len, column)) for column in zip(table.header, *body, strict=True)]
        lines = [table.header, ["-" * width for width in widths], *body]
        padded = ["  ".join(f"{x:<{w}}" for x, w in zip(line, widths, strict=True)).rstrip() for line in lines]
        parts.append("\n".join([table.title, *padded]))
    return "\n\n".join([*parts, "\n".join(textwrap.fill(note, WIDTH) for note in notes)]) + "\n"


def _markdown(tables: Sequence[Table], notes: Sequence[str]) -> str:
    parts = []
    for table in tables:
        body = [[f"**{_escape(c.text)}**" if c.bold else _escape(c.text) for c in line] for line in table.body]
        lines = [table.header, ["---"] * len(table.header), *body]
        parts.append(
            "\n".join([f"**{_escape(table.title)}**", "", *("| " + " | ".join(line) + " |" for line in lines)])
        )
    return "\n\n".join([*parts, *(_escape(note) for note in notes)]) + "\n"


def _escape(text: str) -> str:
    return re.sub(r"([\\|*_<`])", r"\\\1", text)


LATEX = {
    **{c: f"\\{c}" for c in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{c: f"${c}$" for c in "<>|"},
    "->": r"$\to$",
    " - ": " $-$ ",
    "±": r"$\pm$",
    "†": r"$^\dagger$",
}


def _tex(text: str) -> str:
    pattern = "|".join(re.escape(key) for key in sorted(LATEX, key=len, reverse=True)) + r"|(?<!\w)-(?=\d)"
    return re.sub(pattern, lambda match: LATEX.get(match[0], "$-$"), text)


def _latex(tables: Sequence[Table], notes: Sequence[str]) -> str:
    parts = []
    for table in tables:
        body = [[rf"\textbf{{{_tex(c.text)}}}" if c.bold else _tex(c.text) for c in line] for line in table.body]
        parts.append(
            "\n".join(
                [
                    r"\begin{table}[!t]",
                    r"\centering\small",
                    rf"\caption{{{_tex(table.title)}.}}",
                    rf"\begin{{tabular}}{{{'l' * len(table.header)}}}",
                    r"\toprule",
                    " & ".join(map(_tex, table.header)) + r" \\",
                    r"\midrule",
                    *(" & ".join(line) + r" \\" for line in body),
                    r"\bottomrule",
                    r"\end{tabular}",
                    r"\end{table}",
                ]
            )
        )
    return "\n\n".join([*parts, *(_tex(note) for note in notes)]) + "\n"


def _csv(rows: Sequence[dict[str, Any]]) -> str:
    """One line a row, nested names joined by dots; numbers at full precision."""
    file = io.StringIO()
    names = dict.fromkeys(key for row in rows for key in row)
    parents = {name.rpartition(".")[0] for name in names}  # None in one row, and a group of columns in another
    columns = [name for name in names if name not in parents or any(row.get(name) is not None for row in rows)]
    writer = csv.DictWriter(file, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def _flat(value: Any, name: str = "") -> dict[str, Any]:
    if isinstance(value, Mapping):
        parts = (_flat(inner, f"{name}.{key}" if name else str(key)) for key, inner in value.items())
        return {key: inner for part in parts for key, inner in part.items()}
    return {name: " ".join(map(str, value)) if isinstance(value, list) else value}


def _clean(value: Any) -> Any:
    """What JSON can hold: infinities, of runs that diverged, become null."""
    if isinstance(value, Mapping):
        return {key: _clean(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_clean(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
