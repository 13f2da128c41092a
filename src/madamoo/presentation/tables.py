"""One table, written as text, Markdown, LaTeX, HTML or for a terminal; and records as CSV or JSON."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, NamedTuple, TypeAlias

FORMATS = ("text", "markdown", "latex", "csv", "json")
WIDTH = 120  # of notes; tables are as wide as they need to be
TALL = 25  # rows; on a page a longer table scrolls in a box of its own


class Cell(NamedTuple):
    """A text in a table; ``value`` is the number it shows, by which a page sorts."""

    text: str
    bold: bool = False
    value: float | None = None

    def __str__(self) -> str:
        return self.text


Value: TypeAlias = str | float | int | Cell | None


@dataclass(frozen=True)
class Table:
    """The first column is the label of the row."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[Value]]
    caption: str = ""


def number(value: float | None, form: str = ".3g") -> Cell:
    """A number in this form; nothing where it is None."""
    return Cell("" if value is None else format(value, form), value=value)


def share(value: float | None) -> Cell:
    """A share as a percentage."""
    return Cell("" if value is None else f"{100 * value:.1f} %", value=value)


def check_format(format: str) -> None:
    if format not in FORMATS:
        raise ValueError(f"format must be one of {', '.join(FORMATS)}, got {format!r}")


def write_tables(tables: Sequence[Table], notes: Sequence[str], format: str) -> str:
    """Tables one below the other, and the notes below them; captions follow their tables."""
    write, written = {"text": (_text, _filled), "markdown": (_markdown, _escape), "latex": (_latex, _tex)}[format]
    parts = []
    for table in tables:
        parts += [write(table), *([written(table.caption)] if table.caption else [])]
    last = [written(note) for note in notes]
    return "\n\n".join([*parts, *(["\n".join(last)] if format == "text" and last else last)]) + "\n"


def _written(value: Value) -> Cell:
    if isinstance(value, Cell):
        return value
    return Cell("" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value))


def _flat_text(text: str) -> str:
    return text.replace("\n", " ")


def _text(table: Table) -> str:
    body = [[f"*{cell.text}" if cell.bold else cell.text for cell in map(_written, row)] for row in table.rows]
    header = [_flat_text(name) for name in table.header]
    widths = [max(map(len, column)) for column in zip(header, *body, strict=True)]
    lines = [header, ["-" * width for width in widths], *body]
    padded = ["  ".join(f"{x:<{w}}" for x, w in zip(line, widths, strict=True)).rstrip() for line in lines]
    return "\n".join([table.title, *padded])


def _filled(text: str) -> str:
    return textwrap.fill(text, WIDTH)


def _markdown(table: Table) -> str:
    body = [[f"**{_escape(c.text)}**" if c.bold else _escape(c.text) for c in map(_written, row)] for row in table.rows]
    lines = [[_escape(_flat_text(name)) for name in table.header], ["---"] * len(table.header), *body]
    return "\n".join([f"**{_escape(table.title)}**", "", *("| " + " | ".join(line) + " |" for line in lines)])


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
    "≥": r"$\ge$",
    "≤": r"$\le$",
    "†": r"$^\dagger$",
    "²": "$^2$",
}


def _tex(text: str) -> str:
    pattern = "|".join(re.escape(key) for key in sorted(LATEX, key=len, reverse=True)) + r"|(?<!\w)-(?=\d)"
    return re.sub(pattern, lambda match: LATEX.get(match[0], "$-$"), text)


def _latex(table: Table) -> str:
    body = [[rf"\textbf{{{_tex(c.text)}}}" if c.bold else _tex(c.text) for c in map(_written, r)] for r in table.rows]
    return "\n".join(
        [
            r"\begin{table}[!t]",
            r"\centering\small",
            rf"\caption{{{_tex(table.title)}.}}",
            rf"\begin{{tabular}}{{{'l' * len(table.header)}}}",
            r"\toprule",
            " & ".join(_tex(_flat_text(name)) for name in table.header) + r" \\",
            r"\midrule",
            *(" & ".join(line) + r" \\" for line in body),
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
        ]
    )


def rich_table(table: Table) -> Any:
    """For a terminal, by rich."""
    from rich import box
    from rich.table import Table as RichTable

    shown = RichTable(
        title=f"\n{table.title}",
        caption=table.caption,
        title_justify="left",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        collapse_padding=True,
        pad_edge=False,  # the widest table then fits 80 columns
    )
    for k, name in enumerate(table.header):
        shown.add_column(name, justify="right" if k else "left")
    for row in table.rows:
        shown.add_row(*(_written(value).text for value in row))
    return shown


# ---------------------------------------------------------------- on a page


def table_html(table: Table) -> str:
    """A table that a click on a header sorts; columns of numbers are known by their cells."""
    columns = [[_key(row[k]) for row in table.rows] for k in range(len(table.header))]
    numeric = [k > 0 and any(keys) and None not in keys for k, keys in enumerate(columns)]
    head = "".join(
        f'<th scope="col" aria-sort="none" data-kind="{"number" if is_number else "text"}"'
        f'{"" if is_number else " class=words"}><button type="button">{escape(name)}</button></th>'
        for name, is_number in zip(table.header, numeric, strict=True)
    )
    body = "\n".join(f"<tr>{_row(row, numeric)}</tr>" for row in table.rows)
    box = "scroll tall" if len(table.rows) > TALL else "scroll"
    return (
        f'<figure class="table">{caption_html(table.title, table.caption)}\n'
        f'<div class="{box}" tabindex="0" role="region" aria-label="{escape(table.title)}">'
        f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table></div></figure>"
    )


def caption_html(title: str, text: str) -> str:
    return f"<figcaption><strong>{escape(title)}</strong> {escape(text)}</figcaption>"


def _row(row: Sequence[Value], numeric: Sequence[bool]) -> str:
    label, *values = row
    name = escape(_written(label).text)
    cells = [f'<th scope="row" title="{name}">{name}</th>']
    for value, is_number in zip(values, numeric[1:], strict=True):
        mark = f' data-key="{_key(value)}"' if is_number else ' class="words"'
        cells.append(f"<td{mark}>{escape(_written(value).text)}</td>")
    return "".join(cells)


def _key(value: Value) -> str | None:
    """What a cell is sorted by in a column of numbers: empty if it holds nothing, None if it is no number."""
    if isinstance(value, Cell):
        value = value.text if value.value is None else value.value
    if isinstance(value, str):
        found = re.match(r"\s*([+−-]?\d+(\.\d+)?(e[+-]?\d+)?)(?![\w.:])", value)
        return found[1].replace("−", "-") if found else ("" if value.strip() in ("", "-") else None)
    return "" if value is None or not math.isfinite(value) else repr(float(value))


# ---------------------------------------------------------------- as data


def write_data(records: Sequence[Mapping[str, Any]], format: str) -> str:
    """Records as JSON, or as CSV with one line each."""
    if format == "json":
        return json.dumps(finite(list(records)), indent=1, allow_nan=False) + "\n"
    return _csv([_flat(finite(record)) for record in records])


def _csv(rows: Sequence[dict[str, Any]]) -> str:
    """One line per row, nested names joined by dots; numbers at full precision."""
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


def finite(value: Any) -> Any:
    """What JSON can hold: numbers that are not finite, of runs that diverged, become null."""
    if isinstance(value, Mapping):
        return {key: finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
