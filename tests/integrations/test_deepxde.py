"""The bridge to DeepXDE, with the real package. It runs in processes of its own: importing DeepXDE changes torch."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(importlib.util.find_spec("deepxde") is None, reason="DeepXDE is an extra: deepxde")

SETUP = """
import json, os, sys
import deepxde as dde, numpy as np, torch
from madamoo import MAdam, MultiObjective, solvers
from madamoo.integrations.deepxde import compile_model, loss_names

def build(regularizer=None, seed=0):
    dde.config.set_random_seed(seed)
    C = dde.Variable(2.0)
    def pde(x, y):
        y_t, y_xx = dde.grad.jacobian(y, x, j=1), dde.grad.hessian(y, x, j=0)
        return [y_t - C * y_xx, C * y_t - y]
    time = dde.geometry.GeometryXTime(dde.geometry.Interval(-1, 1), dde.geometry.TimeDomain(0, 1))
    exact = lambda x: np.sin(np.pi * x[:, :1]) * np.exp(-x[:, 1:])
    bc = dde.icbc.DirichletBC(time, exact, lambda _, on: on)
    seen = np.stack([np.linspace(-1, 1, 5), np.full(5, 0.5)], 1)
    data = dde.data.TimePDE(time, pde, [bc, dde.icbc.IC(time, exact, lambda _, on: on),
                            dde.icbc.PointSetBC(seen, exact(seen)), dde.icbc.PointSetBC(seen, exact(seen))],
                            num_domain=40, num_boundary=16, num_initial=8, anchors=seen)
    net = dde.nn.FNN([2, 12, 12, 1], "tanh", "Glorot normal", regularization=regularizer)
    return dde.Model(data, net), net, C

def values(net, C):
    return [p.detach().reshape(-1).tolist() for p in (*net.parameters(), C)]
"""


def run(code: str) -> dict:
    path = os.pathsep.join([str(ROOT / "src"), *sys.path])
    environment = {**os.environ, "DDE_BACKEND": "pytorch", "PYTHONPATH": path}
    done = subprocess.run([sys.executable, "-c", SETUP + code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def flat(values: list) -> list[float]:
    return [x for part in values for x in (part if isinstance(part, list) else [part])]


def test_constant_weights_are_deepxdes_own_run():
    """With LS, weight 1 each, and no metric the bridge is plain Adam on the sum: DeepXDE's own step is the oracle."""
    found = run("""
runs = {}
for how in ("plain", "bridge"):
    for regularizer in (None, ["l1", 1e-3]):
        model, net, C = build(regularizer)
        options = dict(loss_weights=[1, 1, 10, 10, 2, 2], decay=("step", 10, 0.5), external_trainable_variables=C)
        if how == "plain":
            model.compile("adam", lr=1e-2, verbose=0, **options)
        else:
            opt = MultiObjective(torch.optim.Adam([*net.parameters(), C], lr=1e-2), solvers.LS({
                name: 1.0 for name in loss_names(model, 6)}))
            compile_model(model, opt, verbose=0, **options)
        resample = dde.callbacks.PDEPointResampler(period=7)
        history, state = model.train(iterations=25, display_every=100, verbose=0, callbacks=[resample])
        runs[f"{how} {regularizer}"] = [values(net, C), [float(x) for x in history.loss_train[-1]]]
names, rates = list(opt.objectives), [group["lr"] for group in opt.param_groups]
print(json.dumps([runs, names, rates]))
""")
    runs, names, rates = found
    for regularizer in ("None", "['l1', 0.001]"):
        for plain, bridge in zip(runs[f"plain {regularizer}"], runs[f"bridge {regularizer}"], strict=True):
            flat = [
                [x for part in side for x in (part if isinstance(part, list) else [part])] for side in (plain, bridge)
            ]
            assert flat[1] == pytest.approx(flat[0], rel=1e-4, abs=1e-5)
    assert names == ["pde_1", "pde_2", "DirichletBC", "IC", "PointSetBC_1", "PointSetBC_2"]
    assert rates == [0.0025]  # the schedule of model.compile acts on the optimizer


def test_balancing_lbfgs_after_it_and_errors():
    found = run("""
out = {}
for solver in ("lra", "cagrad", "uw"):
    model, net, C = build()
    opt = MAdam([*net.parameters(), C], lr=5e-3, solver=solver)
    compile_model(model, opt, verbose=0)
    history, _ = model.train(iterations=30, display_every=1, verbose=0)
    out[solver] = [float(sum(history.loss_train[0])), float(sum(history.loss_train[-1])), opt.weights.tolist()]
before = float(sum(history.loss_train[-1]))
dde.optimizers.set_LBFGS_options(maxiter=10)
model.compile("L-BFGS", verbose=0, external_trainable_variables=C)
history, _ = model.train(verbose=0)
out["lbfgs"] = [before, float(sum(history.loss_train[-1]))]
errors = []
for make, options in [
    (lambda net, C: MAdam(net.parameters()), dict(external_trainable_variables=C)),
    (lambda net, C: torch.optim.Adam(net.parameters()), {}),
    (lambda net, C: MAdam(net.parameters(), solver="ntk"), {}),
    (lambda net, C: MAdam(net.parameters()), dict(lr=1e-3)),
]:
    model, net, C = build()
    options = {key: C if key.startswith("ext") else value for key, value in options.items()}
    try:
        compile_model(model, make(net, C), verbose=0, **options)
    except (ValueError, TypeError) as error:
        errors.append(str(error))
model, net, C = build(["l2", 1e-3])
try:
    compile_model(model, MAdam(net.parameters()))
except ValueError as error:
    errors.append(str(error))
print(json.dumps([out, errors]))
""")
    out, errors = found
    for solver in ("lra", "cagrad", "uw"):
        first, last, weights = out[solver]
        assert last < first, solver
        assert len(weights) == 6
    assert out["lra"][2][:2] == [1.0, 1.0]  # the equations, known by their names
    assert out["lbfgs"][1] < out["lbfgs"][0]
    wanted = [
        "the optimizer does not hold external_trainable_variables[0]",
        "optimizer must be a MAdam or a MultiObjective, got Adam",
        "NTK needs the residuals at each point",
        "lr is the optimizer's: MAdam(net.parameters(), lr=0.001)",
        "an l2 regularizer is the optimizer's: weight_decay=0.001 there",
    ]
    assert len(errors) == len(wanted)
    for message, start in zip(errors, wanted, strict=True):
        assert message.startswith(start)


def test_the_examples_run_plain_and_with_two_lines_changed():
    """In one process; the last line of each says what it found."""
    scripts = sorted((ROOT / "examples" / "deepxde").glob("*.py"))
    assert [script.stem for script in scripts] == ["burgers", "inverse", "resample"]
    found = run(f"""
import contextlib, io, runpy
last = {{}}
for script in {[str(script) for script in scripts]}:
    for how in ("--plain", "--changed"):
        sys.argv, text = [script, "24", how], io.StringIO()
        with contextlib.redirect_stdout(text):
            runpy.run_path(script, run_name="__main__")
        last[script + how] = text.getvalue().splitlines()[-1]
print(json.dumps(last))
""")
    for script in scripts:
        plain, changed = found[f"{script}--plain"], found[f"{script}--changed"]
        assert plain.split()[0] == changed.split()[0] and plain != changed
        assert all(abs(float(word)) < 10 for word in changed.split() if word[-1].isdigit())
        text = script.read_text(encoding="utf-8")
        assert text.count("# 1\n") == text.count("# 2\n") == 1  # the two lines
