"""A checkpoint holds everything, and one that does not fit is refused whole."""

import copy
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as distributed
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)

from helpers import Net, adam, inf_loss, metric, preference, same, snapshot, train, wrap
from madamoo import MultiObjective, solvers
from optimizer.cover import COVER, KINDS, sgd

BEFORE, AFTER = 2, 2
RUNS = {f"{solver}-{estimator}": {"solver": solver, "estimator": estimator} for solver, estimator in COVER}
RUNS |= {
    "bfloat16": {"solver": "uw", "estimator": "full", "dtype": torch.bfloat16},
    "names": {"solver": "dwa", "estimator": "pair", "objectives": ["a", "b", "c"]},
    "names-shared": {"solver": "cagrad", "estimator": "full", "objectives": ["a", "b", "c"]},
    "scaler-off": {"solver": "rlw", "estimator": "pair", "scaler": torch.amp.GradScaler("cpu", enabled=False)},
}


def build(name):
    spec = RUNS[name]
    net = Net(dtype=spec.get("dtype", torch.float64))
    return net, wrap(net, spec["solver"], spec["estimator"], objectives=spec.get("objectives"))


def go_on(name, net, opt, start, steps):
    """Named losses come in any order, one is missing from each batch, and after the checkpoint two are."""
    scaler, names = RUNS[name].get("scaler"), RUNS[name].get("objectives")
    for t in range(start, start + steps):
        losses = net.losses(t)
        if names is not None:
            losses = {names[i]: losses[i] for i in (2, 0, 1) if (i != t % 3 if t < BEFORE else i == t % 3)}
        opt.zero_grad()
        opt.backward(losses, preference(opt, t, 3), scaler=scaler)
        opt.step() if scaler is None else scaler.step(opt)


def resume(folder):
    """What the new process does: all from the file, nothing from memory."""
    torch.set_num_threads(1)
    saved = torch.load(folder / "saved.pt", weights_only=True)
    result = {}
    for name in RUNS:
        net, opt = build(name)
        net.load_state_dict(saved[name]["net"])
        opt.load_state_dict(saved[name]["opt"])
        go_on(name, net, opt, BEFORE, AFTER)
        result[name] = {"net": net.state_dict(), "opt": opt.state_dict()}
    torch.save(result, folder / "resumed.pt")


def test_runs_resumed_in_a_new_process_equal_runs_that_were_not_interrupted(tmp_path):
    saved, whole = {}, {}
    for name in RUNS:
        net, opt = build(name)
        go_on(name, net, opt, 0, BEFORE)
        saved[name] = copy.deepcopy({"net": net.state_dict(), "opt": opt.state_dict()})
        go_on(name, net, opt, BEFORE, AFTER)
        whole[name] = {"net": net.state_dict(), "opt": opt.state_dict()}
    torch.save(saved, tmp_path / "saved.pt")
    path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    subprocess.run([sys.executable, __file__, str(tmp_path)], check=True, env={**os.environ, "PYTHONPATH": path})
    resumed = torch.load(tmp_path / "resumed.pt", weights_only=True)
    assert [name for name in RUNS if not same(whole[name], resumed[name])] == []


def test_averages_of_bfloat16_parameters_stay_float32():
    net, opt = build("bfloat16")
    go_on("bfloat16", net, opt, 0, 2)
    other = build("bfloat16")[1]
    other.load_state_dict(copy.deepcopy(opt.state_dict()))
    assert {a.F.dtype for a in other.metric.averages} == {torch.float32}
    assert same(opt.metric.state_dict(list(net.parameters())), other.metric.state_dict(other.param_groups[0]["params"]))


@pytest.mark.filterwarnings("ignore:.*is not finite")
def test_the_count_of_skipped_steps_is_kept():
    net = Net()
    opt, other = wrap(net), wrap(Net())
    opt.backward(inf_loss(net.losses(0)))
    opt.step()
    other.load_state_dict(opt.state_dict())
    assert other.skipped == opt.skipped == 1


