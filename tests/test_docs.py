"""Every Python block of the README and the docs runs, in order, one namespace per page; so does every example."""

import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import madamoo

ROOT = Path(__file__).parent.parent
TOGETHER = ("ddp.py", "fsdp.py")  # run by tests/distributed/test_faults.py
EXAMPLES = sorted(p for p in (ROOT / "examples").glob("*.py") if p.name not in TOGETHER)
PAGES = [ROOT / "README.md", *sorted(p for p in (ROOT / "docs").glob("**/*.md") if "_build" not in p.parts)]


def blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_python_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)  # some write files
    namespace: dict[str, object] = {}
    for block in blocks(page):
        exec(compile(block, str(page), "exec"), namespace)


def test_links_lead_somewhere():
    for page in PAGES:
        text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        for target in re.findall(r"\]\(([^)#]+)\)", text):
            if "://" not in target:
                assert (page.parent / target).exists(), (page.name, target)


def test_notebooks_are_small():
    """They are run when the site is built; what they printed is kept for readers of a forge."""
    notebooks = sorted((ROOT / "docs/notebooks").glob("*.ipynb"))
    assert notebooks
    for notebook in notebooks:
        cells = [c for c in json.loads(notebook.read_text(encoding="utf-8"))["cells"] if c["cell_type"] == "code"]
        assert notebook.stat().st_size < 70_000, notebook.name
        assert all(c["execution_count"] is not None for c in cells), f"{notebook.name} was not run"
        assert not [o for c in cells for o in c["outputs"] if o.get("name") == "stderr" or o["output_type"] == "error"]


def test_the_page_on_the_paper_counts_its_verdicts():
    text = (ROOT / "docs" / "coverage.md").read_text(encoding="utf-8")
    said = re.search(r"Of (\d+) claims (\d+) hold, (\d+) hold partly, (\d+) were not found, (\d+) are not", text)
    found = re.findall(r"\| (holds|partly|not found|not verified) \|$", text, re.MULTILINE)
    counts = [len(found), *(found.count(verdict) for verdict in ("holds", "partly", "not found", "not verified"))]
    assert said is not None and [int(number) for number in said.groups()] == counts


def test_mypy_accepts_the_readme_in_its_strict_mode(tmp_path: Path):
    """What a user writes after the README is checked as in a project of their own, with nothing of our settings."""
    pytest.importorskip("mypy")
    found = blocks(ROOT / "README.md")
    assert found
    script = tmp_path / "readme.py"
    script.write_text("\n".join(found), encoding="utf-8")
    options = ["--strict", "--follow-imports=silent", "--config-file=", f"--cache-dir={tmp_path / 'cache'}"]
    source = str(Path(madamoo.__file__).parents[1])
    result = subprocess.run(
        [sys.executable, "-m", "mypy", *options, str(script)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": source},
    )
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda p: p.name)
def test_examples_run(script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(script), run_name="__main__")
    assert "True" in capsys.readouterr().out  # what the example claims of itself


def test_there_are_examples():
    assert EXAMPLES
