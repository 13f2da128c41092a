"""The page: whatever comes in is text, and nothing is fetched."""

import json
import re
from html.parser import HTMLParser

import pytest

from madamoo.presentation.page import (
    Facts,
    Notes,
    Page,
    Panels,
    Points,
    Section,
    Slider,
    Verdict,
    render,
    write_page,
)
from madamoo.presentation.plots import Figure
from madamoo.presentation.style import DARK
from madamoo.presentation.tables import Cell, Table

EVIL = "<img src=x onerror=alert(1)>\"'&</script><!--"


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.scripts, self.loads, self.ids = [], [], [], []
        self.open = None

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.open = tag
        self.ids += [value for name, value in attrs if name == "id"]
        self.loads += [v for n, v in attrs if n in ("src", "href", "srcset") and not (v or "").startswith("#")]

    def handle_endtag(self, tag):
        self.open = None

    def handle_data(self, data):
        if self.open == "script":
            self.scripts.append(data)


def parse(text):
    found = Tags()
    found.feed(text)
    return found


@pytest.fixture(scope="module")
def evil():
    """Every kind of block, and every text in it the same."""
    figure = Figure(EVIL, [{"type": "scatter", "x": [1, 2], "y": [1.0, float("nan")], "name": EVIL}], {"a": EVIL}, EVIL)
    table = Table(EVIL, [EVIL, EVIL], [[EVIL, EVIL], [EVIL, Cell(EVIL, value=1.0)]], EVIL)
    blocks = [EVIL, figure, Panels([figure]), table, Facts({EVIL: EVIL}), Notes([EVIL]), Points([EVIL])]
    blocks.append(Verdict(EVIL, [EVIL]))
    blocks.append(Slider(figure, EVIL, [0], [{"name": [EVIL]}, {"name": ["b"]}], [EVIL, EVIL], 1, (EVIL, EVIL)))
    return render(Page(EVIL, EVIL, [Section(EVIL, blocks), Section("Nothing", [])]))


def test_no_text_becomes_markup(evil):
    found = parse(evil)
    assert not [tag for tag, _ in found.tags if tag == "img"]
    assert [tag for tag, _ in found.tags].count("script") == 4
    assert not any(name.startswith("on") for _, attrs in found.tags for name in attrs)
    assert "onerror" in evil  # it is there to be read


def test_figures_are_data_that_cannot_leave_their_script(evil):
    figures, dark = parse(evil).scripts[:2]
    assert not set("<>&") & set(figures)
    first, second, slid = json.loads(figures)
    assert first == second == {key: slid[key] for key in first}
    assert slid["slider"]["positions"][0] == {"name": [EVIL]} and slid["slider"]["texts"] == [EVIL, EVIL]
    assert first["data"][0]["name"] == EVIL and first["data"][0]["y"] == [1.0, None]
    assert json.loads(dark) == DARK


def test_the_page_needs_nothing_but_itself(evil):
    found = parse(evil)
    assert found.loads == []
    policy = next(attrs["content"] for tag, attrs in found.tags if attrs.get("http-equiv"))
    assert policy.startswith("default-src 'none'") and "http" not in policy
    style = evil[evil.index("<style>") : evil.index("</style>")]
    assert "url(" not in style and "@import" not in style
    assert len(found.ids) == len(set(found.ids))
    assert evil.count("plotly.js v") == 1, "the library is there once"


def test_a_slider_is_the_browsers_own_and_belongs_to_its_figure(evil):
    found = parse(evil)
    (slider,) = [attrs for tag, attrs in found.tags if tag == "input"]
    assert (slider["type"], slider["min"], slider["max"], slider["value"]) == ("range", "0", "1", "1")
    assert slider["id"] == "figure-2-slider" and {"figure-2", "figure-2-slider", "figure-2-text"} <= set(found.ids)
    assert [attrs["for"] for tag, attrs in found.tags if tag in ("label", "output")] == [slider["id"]] * 2


def test_an_empty_section_is_left_out(evil):
    assert "Nothing" not in [s for s in re.findall(r"<h2>(.*?)</h2>", evil)]


def test_a_page_with_half_a_character_is_written(tmp_path):
    path = tmp_path / "deep" / "page.html"
    assert write_page(Page("half a pair: \ud800", sections=[Section("s", ["text"])]), path) == path
    assert b"half a pair: ?" in path.read_bytes()
