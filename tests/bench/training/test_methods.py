"""Methods that learn a front: what they are made of, what a run of theirs reports, and that no kill changes it."""

import json
from pathlib import Path

import pytest
import torch

import toy_benchmark
from madamoo import pareto, solvers
from madamoo.bench import configure
from madamoo.bench.analysis._fronts import fronts_of
from madamoo.bench.analysis._table import rows
from madamoo.bench.problems._registry import get
from madamoo.bench.runs._records import read_records
from madamoo.bench.training import train
from madamoo.bench.training._contenders import is_static
from madamoo.bench.training._methods import METHODS, build_method, metrics_of, rays_of, solver_of

FRONT = """
from madamoo.bench import FrontSpec

Toy.front = FrontSpec(metrics=("error", "right"), units=(10.0, 1.0), reference=(1.0, 0.0), rays=3,
                      methods={"pamal": {"count": 2, "penalty": 1.0}})
"""


@pytest.fixture
def toy(tmp_path):
    """The toy benchmark in a file of its own, with a front."""
    file = tmp_path / "own.py"
    file.write_text(Path(toy_benchmark.__file__).read_text() + FRONT)
    return str(file)


def run(toy, folder, method, **options):
    return train(configure(toy, solver=solver_of(method), **options), folder)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_runs_and_reports_its_front(toy, tmp_path, method):
    record = run(toy, tmp_path / "run", method, epochs=2)
    assert record["status"] == "finished"
    assert set(record["metrics"]) == {"hypervolume", "monotonicity", "best_error"}
    front = pareto.Front.from_dict(record["front"]["test"])
    assert front.preferences.tolist() == [[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]]
    assert front.maximise == (False, True)
    assert record["metrics"]["hypervolume"] == pytest.approx(front.hypervolume((1.0, 0.0)))
    assert record["metrics"]["best_error"] == pytest.approx(10.0 * float(front.points[:, 0].min()))
    json.dumps(record, allow_nan=False)
    again = run(toy, tmp_path / "again", method, epochs=2)
    assert again["metrics"] == record["metrics"]


def test_points_are_the_metrics_of_the_exported_model(toy, tmp_path):
    """An independent way to the same numbers: export the model at each ray, and count."""
    from madamoo.bench.training._fronts import FrontTraining

    config = configure(toy, solver="palora:rank=1", epochs=2)
    problem = get(toy)
    profile = problem.profiles["cpu"]
    data = problem.load(None, profile, 0)
    training = FrontTraining(config, problem, profile, data, torch.device("cpu"))
    while not training.ended:
        training.advance()
    front = pareto.Front.from_dict(training.best["front"]["test"])
    for ray, point in zip(rays_of(problem), front.points, strict=True):
        plain = training.model.export(ray).eval()
        with torch.no_grad():
            outputs = plain(data.test.inputs)
        error = float((outputs[0].squeeze(1) - data.test.targets[0]).square().mean())
        assert float(point[0]) == pytest.approx(error / 10.0, rel=1e-5)
        assert float(point[1]) == pytest.approx(float((outputs[1].argmax(1) == data.test.targets[1]).float().mean()))


@pytest.mark.parametrize("method", ["palora", "pamal"])
def test_a_run_that_was_stopped_goes_on_as_if_it_had_not(toy, tmp_path, method):
    whole = run(toy, tmp_path / "whole", method, epochs=2)

    class Stopped(Exception):
        pass

    def stop(row):
        if row["epoch"] == 1:
            raise Stopped

    config = configure(toy, solver=solver_of(method), epochs=2)
    with pytest.raises(Stopped):
        train(config, tmp_path / "parts", report=stop, checkpoint_every=0.0)
    rest = train(config, tmp_path / "parts")
    assert rest["resumed_from"]
    assert rest["metrics"] == whole["metrics"] and rest["front"] == whole["front"]


def test_one_model_a_ray_is_as_many_runs_and_one_record(toy, tmp_path):
    root = tmp_path / "runs"
    config = configure(toy, solver=solver_of("epo"), epochs=1)
    train(config, config.folder(root))
    assert len(list(root.rglob("run.json"))) == 4
    (record,) = read_records(root)  # the parts are not runs of their own
    assert record["config"]["solver"] == "rays:of=epo"
    assert record["steps"] == 3 * 6


def test_tables_have_the_fronts_own_metrics(toy, tmp_path):
    for optimizer in ("adam", "madam", "marginal"):
        for seed in (0, 1):
            config = configure(toy, solver="pamal", optimizer=optimizer, seed=seed, epochs=1)
            train(config, config.folder(tmp_path / "runs"))
    found = rows(read_records(tmp_path / "runs"), get(toy), name=toy)
    assert {row["metric"] for row in found} == {"hypervolume", "monotonicity", "best_error"}
    first = found[0]
    assert first["primary"] and first["metric"] == "hypervolume" and first["solver"] == "pamal"
    assert not first["marginal_is_madam"] and first["marginal"] is not None
    assert metrics_of(get(toy), "pamal")[0].relative(1.1, 1.0) == pytest.approx(10.0)


def test_fronts_are_named_by_what_differs(toy, tmp_path):
    for optimizer in ("adam", "madam"):
        run(toy, tmp_path / "runs" / optimizer, "palora", optimizer=optimizer, epochs=1)
    found, reference, title = fronts_of(read_records(tmp_path / "runs"), own=[toy])
    assert set(found) == {"adam", "madam"} and reference == (1.0, 0.0) and title == toy
    with pytest.raises(ValueError, match="split"):
        fronts_of(read_records(tmp_path / "runs"), "train")
    with pytest.raises(ValueError, match="none of these runs learned a front"):
        fronts_of([])


def test_options_of_the_spec_come_before_the_benchmarks(toy):
    problem = get(toy)
    assert build_method("pamal", problem, 0).penalty == 1.0
    assert build_method("pamal:penalty=0.5", problem, 0).penalty == 0.5
    assert build_method("pamal:count=5", problem, 0).sampler(0.0).shape == (5, 2)
    assert build_method("pamal:normalise=True", problem, 0).solver.needs_gram
    assert isinstance(build_method("cosmosnet:weight=0.5", problem, 0).solver, solvers.COSMOS)
    assert not is_static("pamal") and not is_static("rays:of=epo")


@pytest.mark.parametrize(
    ("solver", "message"),
    [
        ("palora:depth=3", "palora has no option 'depth'"),
        ("pamal:sampler=sobol", "no sampler"),
        ("rays:of=uw", "takes no preference"),
    ],
)
def test_bad_methods_are_told_before_the_run(toy, solver, message):
    with pytest.raises(ValueError, match=message):
        configure(toy, solver=solver)


def test_a_method_needs_a_benchmark_with_a_front():
    with pytest.raises(ValueError, match="toy does not say how its front is measured"):
        configure(toy_benchmark.__file__, solver="palora")
    with pytest.raises(ValueError, match="no method is called 'nsga'"):
        solver_of("nsga")
