"""PINNacle's cases in the lab: small runs, resumed bit for bit, with every recipe."""

import io
import itertools
import json
import os
from pathlib import Path

import pytest
import torch

from madamoo.bench import available, configure, get
from madamoo.bench.analysis import render_table, rows
from madamoo.bench.problems import cache_root
from madamoo.bench.runs import MAPS, write_tensors
from madamoo.bench.training import Training, train
from madamoo.bench.training._contenders import build_solver
from madamoo.pinn import cases
from madamoo.presentation.page import render
from madamoo.report.make import make_page
from madamoo.report.reading import read_source

SMALL = {"batch": 64, "model": "fnn:depth=2:width=10"}


def small(name, *, steps=8, epochs=2, profile="cpu", **options):
    """A benchmark with few steps per epoch, and the configuration of a run on it."""
    config = configure(f"pinn/{name}", epochs=epochs, profile=profile, **{**SMALL, **options})
    benchmark = get(config.benchmark)
    size = benchmark.profiles[profile]
    return config, benchmark, type(size)(**{**vars(size), "options": {**size.options, "steps": steps}})


def begin(config, benchmark, profile, data):
    return Training(config, benchmark, profile, data, torch.device("cpu"))


def finish(training):
    while not training.ended:
        training.advance()
    return training


def numbers(training):
    rows = [{key: value for key, value in row.items() if key != "seconds"} for row in training.epochs]
    return rows, training.best, [p.detach().clone() for p in training.model.parameters()]


def same(a, b):
    (rows, best, params), (others, other, twins) = a, b
    return rows == others and best == other and all(map(torch.equal, params, twins))


def test_every_case_is_a_benchmark():
    names = [name.removeprefix("pinn/") for name in available() if name.startswith("pinn/")]
    assert sorted(names) == sorted(cases.available())
    for name in names:
        benchmark = get(f"pinn/{name}")
        assert benchmark.objectives == cases.get(name).objectives
        assert {"cpu", "paper", "cpu-rar", "paper-rar-pinnacle", "cpu-polished"} <= set(benchmark.profiles)
        paper = benchmark.profiles["paper"]
        assert paper.epochs * paper.options["steps"] == 20_000 and paper.model == "fnn" and paper.lr == 1e-3
        assert paper.batch == 8192 * cases.get(name).multiplier


def test_names_of_losses_are_those_of_the_problems():
    root = Path(os.environ.get("MADAMOO_DATA", "nowhere"))
    if not (root / "pinnacle").is_dir():
        pytest.skip("no pinnacle/ below MADAMOO_DATA")
    for name in cases.available():
        case = cases.get(name)
        problem = case.problem(cases.Data(root, cache_root()), reference=False, num_domain=64)
        assert problem.objectives == case.objectives and problem.equation_names == case.equation_names, name


@pytest.mark.parametrize(
    "name, solver, profile",
    [
        ("wave1d", "ntk:every=5", "cpu-fixed"),
        ("wave1d", "ntkpinnacle", "cpu"),
        ("poisson5d", "lra:every=2", "cpu-rar"),
        ("poisson5d", "ls", "cpu-polished"),
    ],
)
def test_a_run_resumed_at_any_step_is_the_same_to_the_last_bit(name, solver, profile):
    config, benchmark, size = small(name, solver=solver, profile=profile)
    if size.options["resample"]:
        size = type(size)(**{**vars(size), "options": {**size.options, "resample": 3}})
    if "polish" in size.options:
        size = type(size)(**{**vars(size), "options": {**size.options, "polish": 3}})
    size = type(size)(**{**vars(size), "epochs": 5})  # refined every second step
    data = benchmark.load(None, size, 0)
    whole = numbers(finish(begin(config, benchmark, size, data)))
    for stop in (1, 6, 11, 15):
        first = begin(config, benchmark, size, data)
        for _ in range(stop):
            first.advance()
        state = first.state_dict()
        file = io.BytesIO()
        torch.save(state, file)
        file.seek(0)
        state = torch.load(file, weights_only=True)
        again = begin(config, benchmark, size, data)
        again.load_state_dict(state)
        assert same(numbers(finish(again)), whole), stop


def test_recipes_do_what_they_say():
    found = {}
    for profile in ("cpu", "cpu-rar", "cpu-rar-pinnacle", "cpu-fixed", "cpu-resampled", "cpu-polished"):
        config, benchmark, size = small("wave1d", profile=profile, steps=120, epochs=1)
        options = {**size.options, **({"polish": 60} if "polish" in size.options else {})}
        size = type(size)(**{**vars(size), "epochs": 1, "options": options})
        training = finish(begin(config, benchmark, size, benchmark.load(None, size, 0)))
        loss = float(sum(training.batches.problem.losses(training.model).values()).detach())
        found[profile] = (training.batches.problem, loss)
    plain = found["cpu"][0]
    assert len(plain.anchors) == 0 and len(plain.points) == 64 + 16 + 16
    assert len(found["cpu-rar"][0].anchors) == 19 and len(found["cpu-rar-pinnacle"][0].anchors) == 19
    again = found["cpu-rar-pinnacle"][0]
    old = {tuple(x) for x in again.points.double().tolist()}
    assert all(tuple(x) in old for x in again.anchors.float().double().tolist())  # of the points that were there
    fixed, resampled = (found[f"cpu-{name}"][0].points for name in ("fixed", "resampled"))
    assert torch.equal(fixed, begin(config, benchmark, size, benchmark.load(None, size, 0)).batches.problem.points)
    assert not torch.equal(plain.points, fixed) and not torch.equal(resampled, plain.points)
    assert found["cpu-polished"][1] < 0.9 * found["cpu"][1]