@pytest.mark.parametrize("solver, estimator", KINDS)
def test_a_run_can_be_put_back_to_its_start(solver, estimator):
    """As a search for a learning rate does: save before the first step, try, load."""
    net, control = Net(), Net()
    train(control, wrap(control, solver, estimator), 2)
    opt = wrap(net, solver, estimator)
    start = copy.deepcopy((net.state_dict(), opt.state_dict()))
    train(net, opt, 3, start=50)
    net.load_state_dict(start[0])
    opt.load_state_dict(start[1])
    train(net, opt, 2)
    assert same(list(net.parameters()), list(control.parameters()))


# torch.distributed.checkpoint, which knows of "state" and "param_groups" only.


def _fresh(solver, estimator, inner):
    net = Net()
    return net, wrap(net, solver, estimator, inner=inner)


@pytest.mark.parametrize("inner", [adam, sgd])
@pytest.mark.parametrize("solver, estimator", KINDS)
def test_a_run_resumes_from_a_distributed_checkpoint(solver, estimator, inner, tmp_path):
    """By its functions alone, and by its files; what is loaded goes on as what was saved, bit for bit."""
    net, opt = _fresh(solver, estimator, inner)
    train(net, opt, 3)
    states = {"plain": None, "full": StateDictOptions(full_state_dict=True, cpu_offload=True)}
    states = {name: copy.deepcopy(get_optimizer_state_dict(net, opt, options=o)) for name, o in states.items()}
    weights = copy.deepcopy(get_model_state_dict(net))
    distributed.save({"net": weights, "opt": states["plain"]}, checkpoint_id=tmp_path)
    before = snapshot(net, opt)
    train(net, opt, 2, start=3)
    for name in ("plain", "full", "file"):
        other, fresh = _fresh(solver, estimator, inner)
        state = {"net": weights, "opt": states.get(name)}
        if name == "file":
            state = {"net": get_model_state_dict(other), "opt": get_optimizer_state_dict(other, fresh)}
            distributed.load(state, checkpoint_id=tmp_path)
        set_model_state_dict(other, state["net"])
        set_optimizer_state_dict(other, fresh, state["opt"])
        assert same(before, snapshot(other, fresh)), name
        assert "multi_objective" not in fresh.param_groups[0]
        train(other, fresh, 2, start=3)
        assert same(snapshot(net, opt), snapshot(other, fresh)), name


@pytest.mark.parametrize("options", [{"full_state_dict": True}, {"flatten_optimizer_state_dict": True}], ids=str)
def test_what_a_distributed_checkpoint_cannot_carry_is_an_error_not_a_loss(options):
    net, opt = _fresh("uw", "full", adam)
    train(net, opt, 3)
    other, fresh = _fresh("uw", "full", adam)
    state = get_optimizer_state_dict(net, opt, options=StateDictOptions(**options))
    with pytest.raises((KeyError, ValueError), match="multi_objective"):
        set_optimizer_state_dict(other, fresh, state, options=StateDictOptions(**options))


def test_a_checkpoint_holds_no_tensor_twice(tmp_path):
    """Our part is in the first group too: the same tensors, which torch saves once."""
    net, opt = _fresh("uw", "full", adam)
    train(net, opt, 3)
    whole, once = opt.state_dict(), opt.state_dict()
    del once["param_groups"][0]["multi_objective"]
    torch.save(whole, tmp_path / "whole.pt")
    torch.save(once, tmp_path / "once.pt")
    assert (tmp_path / "whole.pt").stat().st_size - (tmp_path / "once.pt").stat().st_size < 200
    loaded = torch.load(tmp_path / "whole.pt", weights_only=True)
    assert loaded["param_groups"][0]["multi_objective"][0] is loaded["multi_objective"]
    for state in (loaded, once):
        fresh = _fresh("uw", "full", adam)[1]
        fresh.load_state_dict(state)
        assert same(fresh.state_dict(), opt.state_dict())


# What does not fit.


def _ran(solver="uw", estimator="full", count=3, width=6, steps=2, objectives=None):
    net = Net(count)
    if width != 6:
        net.trunk[0] = torch.nn.Linear(4, width, dtype=torch.float64)
        net.heads = torch.nn.ModuleList(torch.nn.Linear(width, 1, dtype=torch.float64) for _ in range(count))
    opt = wrap(net, solver, estimator, objectives=objectives)
    for t in range(steps):
        losses = net.losses(t)
        opt.backward(losses if objectives is None else dict(zip(objectives, losses, strict=True)))
        opt.step()
    return net, opt


