"""``madamoo report`` as a user types it: pages, and one line for what goes wrong."""

import json
import re
import subprocess
import sys
from html import escape
from pathlib import Path

import pytest
from typer.testing import CliRunner

import toy_benchmark
from madamoo import cli, diagnostics
from madamoo.presentation.style import DARK


def call(*arguments, code=0):
    result = CliRunner().invoke(cli.build_app(), ["report", *map(str, arguments)], env={"COLUMNS": "200"})
    assert result.exit_code == code, (result.output, result.exception)
    assert "Traceback" not in result.output
    return result


def make(tmp_path, *arguments):
    page = tmp_path / "deep" / "page.html"
    assert str(page) in call(*arguments, "-o", page).stdout
    return page.read_text(encoding="utf-8")


def headings(text):
    return re.findall(r"<h2>(.*?)</h2>", text)


def figures(text):
    return json.loads(re.search(r'id="figures">(.*?)</script>', text)[1])


EVIL = ("<img src=x onerror=alert(1)>", "</script>", "a & b %{x} $c$")  # the objectives of `own`
DIAGNOSIS = ["Conflict", "Signed effects", "Sign flips", "Curvature"]


def test_a_lab_run(lab, tmp_path):
    text = make(tmp_path, lab / "madam-0")
    assert headings(text) == ["Summary", "Losses", "Weights", *DIAGNOSIS, "Cost", "Configuration"]
    assert len(figures(text)) == text.count('class="plot"') >= 11


def test_a_folder_of_lab_runs(lab, compared, tmp_path):
    text = make(tmp_path, lab)
    assert headings(text) == ["Summary", "Runs", "Losses", "Diagnosis"]
    assert "5 runs" in text and "name it with --benchmark FILE.py" in text
    assert [len(figure["data"]) for figure in figures(text)][-2:] == [4, 1]  # one line per run, one panel per solver
    scales = [figure["layout"]["yaxis"]["range"] for figure in figures(text)[-2:]]
    assert scales[0] == scales[1]
    text = make(tmp_path, lab, "--benchmark", toy_benchmark.__file__)
    assert headings(text)[:2] == ["Summary", "Gains"] and "--benchmark" not in text
    text = make(tmp_path, compared)
    assert headings(text)[:2] == ["Summary", "Gains"]
    assert "Against Adam: at least as good in 1 of 1 cells" in text
    assert "MAdam is beyond chance better in 1 of 1 cell than Adam" in text


def test_every_summary_ends_in_a_verdict_and_advice(lab, own, compared, tmp_path):
    for arguments in ([lab / "madam-0"], [lab], [own], [compared], ["--compare", lab / "adam-0", lab / "madam-0"]):
        summary = re.search(r'<section id="section-0">(.*?)</section>', make(tmp_path, *arguments), re.DOTALL)[1]
        end = summary[summary.index('class="verdict"') :]
        assert "Verdict." in end and "Advice." in end and "<table" not in end and "<figure" not in end


def test_every_colour_of_a_figure_has_its_counterpart_in_the_dark(lab, own, learned_fronts, tmp_path):
    """What the script does not know would stay as it is, black on black say."""
    for arguments in ([lab / "madam-0"], [own], ["--compare", lab / "adam-0", lab / "madam-0"], [learned_fronts]):
        used = set(re.findall(r'"(#\w{3,8})"', json.dumps(figures(make(tmp_path, *arguments)))))
        assert used and used <= set(DARK)


def test_a_users_own_record_with_names_that_are_markup(own, tmp_path):
    text = make(tmp_path, own)
    assert headings(text) == ["Summary", "Losses", "Weights", *DIAGNOSIS, "Cost", "Configuration"]
    body = text[: text.index('<script type="application/json"')]
    assert "<img" not in body and "</script" not in body
    for name in EVIL:
        assert escape(name) in body
    names = {trace.get("name") for figure in figures(text) for trace in figure["data"]}
    assert "&lt;/script&gt;" in names and not any("<" in name for name in names if name)


