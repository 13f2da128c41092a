"""The page in a real browser: drawn, sorted, dark, on a phone, on paper, and without a network."""

import base64
import json
import shutil

import pytest

from madamoo.presentation.page import Page, Section, Slider, write_page
from madamoo.presentation.plots import Figure, layout
from madamoo.report.make import make_page

webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium")
from selenium.webdriver.support.ui import WebDriverWait  # noqa: E402

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")
if not BROWSER or not DRIVER:
    pytest.skip("needs chromium and chromedriver (Debian: chromium, chromium-driver)", allow_module_level=True)

PHONE, DESK = 390, 1200
FLAGS = ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--hide-scrollbars")


@pytest.fixture(scope="module")
def browser():
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    try:
        driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    except Exception as error:  # a browser that is there but cannot be started, as in some containers
        pytest.skip(f"chromium does not start: {str(error).splitlines()[0]}")
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def pages(tmp_path_factory, lab, own, learned_fronts):
    folder = tmp_path_factory.mktemp("pages")
    sources = {
        "run": [lab / "madam-0"],
        "folder": [lab],
        "own": [own],
        "pair": [lab / "adam-0", lab / "madam-0"],
        "fronts": [learned_fronts],
    }
    return {name: write_page(make_page(paths)[0], folder / f"{name}.html") for name, paths in sources.items()}


@pytest.fixture
def visit(browser, pages):
    def go(name, width=DESK, dark=False):
        command = browser.execute_cdp_cmd
        command("Emulation.setDeviceMetricsOverride", {"width": width, "height": 900, "deviceScaleFactor": 1,
                                                       "mobile": width == PHONE})  # fmt: skip
        set_dark(browser, dark)
        for kind in ("browser", "performance"):
            browser.get_log(kind)  # what is in it is of the page before
        browser.get(pages[name].as_uri())
        until(browser, lambda: drawn(browser) == [True] * len(drawn(browser)))
        return browser

    return go


def until(browser, condition):
    """Wait for it; the limit is for a page that will never be ready, not for a slow machine."""
    WebDriverWait(browser, 600, poll_frequency=0.05).until(lambda _: condition())


def drawn(browser):
    """Whether each plot is drawn, something in it and its shape set."""
    return browser.execute_script(
        """return [...document.querySelectorAll('.plot')].map((plot) => plot.style.aspectRatio !== '' &&
        plot.querySelector('svg.main-svg') !== null &&
        plot.querySelector('.trace, .hm, .cartesianlayer .plot path, .gl-container') !== null)"""
    )


def set_dark(browser, dark):
    feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})


def style(browser, selector, name):
    return browser.execute_script(
        "return getComputedStyle(document.querySelector(arguments[0]))[arguments[1]]", selector, name
    )


def lightness(colour):
    red, green, blue = (int(part) for part in colour[colour.index("(") + 1 : -1].split(",")[:3])
    return (red + green + blue) / 3


def test_everything_is_drawn_and_nothing_goes_wrong_or_is_fetched(visit):
    for name in ("run", "folder", "own", "pair", "fronts"):
        browser = visit(name)
        assert len(drawn(browser)) > 0
        assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []
        assert browser.execute_script("return document.querySelectorAll('img, svg script').length") == 0
        sent = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
        urls = [m["params"]["request"]["url"] for m in sent if m["method"] == "Network.requestWillBeSent"]
        assert [url for url in urls if not url.startswith(("file:", "data:", "blob:"))] == []
        assert browser.execute_script("return performance.getEntriesByType('resource').map((e) => e.name)") == []


COLUMN = """const cells = [...document.querySelectorAll(arguments[0])]
    .find((table) => table.rows.length > 4).tBodies[0].rows;
    return [...cells].map((row) => row.cells[arguments[1]].textContent)"""


def test_a_click_or_a_key_sorts_a_table(visit):
    browser = visit("folder")
    heads = browser.execute_script(
        "return [...[...document.querySelectorAll('table')].find((t) => t.rows.length > 4).tHead.rows[0].cells]"
        ".map((cell) => cell.textContent)"
    )
    k = heads.index("error")
    button = browser.execute_script(
        "return [...document.querySelectorAll('table')].find((t) => t.rows.length > 4)"
        ".tHead.rows[0].cells[arguments[0]].querySelector('button')",
        k,
    )

    def values():
        return [float(text) for text in browser.execute_script(COLUMN, "table", k)]

    def state():
        return browser.execute_script("return arguments[0].closest('th').getAttribute('aria-sort')", button)

    before = values()
    assert state() == "none" and before != sorted(before)
    button.click()
    assert values() == sorted(before) and state() == "ascending"
    button.send_keys("\ue007")  # Enter
    assert values() == sorted(before, reverse=True) and state() == "descending"


