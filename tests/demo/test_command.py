import json
import re
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import madamoo
from madamoo import cli

TINY = ["--seeds", "1", "--epochs", "1", "--steps", "5"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The whole command, made small: its folder and what it printed."""
    out = tmp_path_factory.mktemp("demo") / "deep" / "out"
    result = CliRunner().invoke(cli.build_app(), ["demo", "--out", str(out), *TINY])
    assert result.exit_code == 0, result.output
    return out, result.output


def test_demo_prints_its_tables_and_where_the_files_are(finished: tuple[Path, str]) -> None:
    _, output = finished
    for text in ("One network for every preference", "physics-informed", "Constant weights", "1 seed.", "index.html"):
        assert text in " ".join(output.split())


def test_the_page_has_its_parts_and_fetches_nothing(finished: tuple[Path, str]) -> None:
    text = (finished[0] / "index.html").read_text(encoding="utf-8")
    assert re.findall(r"<h2>(.*?)</h2>", text) == [
        "In short",
        "One network for every preference",
        "A physics-informed network",
        "Conflict and sign flips",
        "Where nothing is to be expected",
        "How this was made",
    ]
    assert text.count('type="range"') == 1
    assert not re.findall(r"<(?:script|link|img)[^>]* (?:src|href)=", text)
    assert sorted(p.name for p in finished[0].iterdir()) == ["index.html", "picture.svg", "results.json"]


def test_the_slider_of_the_page_has_the_numbers_of_the_record(finished: tuple[Path, str]) -> None:
    text = (finished[0] / "index.html").read_text(encoding="utf-8")
    drawn = json.loads(re.findall(r'<script type="application/json" id="figures">(.*?)</script>', text)[0])
    (slider,) = [figure["slider"] for figure in drawn if "slider" in figure]
    record = json.loads((finished[0] / "results.json").read_text(encoding="utf-8"))
    names = list(dict.fromkeys(run["optimizer"] for run in record["fronts"]))
    for k, name in enumerate(names):
        runs = [run for run in record["fronts"] if run["optimizer"] == name]
        best = max(runs, key=lambda run: run["score"])  # the one seed chose its rate
        assert [p["x"][k][0] for p in slider["positions"]] == [point[0] for point in best["front"]["points"]]
        assert [p["y"][len(names) + k] for p in slider["positions"]] == best["front"]["points"]


def test_numbers_are_strict_json(finished: tuple[Path, str]) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    record = json.loads((finished[0] / "results.json").read_text(encoding="utf-8"), parse_constant=refuse)
    assert [len(record[part]) for part in ("fronts", "physics", "constant_weights")] == [8, 6, 4]
    assert all(run["cpu_seconds"] > 0 for run in record["fronts"])
    assert len(record["physics"][0]["errors"]) == 5


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


@pytest.mark.parametrize("package", ["typer", "plotly"])
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
