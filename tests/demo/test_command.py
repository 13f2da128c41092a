import json
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.testing import CliRunner

import madamoo
from madamoo import cli

TINY = ["--seeds", "1", "--epochs", "1", "--steps", "5"]


class Page(HTMLParser):
    """Collects ids, the ids referred to, and whatever a browser would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.uses: set[str] = set()
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            value = value or ""
            if name == "id":
                self.ids.append(value)
            elif name in ("href", "xlink:href", "src", "srcset"):
                if value.startswith("#"):
                    self.uses.add(value[1:])
                elif not value.startswith("data:"):
                    self.loads.append(value)
            elif "url(#" in value:
                self.uses.add(value.partition("url(#")[2].partition(")")[0])


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The whole command, made small: its folder and what it printed."""
    out = tmp_path_factory.mktemp("demo") / "deep" / "out"
    result = CliRunner().invoke(cli.build_app(), ["demo", "--out", str(out), *TINY])
    assert result.exit_code == 0, result.output
    return out, result.output


def test_demo_prints_its_tables_and_where_the_files_are(finished: tuple[Path, str]) -> None:
    _, output = finished
    for text in ("Two tilted quadratics", "Two-digit images", "CAGrad", "same learning rate", "index.html"):
        assert text in " ".join(output.split())


def test_page_needs_nothing_but_itself(finished: tuple[Path, str]) -> None:
    text = (finished[0] / "index.html").read_text(encoding="utf-8")
    assert "http://" not in text and "https://" not in text
    assert "<script" not in text and "@import" not in text
    page = Page()
    page.feed(text)
    assert page.loads == []
    assert len(page.ids) == len(set(page.ids))
    assert page.uses <= set(page.ids)
    assert text.count("<svg ") == len(list((finished[0] / "figures").glob("*.svg")))
    assert "prefers-color-scheme: dark" in text and "@media print" in text


def test_every_figure_is_written_twice(finished: tuple[Path, str]) -> None:
    figures = finished[0] / "figures"
    assert {p.stem for p in figures.glob("*.svg")} == {p.stem for p in figures.glob("*.png")} != set()


def test_numbers_are_strict_json(finished: tuple[Path, str]) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    record = json.loads((finished[0] / "results.json").read_text(encoding="utf-8"), parse_constant=refuse)
    assert record["digits"]["difference"]["UW"]["MAdam - Adam"]["seeds"] == 1
    assert len(record["digits"]["runs"]) == 8
    assert len(record["switching_quadratics"]["gap"]["MAdam"]["phase_means"]) == 6


def test_out_that_is_a_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "taken"
    file.write_text("mine")
    for out in (file, file / "below"):
        result = CliRunner().invoke(cli.build_app(), ["demo", "--out", str(out), *TINY])
        assert result.exit_code == 2
        assert "--out" in result.output and "Traceback" not in result.output
    assert file.read_text() == "mine"


def test_version_and_help() -> None:
    app = cli.build_app()
    assert CliRunner().invoke(app, ["--version"]).output.split() == ["madamoo", madamoo.__version__]
    assert "demo" in CliRunner().invoke(app, ["--help"]).output


@pytest.mark.parametrize("package", ["typer", "rich", "matplotlib", "sklearn"])
def test_missing_extra_is_told_in_one_line(package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(sys.modules):
        if name.startswith("madamoo.demo"):
            monkeypatch.delitem(sys.modules, name)
        elif name.partition(".")[0] == package:
            monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, package, None)  # an import of it now fails as if it were not there
    monkeypatch.setattr(sys, "argv", ["madamoo", "demo", "--out", str(tmp_path / "out")])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    extra = cli.EXTRAS[package]
    assert stopped.value.code == f"This command needs {package}, which is not installed: pip install 'madamoo[{extra}]'"
    assert not (tmp_path / "out").exists()


def test_importing_the_library_does_not_import_the_extras() -> None:
    check = "import sys, madamoo; print([m for m in ('typer', 'rich', 'matplotlib', 'sklearn') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", check], capture_output=True, text=True).stdout.strip() == "[]"
