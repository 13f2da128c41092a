"""The report: one HTML page that needs nothing else, neither a network nor the files beside it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import escape
from importlib.resources import files
from string import Template

from .figures import INK
from .summary import Table


def write_page(
    findings: list[str], tables: Mapping[str, Table], figures: Mapping[str, tuple[str, str]], facts: Mapping[str, str]
) -> str:
    """The page's text. ``figures`` hold the SVG and a description of each; names are those in ``page.html``."""
    template = Template(files(__package__).joinpath("page.html").read_text(encoding="utf-8"))
    parts = {f"table_{name}": table_html(table) for name, table in tables.items()}
    parts |= {f"figure_{name.replace('-', '_')}": inline_svg(svg, name, text) for name, (svg, text) in figures.items()}
    parts["findings"] = "\n".join(f"<li>{escape(line)}</li>" for line in findings)
    parts["facts"] = "\n".join(f"<dt>{escape(key)}</dt><dd>{escape(value)}</dd>" for key, value in facts.items())
    return template.substitute(parts)


def table_html(table: Table) -> str:
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in table.header)
    rows = "\n".join(
        f'<tr><th scope="row">{escape(label)}</th>' + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"
        for label, *cells in table.rows
    )
    return (
        f"<figure><figcaption><strong>{escape(table.title)}</strong> {escape(table.caption)}</figcaption>\n"
        f'<div class="scroll"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table></div>\n'
        "</figure>"
    )


def inline_svg(svg: str, name: str, description: str) -> str:
    """A figure file as an element of the page: its ids made unique, its ink that of the text around it."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r' xmlns(:\w+)?="[^"]*"', "", svg)  # HTML knows them
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'(url\(#|href="#)', rf"\g<1>{name}-", svg)
    svg = svg.replace(INK, "currentColor")
    svg = re.sub(
        r'<svg [^>]*?(viewBox="[^"]*")[^>]*>', rf'<svg \1 role="img" aria-label="{escape(description)}">', svg, count=1
    )
    return f"<figure>{svg}</figure>"
