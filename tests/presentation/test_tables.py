"""Tables: nothing is cut off, nothing becomes markup, and a page sorts numbers as numbers."""

import csv
import io
import json
import math
import re

import pytest

from madamoo.presentation.tables import Cell, Table, check_format, rich_table, table_html, write_data, write_tables

NASTY = "a_b=50%:x={1}&#~^$<|>\\"
TABLE = Table(
    "A title, a_b",
    ["solver", "two\nlines"],
    [["ls", Cell("10.05 ± 0.07", bold=True)], [NASTY, "-1.00 [-1.00, -1.00]"], ["x", 0.123456], ["10 -> 9 †", None]],
    "Its caption.",
)
NOTES = ["A note: 50 % of *all*.", "Another."]


def test_text_is_aligned_and_notes_are_wrapped():
    title, header, rule, *body = write_tables([TABLE], [*NOTES, "word " * 60], "text").splitlines()
    assert title == "A title, a_b" and header.split("  ")[0] == "solver" and header.endswith("two lines")
    place = header.index("two lines")
    assert set(rule) == {"-", " "}
    assert [line[place:].strip() for line in body[:3]] == ["*10.05 ± 0.07", "-1.00 [-1.00, -1.00]", "0.1235"]
    assert body[1].startswith(NASTY), "nothing is cut off"
    assert max(map(len, body)) <= 120


def test_markdown_has_whole_tables():
    text = write_tables([TABLE], NOTES, "markdown")
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len(lines) == 6 and len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1
    assert set(lines[1]) <= set("|- ") and "**10.05 ± 0.07**" in text and "\\*all\\*" in text


def check_latex(text):
    """Braces, mathematics and environments are closed, no special character is bare, rows are as wide as declared."""
    bare = re.sub(r"\\[\\&%$#_{}]", "", text)
    depth = 0
    for character in bare:
        depth += {"{": 1, "}": -1}.get(character, 0)
        assert depth >= 0
    assert depth == 0
    assert bare.count("$") % 2 == 0
    outside = re.sub(r"\$[^$\n]*\$", "", bare)
    assert not re.search(r"[%#_^~<>|]", outside) and outside.isascii()
    opened = []
    for kind, name in re.findall(r"\\(begin|end)\{(\w+)\}", text):
        if kind == "begin":
            opened.append(name)
        else:
            assert opened.pop() == name
    assert not opened
    commands = {"begin", "end", "centering", "small", "caption", "toprule", "midrule", "bottomrule", "textbf"}
    commands |= {"pm", "to", "dagger", "textbackslash", "textasciitilde", "textasciicircum"}
    assert set(re.findall(r"\\([a-z]+)", text)) <= commands
    for columns, body in re.findall(r"\\begin\{tabular\}\{(l+)\}(.*?)\\end\{tabular\}", text, flags=re.DOTALL):
        lines = [line for line in body.splitlines() if line.endswith(r"\\")]
        assert len(lines) > 1
        assert all(len(re.findall(r"(?<!\\)&", line)) == len(columns) - 1 for line in lines)


def test_latex_is_balanced_and_escaped():
    text = write_tables([TABLE], NOTES, "latex")
    check_latex(text)
    assert r"\textbf{10.05 $\pm$ 0.07}" in text and r"10 $\to$ 9 $^\dagger$" in text
    assert r"a\_b" in text and "$-$1.00 [$-$1.00, $-$1.00]" in text
    for wrong in ("a_b", "50%", r"\textbf{a", "$x", r"\begin{table}", r"\em", "±"):
        with pytest.raises(AssertionError):
            check_latex(text + wrong)


def test_a_terminal_shows_every_cell():
    from rich.console import Console

    console = Console(width=100, record=True, file=io.StringIO())
    console.print(rich_table(TABLE))
    shown = console.export_text()
    for text in ("A title", "two", "10.05 ± 0.07", "0.1235", "Its caption"):
        assert text in shown


def test_columns_of_numbers_are_sorted_as_numbers_and_others_as_text():
    for cells, keys in (
        ([1.5, None, 2], ["1.5", "", "2.0"]),
        (["91.2 ± 0.3", "-4", "+5 [1, 9]"], ["91.2", "-4", "+5"]),
        ([Cell("50 %", value=0.5), Cell(""), Cell("as before", value=math.nan)], ["0.5", "", ""]),
    ):
        text = table_html(Table("t", ["name", "x"], [["a", cell] for cell in cells]))
        assert re.findall(r'<td data-key="(.*?)"', text) == keys
        assert text.count('data-kind="number"') == 1
        assert text.count('aria-sort="none"') == text.count("<button") == 2
    for cells in (["1.2", "as before"], ["mlp:width=3", "x"], ["1:2", "2:3"], ["", None]):
        assert 'data-kind="number"' not in table_html(Table("t", ["name", "x"], [["a", cell] for cell in cells]))


def test_data_keep_full_precision_and_have_null_for_infinite():
    rows = [{"a": 1 / 3, "b": {"c": [1, 2], "d": None}}, {"a": math.inf, "b": None}]
    first, second = json.loads(write_data(rows, "json"), parse_constant=pytest.fail)
    assert first == rows[0] and second == {"a": None, "b": None}
    read = list(csv.DictReader(io.StringIO(write_data(rows, "csv"))))
    assert read[0] == {"a": repr(1 / 3), "b.c": "1 2", "b.d": ""} and read[1]["a"] == ""
    with pytest.raises(ValueError, match="text, markdown, latex, csv, json, got 'html'"):
        check_format("html")
