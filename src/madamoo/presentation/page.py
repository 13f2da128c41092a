"""A page: sections of words, tables and figures, and the one place where they become HTML.

Whatever comes in is text, never markup: names of objectives and paths are a user's own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any, TypeAlias

from madamoo import __version__
from madamoo.files import write_text

from .images import Gallery, gallery_html
from .plots import Figure
from .style import DARK
from .tables import Table, caption_html, finite, table_html


@dataclass(frozen=True)
class Panels:
    """Figures side by side where there is room; narrow ones three in a row."""

    figures: Sequence[Figure]
    narrow: bool = False


@dataclass(frozen=True)
class Slider:
    """A figure with a slider below it: each of its positions gives new data to some of the figure's traces.

    ``positions`` has, for each position, plotly's fields and their values, one per trace of ``traces``:
    ``{"x": [[1.0]], "y": [[2.0]]}`` moves one dot. ``texts`` says in words what is shown there.
    """

    figure: Figure
    label: str
    traces: Sequence[int]
    positions: Sequence[Mapping[str, Sequence[Any]]]
    texts: Sequence[str]
    start: int
    ends: tuple[str, str]  # what the slider goes from, and to


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


@dataclass(frozen=True)
class Verdict:
    """What it all comes to, and what to do about it."""

    text: str
    advice: Sequence[str] = ()


# A string is a paragraph.
Block: TypeAlias = str | Table | Figure | Slider | Gallery | Panels | Facts | Notes | Points | Verdict


@dataclass(frozen=True)
class Section:
    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Page:
    title: str
    lead: str = ""
    sections: Sequence[Section] = field(default_factory=tuple)


Drawn: TypeAlias = dict[str, Any]  # a figure as the script gets it


def write_page(page: Page, path: Path) -> Path:
    """Write the page and return its path."""
    return write_text(path, render(page))


def render(page: Page) -> str:
    """The page as HTML, with its style, its script and plotly's own inside."""
    from plotly.offline import get_plotlyjs

    shown = [section for section in page.sections if section.blocks]
    figures: list[Drawn] = []
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
        figures=_json(figures),
        dark=_json(DARK),
    )


def _part(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8").strip()


def _json(value: Any) -> str:
    """JSON that cannot end the script it stands in; what is not finite is a gap."""
    text = json.dumps(finite(value), separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _section(number: int, section: Section, figures: list[Drawn]) -> str:
    blocks = "\n".join(_block(block, figures) for block in section.blocks)
    return f'<section id="section-{number}">\n<h2>{escape(section.title)}</h2>\n{blocks}\n</section>'


def _block(block: Block, figures: list[Drawn]) -> str:
    """The block as HTML; its figures are added to the list, for the script to draw."""
    if isinstance(block, Table):
        return table_html(block)
    if isinstance(block, Figure):
        return _figure(block, figures)
    if isinstance(block, Slider):
        return _slider(block, figures)
    if isinstance(block, Gallery):
        return gallery_html(block)
    if isinstance(block, Panels):
        inside = "\n".join(_figure(figure, figures) for figure in block.figures)
        return f'<div class="panels{" narrow" if block.narrow else ""}">\n{inside}\n</div>'
    if isinstance(block, Facts):
        items = "\n".join(f"<dt>{escape(key)}</dt><dd>{escape(value)}</dd>" for key, value in block.items.items())
        return f"<dl>\n{items}\n</dl>"
    if isinstance(block, Points):
        return _list(block.lines)
    if isinstance(block, Notes):
        return f'<div class="notes">{_list(block.lines)}</div>'
    if isinstance(block, Verdict):
        advice = f"<p><strong>Advice.</strong></p>{_list(block.advice)}" if block.advice else ""
        return f'<div class="verdict"><p><strong>Verdict.</strong> {_prose(block.text)}</p>{advice}</div>'
    return f"<p>{_prose(block)}</p>"


def _list(lines: Sequence[str]) -> str:
    items = "\n".join(f"<li>{_prose(line)}</li>" for line in lines)
    return f"<ul>\n{items}\n</ul>"


def _prose(text: str) -> str:
    return escape(text).replace(" %", "\u00a0%")  # no line begins with a sign


def _figure(figure: Figure, figures: list[Drawn], below: str = "") -> str:
    figures.append({"data": figure.data, "layout": figure.layout})
    label = escape(f"{figure.title}. {figure.caption}".rstrip(". "))
    return (
        f"<figure>{caption_html(figure.title, figure.caption)}\n"
        f'<div class="plot" id="figure-{len(figures) - 1}" role="img" aria-label="{label}" '
        f'style="height:{figure.height}px"></div>{below}</figure>'
    )


def _slider(block: Slider, figures: list[Drawn]) -> str:
    """The browser's own slider: fingers, keys and screen readers know it."""
    place = f"figure-{len(figures)}"
    begin, end = (f"<span>{escape(text)}</span>" for text in block.ends)
    below = (
        f'\n<div class="slider"><label for="{place}-slider">{escape(block.label)}</label>{begin}'
        f'<input type="range" id="{place}-slider" min="0" max="{len(block.positions) - 1}" step="1" '
        f'value="{block.start}" aria-describedby="{place}-text" autocomplete="off">{end}</div>'
        f'\n<output id="{place}-text" for="{place}-slider">{escape(block.texts[block.start])}</output>'
    )
    html = _figure(block.figure, figures, below)
    figures[-1]["slider"] = {"traces": block.traces, "positions": block.positions, "texts": block.texts}
    return html