def test_two_runs_side_by_side(lab, tmp_path):
    text = make(tmp_path, "--compare", lab / "adam-0", lab / "madam-0")
    assert "their difference is paired" in text and "Paired difference" in text
    assert headings(text)[3:7] == DIAGNOSIS
    first, second = (
        json.loads((lab / f"{o}-0" / "run.json").read_text())["metrics"]["error"] for o in ("adam", "madam")
    )
    assert f'data-key="{second - first!r}"' in text
    last = [json.loads((lab / f"{o}-0" / "epochs.jsonl").read_text().splitlines()[-1]) for o in ("adam", "madam")]
    adam, madam = (epoch["validation_losses"][0] for epoch in last)
    gap = next(trace for figure in figures(text) for trace in figure["data"] if trace["name"] == "sum")
    assert gap["y"][-1] == pytest.approx(madam / adam - 1)
    assert "not that of one choice alone" in make(tmp_path, "--compare", lab / "adam-0", lab / "madam-1")


def test_two_records_of_ones_own(own, tmp_path):
    assert "Paired difference" in make(tmp_path, "--compare", own, own / "diagnostics.jsonl")


def test_fronts_have_their_hypervolumes_in_the_legend(learned_fronts, tmp_path):
    for arguments in ([learned_fronts], ["--compare", learned_fronts / "adam", learned_fronts / "madam"]):
        named = [
            t["name"] for f in figures(make(tmp_path, *arguments)) for t in f["data"] if "HV" in str(t.get("name"))
        ]
        assert len(set(named)) == 2 and any("madam" in name for name in named)
    text = make(tmp_path, learned_fronts / "adam")
    assert "Points of the front" in text and "A front of one point" not in text
    assert "A front of one point: palora, madam." in make(tmp_path, learned_fronts / "madam")


def test_numbers_on_the_page_are_those_of_the_rows(own, tmp_path):
    facts = diagnostics.summary(diagnostics.read(own))
    text = make(tmp_path, own)
    assert f"{100 * facts['conflict_rate']:.3g}\u00a0% of all pairs" in text
    heat = next(trace for f in figures(text) for trace in f["data"] if trace["type"] == "heatmap")
    mean = sum(row["cosines"][0][1] for row in diagnostics.read(own)) / facts["rows"]
    assert heat["z"][0][1] == pytest.approx(mean)


def test_half_a_file_is_used_and_said(own, tmp_path):
    text = (own / "diagnostics.jsonl").read_text()
    (tmp_path / "diagnostics.jsonl").write_text(text[: len(text) // 2])
    result = call(tmp_path, "-o", tmp_path / "page.html")
    assert "was left out: it is not complete" in result.stderr
    assert "was left out: it is not complete" in (tmp_path / "page.html").read_text()


def test_bad_input_is_said_in_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    for arguments, message in (
        (["missing"], "there is no file or folder"),
        (["empty"], "holds no runs"),
        (["a", "b"], "name one run or folder, or two with --compare; 2 were given"),
        (["--compare", "a"], "--compare takes two runs; 1 were given"),
        (["--compare", "missing", "missing"], "there is no file or folder"),
    ):
        result = call(*arguments, code=2)
        assert message in result.stderr and len(result.stderr.strip().splitlines()) == 1
        assert not (tmp_path / "report.html").exists()


def test_a_page_that_cannot_be_written_is_said_in_one_line(own, tmp_path):
    (tmp_path / "file").write_text("")
    for out in (tmp_path, tmp_path / "file" / "page.html"):
        result = call(own, "-o", out, code=1)
        assert "cannot read or write" in result.stderr and len(result.stderr.strip().splitlines()) == 1


def test_a_record_of_ones_own_needs_no_lab(own, tmp_path):
    """With what the report's extra has: nothing of the lab's is imported."""
    code = f"""
import sys
for name in ("filelock", "sklearn", "monai", "scipy", "ray", "matplotlib"):
    sys.modules[name] = None
from pathlib import Path
from madamoo.report.make import make_page
from madamoo.presentation.page import render
page, _ = make_page([Path({str(own)!r})])
print(len(render(page)) > 1e6)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True"]


def test_the_two_lines_of_the_readme_make_a_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    namespace: dict[str, object] = {}
    for block in re.findall(r"^```python\n(.*?)^```", readme, re.MULTILINE | re.DOTALL):
        exec(block, namespace)
    assert "`madamoo report runs/mine`" in readme
    call("runs/mine")
    assert "small" in (tmp_path / "report.html").read_text(encoding="utf-8")
