"""Benchmarks that train and evaluate in their own way: points, not samples; gradients in evaluation; lazy data."""

import math
import sys
from pathlib import Path

import pytest
import torch

from madamoo.bench import (
    Data,
    Drawn,
    LazySplit,
    Shuffled,
    Split,
    available,
    build_model,
    configure,
    get,
    problems,
    train,
)
from madamoo.bench.problems import _registry
from madamoo.bench.training import Training

HERE = Path(__file__).parent
DECAY, VOLUMES = str(HERE / "decay.py"), str(HERE / "volumes.py")


def start(config, root=None):
    problem = get(config.benchmark)
    profile = problem.profiles[config.profile]
    return Training(config, problem, profile, problem.load(root, profile, config.seed), torch.device("cpu"))


@pytest.mark.parametrize("profile", ["cpu", "full"])
@pytest.mark.parametrize("solver", ["ls", "uw", "cagrad"])
def test_a_differential_equation_is_trained_evaluated_and_resumed(tmp_path, profile, solver):
    """On points drawn in each step, or on all points; with derivatives of the model in losses and metrics."""
    config = configure(DECAY, profile=profile, solver=solver, seed=1)
    whole, early = start(config), start(config)
    before = whole.evaluate("test")
    grid = whole.data.grid.double()
    with torch.no_grad():  # the residual by differences, in double precision
        model = whole.model.double()
        h = 1e-4
        middle = 0.5 * (grid[1:] + grid[:-1])
        residual = (model(middle + h)[0] - model(middle - h)[0]) / (2 * h) + model(middle)[0]
        whole.model.float()
    assert before.metrics["residual"] == pytest.approx(residual.square().mean().sqrt().item(), rel=1e-3)

    for _ in range(7):
        early.advance()
    resumed = start(config)
    resumed.load_state_dict(early.state_dict())
    for training in (whole, resumed):
        while not training.ended:
            training.advance()
    for a, b in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(a, b)
    assert whole.step == 4 * (25 if profile == "cpu" else 5)
    if profile == "cpu":
        assert whole.evaluate("test").metrics["error"] < 0.3 * before.metrics["error"]


def test_it_runs_in_a_folder_as_any_other(tmp_path):
    record = train(configure(DECAY), tmp_path / "a")
    again = train(configure(DECAY), tmp_path / "b")
    assert record["status"] == "finished" and record["objectives"] == ["equation", "start"]
    assert record["metrics"] == again["metrics"] and math.isfinite(record["metrics"]["residual"])


@pytest.fixture
def volumes(tmp_path):
    folder = tmp_path / "volumes"
    folder.mkdir()
    generator = torch.Generator().manual_seed(0)
    for k in range(17):
        torch.save((torch.randn(2, 2, 2, generator=generator), torch.tensor(float(k))), folder / f"{k:02}.pt")
    return tmp_path


def test_volumes_are_read_when_a_batch_needs_them_and_train_as_if_they_were_in_memory(volumes):
    config = configure(VOLUMES, solver="uw")
    lazy = start(config, volumes)
    read = sys.modules["madamoo_own_volumes"].READ
    assert not read, "nothing is read before the first step"
    lazy.advance()
    assert len(read) == 3
    eager = start(config, volumes)
    eager.data = Data(*(part[:] for part in (eager.data.train, eager.data.validation, eager.data.test)))
    eager.batches = eager.benchmark.batches(eager.data, config.batch)
    for training in (lazy, eager):
        while not training.ended:
            training.advance()
    assert lazy.epochs[-1]["validation"] == eager.epochs[-1]["validation"]
    assert lazy.best["metrics"] == eager.best["metrics"]


def test_a_lazy_split_gives_the_batches_of_one_in_memory():
    x, y, z = torch.randn(7, 2, 3), torch.randn(7), torch.randn(7, 4)
    whole, lazy = Split(x, (y, z)), LazySplit(7, lambda k: (x[k], (y[k], z[k])))
    for index in (slice(None), slice(2, 5), slice(5, 99), torch.tensor([3, 0, 3]), torch.tensor([6])):
        a, b = whole[index], lazy.to(torch.device("cpu"))[index]
        assert len(whole) == len(lazy) == 7
        assert all(map(torch.equal, (a.inputs, *a.targets), (b.inputs, *b.targets)))


def test_a_new_folder_of_problems_is_all_that_a_regime_takes(tmp_path, monkeypatch):
    (tmp_path / "added").mkdir()
    (tmp_path / "added" / "__init__.py").write_text("")
    (tmp_path / "added" / "_shared.py").write_text("raise RuntimeError('not a benchmark')")
    (tmp_path / "added" / "decay.py").write_text(Path(DECAY).read_text())
    _registry._benchmarks.cache_clear()
    try:
        monkeypatch.setattr(problems, "__path__", [*problems.__path__, str(tmp_path)])
        assert "pinn/decay" in available() and "digits" in available()
        config = configure("PINN/decay", epochs=1)
        assert config.benchmark == "pinn/decay" and "/" not in config.folder(Path()).parent.name
        assert start(config).batches.steps == 25
    finally:
        monkeypatch.undo()
        _registry._benchmarks.cache_clear()
        for name in [name for name in sys.modules if name.startswith(f"{problems.__name__}.added")]:
            del sys.modules[name]
    assert "pinn/decay" not in available()


def test_batches_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="steps must be at least 1, got 0"):
        Drawn(0, lambda generator: None)
    with pytest.raises(ValueError, match="there are no training samples"):
        Shuffled(Split(torch.zeros(0, 2), ()), 4)
    with pytest.raises(ValueError, match=r"3 inputs, but targets of \[2\]"):
        Split(torch.zeros(3, 1), (torch.zeros(2),))
    with pytest.raises(ValueError, match="no model is called"):
        build_model("resnett", (1,), (1,))
