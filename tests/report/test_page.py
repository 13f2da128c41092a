"""The page: whatever comes in is text, and nothing is fetched."""

import json
import re
from html.parser import HTMLParser
from importlib.resources import files

import pytest

from madamoo.report import page as module
from madamoo.report.page import Facts, Figure, Notes, Number, Page, Panels, Points, Section, Table, render, table_html

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
    table = Table(EVIL, [EVIL, EVIL], [[EVIL, EVIL], [EVIL, Number(1.0, EVIL)]], EVIL)
    blocks = [EVIL, figure, Panels([figure]), table, Facts({EVIL: EVIL}), Notes([EVIL]), Points([EVIL])]
    return render(Page(EVIL, EVIL, [Section(EVIL, blocks), Section("Nothing", [])]))


def test_no_text_becomes_markup(evil):
    found = parse(evil)
    assert not [tag for tag, _ in found.tags if tag == "img"]
    assert [tag for tag, _ in found.tags].count("script") == 3
    assert not any(name.startswith("on") for _, attrs in found.tags for name in attrs)
    assert "onerror" in evil  # it is there to be read


def test_figures_are_data_that_cannot_leave_their_script(evil):
    raw = parse(evil).scripts[0]
    assert not set("<>&") & set(raw)
    first, second = json.loads(raw)
    assert first == second
    assert first["data"][0]["name"] == EVIL and first["data"][0]["y"] == [1.0, None]


def test_the_page_needs_nothing_but_itself(evil):
    found = parse(evil)
    assert found.loads == []
    policy = next(attrs["content"] for tag, attrs in found.tags if attrs.get("http-equiv"))
    assert policy.startswith("default-src 'none'") and "http" not in policy
    style = evil[evil.index("<style>") : evil.index("</style>")]
    assert "url(" not in style and "@import" not in style
    assert len(found.ids) == len(set(found.ids))
    assert evil.count("plotly.js v") == 1, "the library is there once"


def test_an_empty_section_is_left_out(evil):
    assert "Nothing" not in [s for s in re.findall(r"<h2>(.*?)</h2>", evil)]


@pytest.mark.parametrize(
    ("cells", "keys"),
    [
        ([1.5, None, 2], ["1.5", "", "2.0"]),
        (["91.2 ± 0.3", "-4", "+5 [1, 9]"], ["91.2", "-4", "+5"]),
        ([Number(0.5, "50 %"), Number(None, ""), Number(float("nan"), "nan")], ["0.5", "", ""]),
    ],
)
def test_columns_of_numbers_are_sorted_as_numbers(cells, keys):
    text = table_html(Table("t", ["name", "x"], [["a", cell] for cell in cells]))
    assert re.findall(r'<td data-key="(.*?)"', text) == keys
    assert text.count('data-kind="number"') == 1


@pytest.mark.parametrize("cells", [["1.2", "as before"], ["mlp:width=3", "x"], ["1:2", "2:3"], ["", None]])
def test_other_columns_are_sorted_as_text(cells):
    assert 'data-kind="number"' not in table_html(Table("t", ["name", "x"], [["a", cell] for cell in cells]))


def test_headers_are_buttons_that_say_how_the_table_is_sorted():
    found = parse(table_html(Table("t", ["name", "x"], [["a", 1.0]])))
    heads = [attrs for tag, attrs in found.tags if tag == "th" and attrs["scope"] == "col"]
    assert [attrs["aria-sort"] for attrs in heads] == ["none", "none"]
    assert [tag for tag, _ in found.tags].count("button") == 2


def test_every_colour_of_a_figure_has_its_counterpart_in_the_dark(lab, own, learned_fronts):
    """What the script does not know would stay as it is, black on black say."""
    from madamoo.report.make import make_page

    known = set(re.findall(r'"(#\w{6})":', files("madamoo.report").joinpath("page.js").read_text()))
    pages = [make_page(p)[0] for p in ([own], [lab], [lab / "adam-0", lab / "madam-0"], [learned_fronts])]
    used = set()
    for made in pages:
        figures: list[Figure] = []
        for k, section in enumerate(made.sections):
            module._section(k, section, figures)
        used |= set(re.findall(r'"(#\w{3,8})"', json.dumps([[f.data, f.layout] for f in figures], default=list)))
    assert used and used <= known
