"""The command, as a user types it: the page, resuming, errors in words, and ``kill -9``."""

import json
import os
import pickle
import re
import signal
import subprocess
import sys
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState
from typer.testing import CliRunner

from madamoo.cli import build_app
from madamoo.tuning import TrialError
from madamoo.tuning._contenders import Contender, Field
from madamoo.tuning._processes import do
from madamoo.tuning._setup import open_source
from madamoo.tuning._studies import Phase, Search, calmly, ended, open_storage, open_study

SMALL = ["--budget", "5", "--seeds", "3", "--solvers", "ls,uw", "--optimizers", "adam"]
FILE = """
import os, signal
from pathlib import Path
import torch
from madamoo.tuning import Setup

HERE = Path(__file__).parent
built = 0

def build(seed):
    global built
    built += 1
    number, w = built, torch.nn.Parameter(torch.randn(2))

    def losses():
        {inside}
        return {{"a": (w[0] - 1).square(), "b": (w[1] + 1).square()}}

    return Setup([w], losses, lambda: float((w.detach() - torch.tensor([1.0, -1.0])).norm()), steps=8)
"""
# Once, in the fourth trial: the first run that is built is the one that is tried out.
DIE = """
        if number == 5 and not (HERE / "killed").exists():
            (HERE / "killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
"""
FAIL = """
        if number == 5 and not (HERE / "mended").exists():
            raise LookupError("no batch is left")
"""


def write(folder, inside="pass"):
    file = folder / "mine.py"
    file.write_text(FILE.format(inside=inside.strip()))
    return file


def tune(*args):
    return CliRunner().invoke(build_app(), ["tune", *map(str, args)])