def test_solvers_know_which_losses_are_residuals():
    for solver in ("lra", "ntkpinnacle"):
        config, benchmark, _ = small("gray-scott-periodic", solver=solver)
        made = build_solver(config.solver, benchmark, 0)
        made.ensure(8)
        assert made.residual.tolist() == [True, True, *[False] * 6]


def test_the_lab_runs_sweeps_and_tables_it(tmp_path):
    """Two cases through files and records, with the paper's figures beside; error measured on all points here."""
    records = []
    for name, optimizer in itertools.product(("wave1d", "poisson5d"), ("adam", "madam")):
        config = configure(f"pinn/{name}", optimizer=optimizer, epochs=1, **SMALL)
        record = train(config, config.folder(tmp_path))
        assert record["status"] == "finished" and record["steps"] == 100
        assert 0 < record["metrics"]["error"] < 2 and record["objectives"] == list(get(f"pinn/{name}").objectives)
        records.append(record)
        again = train(config, config.folder(tmp_path))  # not repeated
        assert {key: again[key] for key in record} == json.loads(json.dumps(record))
    table = render_table(rows(records, get("pinn/wave1d")), "text")
    assert "0.58800 -> 0.48600" in table


def test_the_papers_rows():
    benchmark = get("pinn/burgers1d")
    setting = {"profile": "cpu", "model": "fnn:depth=4:width=50"}
    assert benchmark.row_of_paper("lra", setting) == "lra" == benchmark.row_of_paper("lra", {"profile": "cpu-fixed"})
    assert benchmark.row_of_paper("ls", {**setting, "profile": "cpu-rar"}) == "rar"
    assert benchmark.row_of_paper("ls", {**setting, "profile": "paper-rar-pinnacle"}) == "rar"
    assert benchmark.row_of_paper("ls", {**setting, "model": "fnn:activation=laaf:width=50"}) == "laaf"
    assert benchmark.row_of_paper("ntk", {**setting, "profile": "cpu-rar"}) == ""


def test_validation_and_test_share_no_point():
    benchmark = get("pinn/poisson5d")
    data = benchmark.load(None, benchmark.profiles["cpu"], 0)
    parts = [{tuple(x) for x in part.points.tolist()} for part in (data.validation, data.test)]
    assert not parts[0] & parts[1] and len(parts[0]) * 4 == len(parts[1])


def test_the_report_draws_solution_error_and_residual(tmp_path):
    config = configure("pinn/poisson5d", epochs=1, **SMALL)
    folder = config.folder(tmp_path)
    train(config, folder)
    (run,) = read_source(folder).runs
    assert {one["kind"] for one in run.maps} == {"solution", "error", "residual"}
    page, notes = make_page([folder])
    figures = [figure for panel in _section(page, "Solution").blocks for figure in panel.figures]
    assert [figure.title.split()[0] for figure in figures] == ["Solution", "Error", "Residual"] and not notes
    shown = torch.tensor(figures[0].data[0]["z"]).T
    torch.testing.assert_close(shown, run.maps[0]["values"], atol=1e-3, rtol=1e-3)
    assert "heatmap" in render(page)

    # Someone else's file: named, left out, and the rest of the page is there.
    for content in ([{"kind": "solution"}], {"a": 1}, [{**run.maps[0], "values": torch.zeros(2, 2)}]):
        write_tensors(folder / MAPS, content)
        page, notes = make_page([folder])
        assert not _section(page, "Solution").blocks and f"{MAPS} is left out" in notes[0]
    (folder / MAPS).write_bytes(b"nothing")
    assert "its checksum does not fit" in make_page([folder])[1][0]


def test_the_gallery_shows_the_best_run_of_each_case(tmp_path):
    errors = {}
    for lr in (1e-4, 1e-2):
        config = configure("pinn/poisson5d", lr=lr, epochs=1, **SMALL)
        errors[lr] = train(config, config.folder(tmp_path))["validation"]["error"]
    config = configure("pinn/heat2d-multiscale", epochs=1, **SMALL)
    train(config, config.folder(tmp_path))
    page, notes = make_page([tmp_path])
    rows = [block.figures for block in _section(page, "Solutions").blocks[1:]]
    titles = [[figure.title for figure in row] for row in rows]
    assert titles[-1][0].startswith("pinn/poisson5d: u at ") and not notes
    assert [title.split()[0] for title in titles[-1][1:]] == ["Error", "Residual"]
    assert f"rate {min(errors, key=errors.get):g}, error " in rows[-1][0].caption
    last = cases.get("heat2d-multiscale").view.fixed[-1]["t"]
    assert titles[0] == [f"{text} at t = {last:g}" for text in ("pinn/heat2d-multiscale: u", "Error u", "Residual pde")]
    assert 'class="panels narrow"' in render(page)

    # Someone else's file: named, left out, and the rest of the page is there.
    for file in tmp_path.rglob(MAPS):
        file.write_bytes(b"nothing")
    (block,) = _section(make_page([tmp_path])[0], "Solutions").blocks
    assert len(block.lines) == len(rows) and "checksum" in block.lines[0]


def _section(page, title):
    return next(section for section in page.sections if section.title == title)