def _refuses(net, opt, state, match):
    """The error says why, and neither the optimizer nor the state has changed."""
    before, saved = snapshot(net, opt), copy.deepcopy(state)
    with pytest.raises(ValueError, match=match):
        opt.load_state_dict(state)
    assert same(before, snapshot(net, opt))
    assert same(saved, state)


@pytest.mark.parametrize(
    "here, there, match",
    [
        ({"width": 5}, {}, "shape"),
        ({"solver": "dwa"}, {}, "solver"),
        ({"estimator": "pair"}, {}, "estimator"),
        ({"estimator": "auto"}, {"estimator": "marginal"}, "estimator"),
        ({"estimator": None}, {}, "metric"),
        ({}, {"estimator": None}, "metric"),
        ({"objectives": ["a", "b", "c"]}, {"objectives": ["a", "b", "d"]}, "objectives"),
        ({"count": 2}, {"count": 3}, "parameters"),
    ],
)
def test_a_checkpoint_of_another_optimizer_is_refused(here, there, match):
    for steps in (0, 2):
        _refuses(*_ran(**here, steps=steps), _ran(**there)[1].state_dict(), match)


@pytest.mark.parametrize("solver", [solvers.LS([1.0, 2.0]), solvers.CAGrad()], ids=["ls", "cagrad"])
def test_a_checkpoint_with_another_number_of_objectives_is_refused(solver):
    """The same parameters, two objectives here and three there."""
    net, other = Net(2), Net(2)
    opt = MultiObjective(adam(net), solver)
    opt.backward(net.losses(0))
    opt.step()
    there = MultiObjective(adam(other), type(solver)())
    there.backward([*other.losses(0), sum(other.losses(1))])
    there.step()
    _refuses(net, opt, there.state_dict(), "2|3")
    if isinstance(solver, solvers.LS):  # known before the first step
        fresh = Net(2)
        _refuses(fresh, MultiObjective(adam(fresh), solvers.LS([1.0, 2.0])), there.state_dict(), "2|3")


def _pieces(state, place=()):
    """Where in the state, and under which name, each piece of it is; torch's own parts and options count as one."""
    for key, value in state.items():
        if isinstance(key, str):
            yield place, key
        if isinstance(value, dict) and key != "options" and (place, key) != ((), "state"):
            yield from _pieces(value, (*place, key))


@pytest.mark.parametrize("solver, estimator", [("uw", "full"), ("rlw", "pair"), ("famo", "separable")])
def test_a_checkpoint_that_lacks_a_piece_is_refused(solver, estimator):
    whole = _ran(solver, estimator)[1].state_dict()
    pieces = [*_pieces(whole)]
    assert (("multi_objective", "metric", "averages", 0), "F" if estimator != "separable" else "v") in pieces
    wrong = {}
    for steps in (0, 2):
        net, opt = _ran(solver, estimator, steps=steps)
        for place, name in pieces:
            state = part = copy.deepcopy(whole)
            for key in place:
                part = part[key]
            if part.pop(name) is None and name in ("generator", "objective_names"):
                continue  # the solver draws nothing, the losses have no names
            if name == "options":
                continue  # see test_options_in_checkpoints.py
            if name == "multi_objective":
                del state["param_groups"][0][name]
            try:
                _refuses(net, opt, state, name)
            except (Exception, pytest.fail.Exception) as error:
                wrong[(*place, name)] = repr(error)
    assert wrong == {}


def _averages(own, index):
    return own["metric"]["averages"][index]