def test_on_a_phone_the_page_does_not_scroll_sideways(visit):
    for name in ("run", "folder", "own", "pair"):
        check_phone(visit, name)


def check_phone(visit, name):
    browser = visit(name, width=PHONE)
    assert browser.execute_script("return innerWidth") == PHONE
    assert browser.execute_script("return document.documentElement.scrollWidth") <= PHONE
    wide = "return [...document.querySelectorAll('.plot svg.main-svg')].map((s) => s.getBoundingClientRect().right)"
    assert max(browser.execute_script(wide)) <= PHONE
    boxes = "return [...document.querySelectorAll('.scroll')].some((box) => box.scrollWidth > box.clientWidth)"
    assert name == "own" or browser.execute_script(boxes), "a wide table scrolls in its own box"


def test_the_dark_changes_page_and_plots_while_it_is_open(visit):
    browser = visit("run")
    places = [
        ("body", "backgroundColor"),
        ("body", "color"),
        (".plot .xtick text", "fill"),
        (".plot path.js-line", "stroke"),
    ]
    light = [style(browser, *place) for place in places]
    set_dark(browser, True)
    until(browser, lambda: all(style(browser, *place) != old for place, old in zip(places, light, strict=True)))
    dark = [style(browser, *place) for place in places]
    assert lightness(light[0]) > 240 and lightness(dark[0]) < 40
    assert lightness(dark[1]) > 200 and lightness(dark[2]) > 150
    assert [style(visit("run", dark=True), *place) for place in places] == dark


def test_on_paper_it_is_light_and_no_plot_is_cut(visit):
    browser = visit("run", dark=True)
    assert base64.b64decode(browser.execute_cdp_cmd("Page.printToPDF", {})["data"]).startswith(b"%PDF")
    # The same style sheet, on the screen, at the width that paper has.
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                            {"width": 690, "height": 900, "deviceScaleFactor": 1, "mobile": False})  # fmt: skip
    until(browser, lambda: lightness(style(browser, "body", "backgroundColor")) == 255)
    cut = """return [...document.querySelectorAll('.plot')].filter((plot) => {
        const outer = plot.getBoundingClientRect(), inner = plot.querySelector('svg.main-svg').getBoundingClientRect();
        return inner.height < 80 || inner.right > outer.right + 1 || inner.bottom > outer.bottom + 1;
    }).length"""
    until(browser, lambda: browser.execute_script(cut) == 0)
    until(browser, lambda: browser.execute_script("return document.documentElement.scrollWidth") <= 690)
    boxes = "return [...document.querySelectorAll('.scroll')].map((box) => getComputedStyle(box).overflowX)"
    assert set(browser.execute_script(boxes)) == {"visible"}


def test_a_slider_moves_what_its_figure_shows_and_stays_where_it_is_in_the_dark(browser, tmp_path):
    figure = Figure("Dots", [{"type": "scatter", "x": [1, 2], "y": [1, 2]}, {"type": "scatter", "x": [0], "y": [0]}],
                    layout())  # fmt: skip
    slider = Slider(figure, "Where", [1], [{"x": [[k]], "y": [[10 * k]]} for k in range(5)], [*"abcde"], 2, ("<", ">"))
    set_dark(browser, False)
    browser.get(write_page(Page("p", sections=[Section("s", [slider])]), tmp_path / "page.html").as_uri())

    def shown():
        return browser.execute_script(
            """const { data } = document.getElementById('figure-0');
            return [data?.[0].x, data?.[1].x, data?.[1].y, document.querySelector('output').textContent]"""
        )

    until(browser, lambda: shown() == [[1, 2], [2], [20], "c"])
    handle = browser.find_element("css selector", "input[type=range]")
    handle.send_keys("\ue014")  # the right arrow
    until(browser, lambda: shown() == [[1, 2], [3], [30], "d"])
    set_dark(browser, True)
    until(browser, lambda: shown() == [[1, 2], [3], [30], "d"])
    handle.send_keys("\ue012\ue012\ue012")
    until(browser, lambda: shown() == [[1, 2], [0], [0], "a"])
    set_dark(browser, False)
