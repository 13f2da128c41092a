"""Diagnostics in TensorBoard, Weights & Biases and MLflow: the real ones, on files of their own."""

from __future__ import annotations

import pytest

from helpers import Net, train, wrap
from madamoo import diagnostics

WANTED = ["losses", "weights", "conflict_rate", "flips/realised", "cosines"]


def run(sink, names=("a", "b", "c"), steps=5):
    """A short run, and what its rows come to as numbers by name."""
    net = Net()
    opt = wrap(net, "uw", "full")
    losses = net.losses
    net.losses = lambda *args: dict(zip(names, losses(*args), strict=True))
    with diagnostics.attach(opt, every=2, sinks=sink, exact=True) as probe:
        train(net, opt, steps)
    flat = [diagnostics.flatten(row) for row in probe.rows]
    assert [row.pop("step") for row in flat] == [0, 2, 4]
    for start in WANTED:
        assert any(name.startswith(start) for name in flat[-1]), start
    return flat


def test_tensorboard(tmp_path):
    tensorboard = pytest.importorskip("torch.utils.tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with tensorboard.SummaryWriter(str(tmp_path)) as writer:
        rows = run(writer)
    found = EventAccumulator(str(tmp_path)).Reload()
    assert set(found.Tags()["scalars"]) == {f"diagnostics/{name}" for row in rows for name in row}
    for name in rows[-1]:
        events = found.Scalars(f"diagnostics/{name}")
        wanted = [(2 * k, row[name]) for k, row in enumerate(rows) if name in row]
        assert [event.step for event in events] == [step for step, _ in wanted]
        assert [event.value for event in events] == pytest.approx([value for _, value in wanted], rel=1e-6)


def test_wandb(tmp_path):
    wandb = pytest.importorskip("wandb")
    quiet = wandb.Settings(console="off", disable_git=True, x_disable_meta=True, x_disable_stats=True)
    with wandb.init(mode="offline", dir=tmp_path, settings=quiet) as tracker:
        tracker.log({"own": 1.0}, step=100)  # the user's own step is ahead of ours: no row may be lost for that
        rows = run(tracker)
        summary = dict(tracker.summary)
    assert summary["diagnostics/step"] == 4 and summary["own"] == 1.0
    for name, value in rows[-1].items():
        assert summary[f"diagnostics/{name}"] == pytest.approx(value)
    wandb.teardown()  # its process writes the file to the end
    (file,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    for row in rows:
        assert str(row["weights/a"]).encode() in file.read_bytes()


def test_mlflow(tmp_path):
    mlflow = pytest.importorskip("mlflow")
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    try:
        with mlflow.start_run() as active:
            rows = run(mlflow, names=("u(0) = 1", "b", "c"))
        client = mlflow.MlflowClient()
        for name, value in rows[-1].items():
            history = client.get_metric_history(active.info.run_id, f"diagnostics/{name}".translate(PLAIN))
            assert history[-1].step == 4 and history[-1].value == pytest.approx(value), name
        weights = client.get_metric_history(active.info.run_id, "diagnostics/weights/b")
        assert [(m.step, m.value) for m in weights] == [(2 * k, row["weights/b"]) for k, row in enumerate(rows)]
    finally:
        mlflow.set_tracking_uri(before)


PLAIN = str.maketrans("()=", "___")


def test_accelerator(tmp_path):
    """What has ``log(numbers, step)``, with TensorBoard behind it."""
    accelerate = pytest.importorskip("accelerate")
    pytest.importorskip("torch.utils.tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accelerator = accelerate.Accelerator(cpu=True, log_with="tensorboard", project_dir=str(tmp_path))
    accelerator.init_trackers("mine")
    rows = run(accelerator)
    accelerator.end_training()
    events = EventAccumulator(str(tmp_path / "mine")).Reload().Scalars("diagnostics/weights/a")
    assert [event.step for event in events] == [0, 2, 4]
    assert [event.value for event in events] == pytest.approx([row["weights/a"] for row in rows], rel=1e-6)


def test_what_is_no_sink_is_refused():
    for wrong in (3, [3]):
        with pytest.raises(TypeError, match="sink"):
            run(wrong)
