"""A page: sections of words, tables and figures, and the one place where they become HTML.

Whatever comes in is text, never markup: names of objectives and paths are a user's own.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any, NamedTuple, TypeAlias

from madamoo import __version__

TALL = 25  # rows; a longer table scrolls in a box of its own


class Number(NamedTuple):
    """A number in a table, and how it is written."""

    value: float | None
    text: str

    def __str__(self) -> str:
        return self.text


Value: TypeAlias = str | float | int | Number | None


@dataclass(frozen=True)
class Table:
    """The first column is the label of the row."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[Value]]
    caption: str = ""


@dataclass(frozen=True)
class Figure:
    """A plotly figure in light colours, those of the dark being known to the page; ``caption`` describes it."""

    title: str
    data: Sequence[Mapping[str, Any]]
    layout: Mapping[str, Any]
    caption: str = ""
    height: int = 320


@dataclass(frozen=True)
class Panels:
    """Figures side by side where there is room."""

    figures: Sequence[Figure]


@dataclass(frozen=True)
class Facts:
    """Names and what they are."""

    items: Mapping[str, str]


@dataclass(frozen=True)
class Notes:
    """What the reader should know of the data, as a list."""

    lines: Sequence[str]


@dataclass(frozen=True)
class Points:
    """A list of short findings."""

    lines: Sequence[str]


Block: TypeAlias = str | Table | Figure | Panels | Facts | Notes | Points  # a string is a paragraph


@dataclass(frozen=True)
class Section:
    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Page:
    title: str
    lead: str = ""
    sections: Sequence[Section] = field(default_factory=tuple)


def write_page(page: Page, path: Path) -> Path:
    """Write the page and return its path."""
    text = render(page)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def render(page: Page) -> str:
    """The page as HTML, with its style, its script and plotly's own inside."""
    from plotly.offline import get_plotlyjs

    shown = [section for section in page.sections if section.blocks]
    figures: list[Figure] = []
    sections = [_section(k, section, figures) for k, section in enumerate(shown)]
    links = [f'<a href="#section-{k}">{escape(section.title)}</a>' for k, section in enumerate(shown)]
    return Template(_part("page.html")).substitute(
        title=escape(page.title),
        lead=f'<p class="lead">{escape(page.lead)}</p>' if page.lead else "",
        contents="\n".join(links),
        sections="\n".join(sections),
        footer=f"Made by madamoo {escape(__version__)}. Everything on this page is in this file.",
        style=_part("page.css"),
        script=_part("page.js"),
        plotly=get_plotlyjs().replace("</script", "<\\/script"),
        figures=_json([{"data": figure.data, "layout": figure.layout} for figure in figures]),
    )


def _part(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8").strip()


def _json(value: Any) -> str:
    """JSON that cannot end the script it stands in; what is not finite is a gap."""
    text = json.dumps(_finite(value), separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(x) for key, x in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(x) for x in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _section(number: int, section: Section, figures: list[Figure]) -> str:
    blocks = "\n".join(_block(block, figures) for block in section.blocks)
    return f'<section id="section-{number}">\n<h2>{escape(section.title)}</h2>\n{blocks}\n</section>'


def _block(block: Block, figures: list[Figure]) -> str:
    """The block as HTML; its figures are added to the list, for the script to draw."""
    if isinstance(block, Table):
        return table_html(block)
    if isinstance(block, Figure):
        return _figure(block, figures)
    if isinstance(block, Panels):
        inside = "\n".join(_figure(figure, figures) for figure in block.figures)
        return f'<div class="panels">\n{inside}\n</div>'
    if isinstance(block, Facts):
        items = "\n".join(f"<dt>{escape(key)}</dt><dd>{escape(value)}</dd>" for key, value in block.items.items())
        return f"<dl>\n{items}\n</dl>"
    if isinstance(block, Notes | Points):
        items = "\n".join(f"<li>{_prose(line)}</li>" for line in block.lines)
        kind = ' class="notes"' if isinstance(block, Notes) else ""
        return f"<div{kind}><ul>\n{items}\n</ul></div>" if kind else f"<ul>\n{items}\n</ul>"
    return f"<p>{_prose(block)}</p>"


def _prose(text: str) -> str:
    return escape(text).replace(" %", "\u00a0%")  # no line begins with a sign


def _figure(figure: Figure, figures: list[Figure]) -> str:
    figures.append(figure)
    label = escape(f"{figure.title}. {figure.caption}".rstrip(". "))
    return (
        f"<figure>{_caption(figure.title, figure.caption)}\n"
        f'<div class="plot" id="figure-{len(figures) - 1}" role="img" aria-label="{label}" '
        f'style="height:{figure.height}px"></div></figure>'
    )


def _caption(title: str, text: str) -> str:
    return f"<figcaption><strong>{escape(title)}</strong> {escape(text)}</figcaption>"


def table_html(table: Table) -> str:
    """A table that a click on a header sorts; columns of numbers are known by their cells."""
    columns = [[_key(row[k]) for row in table.rows] for k in range(len(table.header))]
    numeric = [k > 0 and any(keys) and None not in keys for k, keys in enumerate(columns)]
    head = "".join(
        f'<th scope="col" aria-sort="none" data-kind="{"number" if number else "text"}"'
        f'{"" if number else " class=words"}><button type="button">{escape(name)}</button></th>'
        for name, number in zip(table.header, numeric, strict=True)
    )
    body = "\n".join(f"<tr>{_row(row, numeric)}</tr>" for row in table.rows)
    box = "scroll tall" if len(table.rows) > TALL else "scroll"
    return (
        f'<figure class="table">{_caption(table.title, table.caption)}\n'
        f'<div class="{box}" tabindex="0" role="region" aria-label="{escape(table.title)}">'
        f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table></div></figure>"
    )


def _row(row: Sequence[Value], numeric: Sequence[bool]) -> str:
    label, *values = row
    cells = [f'<th scope="row" title="{escape(_text(label))}">{escape(_text(label))}</th>']
    for value, number in zip(values, numeric[1:], strict=True):
        mark = f' data-key="{_key(value)}"' if number else ' class="words"'
        cells.append(f"<td{mark}>{escape(_text(value))}</td>")
    return "".join(cells)


def _text(value: Value) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _key(value: Value) -> str | None:
    """What a cell is sorted by in a column of numbers: empty if it holds nothing, None if it is no number."""
    if isinstance(value, Number):
        value = value.value
    if isinstance(value, str):
        found = re.match(r"\s*([+−-]?\d+(\.\d+)?(e[+-]?\d+)?)(?![\w.:])", value)
        return found[1].replace("−", "-") if found else ("" if value.strip() in ("", "-") else None)
    return "" if value is None or not math.isfinite(value) else repr(float(value))
