"""Runs to report on: made once, small, and with names that would like to be markup."""

import json

import pytest
import torch

import toy_benchmark
from madamoo import MAdam, diagnostics, solvers
from madamoo.bench import configure
from madamoo.bench.runs._files import write_record
from madamoo.bench.training import train
from madamoo.pareto import Front, rays

EVIL = ("<img src=x onerror=alert(1)>", "</script>", "a & b %{x} $c$")


def train_own(folder, steps=24, names=EVIL, observe=True):
    """A user's own loop with a probe on it."""
    torch.manual_seed(0)
    model = torch.nn.Linear(6, len(names))
    x, y = torch.randn(64, 6), torch.randn(64, len(names))

    def losses():
        return dict(zip(names, (model(x) - y).square().mean(0), strict=True))

    opt = MAdam(model.parameters(), lr=1e-2, solver=solvers.UW())
    with diagnostics.attach(opt, every=2, sinks=[folder], exact=True) as probe:
        for _ in range(steps):
            opt.zero_grad()
            opt.backward(losses())
            opt.step()
            if observe and probe.measured:
                with torch.no_grad():
                    probe.observe(losses())
    return folder


@pytest.fixture(scope="session")
def own(tmp_path_factory):
    return train_own(tmp_path_factory.mktemp("own") / "<b>mine</b>")


@pytest.fixture(scope="session")
def lab(tmp_path_factory):
    """A folder of lab runs: two optimizers on two seeds, diagnosed, and one solver more."""
    root = tmp_path_factory.mktemp("lab")
    for optimizer in ("adam", "madam"):
        for seed in (0, 1):
            config = configure(toy_benchmark.__file__, solver="cagrad", optimizer=optimizer, seed=seed)
            train(config, root / f"{optimizer}-{seed}", diagnose=True, keep_checkpoint=False)
    train(configure(toy_benchmark.__file__, solver="uw"), root / "uw", keep_checkpoint=False)
    return root


@pytest.fixture(scope="session")
def compared(tmp_path_factory, lab):
    """The same runs as if they were of a benchmark of the package, with the control, so that gains are known."""
    root = tmp_path_factory.mktemp("compared")
    for optimizer, source, gain in (("adam", "adam", 0.0), ("madam", "madam", 2.0), ("marginal", "madam", 1.0)):
        for seed in (0, 1):
            record = json.loads((lab / f"{source}-{seed}" / "run.json").read_text())
            del record["sha256"]
            config = {**record["config"], "benchmark": "digits", "optimizer": optimizer}
            metrics = dict.fromkeys(("avg_acc", "left_acc", "right_acc"), 90.0 + gain + seed / 10)
            changed = {**record, "config": config, "metrics": metrics, "validation": metrics}
            write_record(root / f"{optimizer}-{seed}" / "run.json", changed)
    return root


@pytest.fixture(scope="session")
def learned_fronts(tmp_path_factory, lab):
    """Two runs that end in a front, one of them of a single point: the records of lab runs with fronts in them."""
    root = tmp_path_factory.mktemp("fronts")
    for shift, optimizer in ((0.0, "adam"), (0.05, "madam")):
        record = json.loads((lab / f"{optimizer}-0" / "run.json").read_text())
        a = rays(2, 5)
        points = 0.5 + 0.3 * a if optimizer == "adam" else 0.5 + shift + 0.3 * a.amax(dim=1, keepdim=True).expand(-1, 2)
        front = Front(a, points, maximise=True, names=("left_acc", "right_acc")).to_dict()
        config = {**record["config"], "benchmark": "digits", "solver": "palora"}
        del record["sha256"]
        write_record(root / optimizer / "run.json", {**record, "config": config, "front": {"test": front}})
    return root