def values(folder):
    record = json.loads((folder / "result.json").read_text())
    return record["use"], [f["values"] for f in (record["baseline"], *record["finalists"])]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A search that nothing disturbed."""
    folder = tmp_path_factory.mktemp("whole")
    result = tune(write(folder), *SMALL, "--out", folder / "out")
    assert result.exit_code == 0, result.output
    return folder, result


def test_the_answer_is_printed_and_is_on_the_page(whole):
    folder, result = whole
    assert "learning rate of" in result.stdout and "Page: " in result.stdout
    page = (folder / "out/page.html").read_text()
    (said,) = re.findall(r"Verdict.</strong> (.*?)</p>", page)
    assert said.startswith("Use ") and "CPU time" in page and "How this was made" in page
    assert "default-src 'none'" in page  # it needs no network, and gets none
    use, found = values(folder / "out")
    assert use["solver"] in ("ls", "uw") and all(len(row) == 3 for row in found)


def test_started_again_it_does_nothing_twice(whole):
    folder, _ = whole
    before = {study: len(trials(folder / "out", study)) for study in ("adam", "search", "final")}
    assert tune(folder / "mine.py", *SMALL, "--out", folder / "out").exit_code == 0
    assert {study: len(trials(folder / "out", study)) for study in before} == before


def test_other_settings_need_another_folder(whole):
    folder, _ = whole
    result = tune(folder / "mine.py", *SMALL, "--seeds", "4", "--out", folder / "out")
    assert result.exit_code == 2 and "were made with seeds 3, not 4" in result.stderr


def test_a_file_that_changed_is_noted(whole, tmp_path):
    folder, _ = whole
    file = folder / "mine.py"
    text = file.read_text()
    try:
        file.write_text(text + "# more\n")
        result = tune(file, *SMALL, "--out", folder / "out")
    finally:
        file.write_text(text)
    assert result.exit_code == 0 and "mine.py changed while the search was under way" in result.stderr


def trials(out, study):
    with calmly():
        return optuna.load_study(study_name=study, storage=open_storage(out)).get_trials()


def test_killed_and_started_again_it_comes_to_the_same(whole, tmp_path):
    """Killed by itself, in the middle of its fourth trial: how fast the machine is does not matter."""
    file, out = write(tmp_path, DIE), tmp_path / "out"
    command = [
        sys.executable,
        "-c",
        "from madamoo.cli import main; main()",
        "tune",
        str(file),
        *SMALL,
        "--out",
        str(out),
    ]
    source = str(Path(__file__).parents[2] / "src")
    environment = {**os.environ, "PYTHONPATH": source}
    assert subprocess.run(command, env=environment, capture_output=True).returncode == -signal.SIGKILL
    (lost,) = [t for t in trials(out, "adam") if t.state == TrialState.RUNNING]
    assert tune(file, *SMALL, "--out", out).exit_code == 0
    after = trials(out, "adam")
    assert after[lost.number].state == TrialState.FAIL
    assert sum(t.state.is_finished() and t.state != TrialState.FAIL for t in after) == 5
    assert after[lost.number + 1].params == lost.params  # done again, and at once
    assert values(out) == values(whole[0] / "out")


def test_an_error_in_the_file_is_told_with_its_trial_and_the_search_goes_on_once_it_is_mended(whole, tmp_path):
    file, out = write(tmp_path, FAIL), tmp_path / "out"
    result = tune(file, *SMALL, "--out", out)
    assert result.exit_code == 1
    assert "madamoo: trial 3 of adam failed (solver ls, optimizer adam, lr " in result.stderr
    assert "LookupError: no batch is left" in result.stderr and "mine.py" in result.stderr
    assert "madamoo/tuning" not in result.stderr
    (tmp_path / "mended").touch()
    assert tune(file, *SMALL, "--out", out).exit_code == 0
    assert values(out) == values(whole[0] / "out")


def phase_of(file, out):
    out.mkdir()
    source = open_source(file)
    search = Search(source, Field.of(["ls", "uw"], ["adam"], source), out, 8, False)
    phase = Phase("search", ["ls", "uw"], ["adam"], (1e-3, 1e-1), (0, 0), 12, [{"solver": "uw", "optimizer": "adam"}])
    return search, phase


def test_two_workers_of_which_one_is_killed_do_all_trials_and_no_more(tmp_path):
    file, out = write(tmp_path, DIE), tmp_path / "out"
    search, phase = phase_of(file, out)
    said = []
    with calmly():
        do(open_storage(out), search, phase, 2, said.append)
        found = ended(open_study(open_storage(out), "search", search))
    assert (tmp_path / "killed").exists()
    assert len(found) == 12 == said[-1]
    assert all(t.params["solver"] == "uw" for t in found)  # LS with Adam is the baseline


def test_an_error_in_a_worker_ends_the_others(tmp_path):
    search, phase = phase_of(write(tmp_path, FAIL.replace("number == 5", "number == 2")), tmp_path / "out")
    with calmly(), pytest.raises(TrialError, match="LookupError: no batch is left"):
        do(open_storage(search.folder), search, phase, 2, lambda done: None)


def test_what_another_process_cannot_import_needs_one_worker(tmp_path):
    search, phase = phase_of(write(tmp_path), tmp_path / "out")
    search = Search(open_source(lambda seed: None), search.field, search.folder, 8, False)
    with calmly(), pytest.raises(ValueError, match="several workers need a build that another process can import"):
        do(open_storage(search.folder), search, phase, 2, lambda done: None)


def test_what_the_file_defines_is_found_by_other_processes(tmp_path):
    file = write(tmp_path)
    file.write_text(
        file.read_text()
        + "from madamoo import MAdam, solvers\n"
        + "SOLVERS = {'half': lambda: solvers.LS([0.5, 0.5])}\n"
        + "OPTIMIZERS = {'mine': lambda params, lr, solver: MAdam(params, lr, eps=0.5, solver=solver)}\n"
    )
    source = open_source(file)
    search = Search(source, Field.of(None, None, source), tmp_path, 8, False)
    sent = pickle.loads(pickle.dumps(search))
    contender, setup = Contender("half", "mine", 0.25), sent.source.build(0)
    assert sent.field.build(contender, setup, 0).param_groups[0]["eps"] == 0.5
    assert {*sent.field.optimizers} == {*search.field.optimizers} and {*sent.field.solvers} == {*search.field.solvers}


@pytest.mark.parametrize(
    "args, message",
    [
        (["nowhere.py"], "nowhere.py is not there; give a Python file with a function build(seed)"),
        (["FILE", "--solvers", "nosuch"], "no solver is called 'nosuch'"),
        (["FILE", "--optimizers", "nosuch"], "no optimizer is called 'nosuch'"),
        (["FILE", "--rates", "1e-3"], "--rates 1e-3: it must be two numbers, as 1e-4,1e-1"),
        (["FILE", "--budget", "none"], "'none' is not a whole number"),
        (["FILE", "--out", "FILE"], "mine.py"),
    ],
)
def test_wrong_words_are_told_without_a_traceback(args, message, tmp_path):
    file = write(tmp_path)
    result = tune(*(str(file) if arg == "FILE" else arg for arg in args))
    assert result.exit_code == 2 and message in result.stderr and "Traceback" not in result.stderr


def test_help():
    result = tune("--help")
    assert result.exit_code == 0 and "--budget" in result.stdout and "goes on where it was" in result.stdout