DAMAGE = {
    "skipped": lambda own: own.update(skipped=None),
    "layout": lambda own: own.update(layout=None),
    "reach": lambda own: own["layout"].update(reach=None),
    "reach of a parameter": lambda own: own["layout"]["reach"].update({0: None}),
    "reach of a parameter in a block is gone": lambda own: own["layout"]["reach"].pop(0),
    "blocks": lambda own: own["layout"].update(blocks=None),
    "block of a parameter that is not": lambda own: own["layout"]["blocks"].append([99]),
    "options": lambda own: own.update(options=None),
    "solver": lambda own: own.update(solver=None),
    "steps": lambda own: own["metric"].update(steps=None),
    "constant": lambda own: own["metric"].update(constant=None),
    "norms": lambda own: own["metric"].update(norms=None),
    "generator": lambda own: own["metric"].update(generator=None),
    "generator cut": lambda own: own["metric"].update(generator=own["metric"]["generator"][:-1]),
    "noise cut": lambda own: own["metric"].update(noise=own["metric"]["noise"][:-1]),
    "averages": lambda own: own["metric"].update(averages=None),
    "averages of one of a block": lambda own: own["metric"]["averages"].pop(own["layout"]["blocks"][0][0]),
    "averages of a parameter": lambda own: own["metric"]["averages"].update({0: None}),
    "pairs": lambda own: _averages(own, 1).update(pairs=[None] * len(_averages(own, 1)["pairs"])),
    "scale": lambda own: _averages(own, 1).update(scale=None),
}


@pytest.mark.parametrize("solver, estimator", [("uw", "full"), ("famo", "separable"), ("rlw", "pair"), ("ls", "auto")])
def test_a_damaged_checkpoint_is_refused_whole(solver, estimator):
    net = Net(dtype=torch.float32)
    opt = MultiObjective(adam(net), solvers.get(solver), metric(estimator, dtype=torch.bfloat16, normalise=True))
    train(net, opt, 9)  # by then every block has averages, whatever was drawn
    state = copy.deepcopy(opt.state_dict())
    assert len(state["multi_objective"]["layout"]["blocks"][0]) > 1
    train(net, opt, 2)
    wrong = {}
    for name, damage in DAMAGE.items():
        damaged = copy.deepcopy(state)
        damage(damaged["multi_objective"])
        try:
            _refuses(net, opt, damaged, "of the checkpoint is damaged")
        except (Exception, pytest.fail.Exception) as error:
            wrong[name] = repr(error)
    assert wrong == {}
    train(net, opt, 1)


def _places(value, path=()):
    """Every place in nested dictionaries and lists."""
    if path:
        yield path
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in parts:
        yield from _places(inner, (*path, key))


ODD = [None, -1, 0, 10**30, "x", [], {}, 1.5, True, [1, 2], {"a": 1}, b"x", torch.zeros(2), torch.zeros(3, 3)]


@settings(max_examples=80, deadline=None, derandomize=True)
@given(
    kind=st.sampled_from([("uw", "full"), ("ls", "collapsed"), ("cagrad", "separable"), ("famo", "pair")]),
    place=st.integers(0, 10**6),
    odd=st.sampled_from(ODD),
    drop=st.booleans(),
)
@example(kind=("uw", "full"), place=0, odd={"a": 1}, drop=False)  # names of other objectives than there are
def test_any_damage_is_refused_whole_or_harmless(kind, place, odd, drop):
    net, opt = _ran(*kind)
    state = copy.deepcopy(opt.state_dict())
    own = state["multi_objective"]
    del own["options"]  # as the user does who goes on with others
    places = [*_places(own)]
    *path, last = places[place % len(places)]
    inner = own
    for key in path:
        inner = inner[key]
    if drop:
        del inner[last]
    else:
        inner[last] = odd
    train(net, opt, 1, start=9)
    before = snapshot(net, opt)
    try:
        opt.load_state_dict(state)
    except ValueError:
        assert same(before, snapshot(net, opt))
    train(net, opt, 2, start=10)
    assert all(p.isfinite().all() for p in net.parameters())


def test_the_state_of_a_plain_optimizer_is_refused_with_the_way_to_load_it():
    net, opt = _ran()
    plain = copy.deepcopy(opt.optimizer.state_dict())
    _refuses(net, opt, plain, r"multi_objective.*opt\.optimizer\.load_state_dict\(state\)")
    opt.optimizer.load_state_dict(plain)
    train(net, opt, 1)


def test_an_automatic_estimator_takes_what_it_has_made():
    for solver, used in (("cagrad", "full"), ("uw", "marginal")):
        opt = _ran(solver, "auto")[1]
        other = wrap(Net(), solver, "auto")
        other.load_state_dict(copy.deepcopy(opt.state_dict()))
        assert other.metric.used == opt.metric.used == used


if __name__ == "__main__":
    resume(Path(sys.argv[1]))
