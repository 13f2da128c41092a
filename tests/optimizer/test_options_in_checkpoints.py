"""Averages and weights depend on the options they were made with: a checkpoint of others is refused, by name."""

import copy

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from helpers import Net, adam, same, snapshot, train
from madamoo import MAdam, MultiObjective, PreferenceMetric, solvers
from madamoo.metric import EigenBasis

METRIC = {
    "estimator": "diagonal",
    "beta": 0.9,
    "eps": 1e-8,
    "rampup": 7,
    "ramp": "paper",
    "bias_correction": False,
    "floor": False,
    "every": 2,
    "dtype": "float64",
    "normalise": True,
    "basis": EigenBasis(every=2),
    "momentum": 0.5,
}
OPTIMIZER = {"head_weights": "lambda", "max_norm": 0.1, "rows": "all", "shared": True}
# fmt: off
SOLVERS = {
    "alignedmtl": {"weights": [1.0, 2.0, 3.0], "scale": "median"}, "cagrad": {"c": 0.2}, "cosmos": {"weight": 1.0},
    "dbmtl": {"beta": 0.5, "eps": 1e-6}, "dualproj": {"weights": [1.0, 2.0, 3.0]},
    "dwa": {"temperature": 1.0, "window": 3}, "epo": {"eps": 1e-3},
    "famo": {"lr": 0.1, "gamma": 0.01, "min_losses": [0.0, 0.1, 0.0], "eps": 1e-6}, "ferero": {"c_h": 0.5},
    "geometricmean": {"eps": 1e-6}, "graddrop": {"leak": [0.1, 0.2, 0.3]}, "gradnorm": {"alpha": 0.5, "lr": 0.1},
    "gradvac": {"beta": 0.1, "order": "fixed"}, "imtl": {"lr": 0.1, "eps": 1e-6}, "imtlg": {},
    "imtll": {"lr": 0.1, "eps": 1e-6}, "lra": {"reference": [1], "decay": 0.5, "every": 3},
    "ls": {"weights": [1.0, 2.0, 3.0]}, "ntk": {"every": 3}, "ntkpinnacle": {"reference": [1], "every": 3},
    "mgda": {"normalization": "l2"},
    "nashmtl": {"max_norm": 2.0, "update_every": 3}, "paretomtl": {"rays": [[1.0, 2.0, 3.0]], "search_steps": 50},
    "pcgrad": {"order": "fixed"}, "preference": {"default": [1.0, 2.0, 3.0], "normalise": True},
    "rlw": {"distribution": "dirichlet"}, "rotograd": {"n_objectives": 3, "lr": 0.1},
    "smoothtchebycheff": {"mu": 0.5, "warmup": 3, "log": True, "default": [1.0, 2.0, 3.0], "ideal": [0.0, 0.1, 0.0],
                          "eps": 1e-6},
    "tchebycheff": {"default": [1.0, 2.0, 3.0], "ideal": [0.0, 0.1, 0.0]}, "upgrad": {"weights": [1.0, 2.0, 3.0]},
    "uw": {"kinds": "classification", "lr": 0.1, "eps": 1e-6},
}
# fmt: on
CHANGES = [
    *(("metric", "uw", name, value) for name, value in METRIC.items()),
    *(("optimizer", "cagrad", name, value) for name, value in OPTIMIZER.items()),
    *(("solver", solver, name, value) for solver, options in SOLVERS.items() for name, value in options.items()),
]


def build(part=None, solver="uw", changed=()):
    net = Net()
    own = {name: {} for name in ("metric", "optimizer", "solver")}
    if part is not None:
        own[part] = dict(changed)
    if own["optimizer"].pop("shared", False):
        own["optimizer"]["shared"] = [net.trunk[0].weight]
    metric = PreferenceMetric(**{"estimator": "full", "rampup": 3, **own["metric"]})
    return net, MultiObjective(adam(net), solvers.get(solver, **own["solver"]), metric, **own["optimizer"])


def test_every_option_is_here():
    """A new option has to say what it means for a checkpoint."""
    opt = build()[1]
    assert {*METRIC} == {*opt.metric.options()}
    assert {*opt.state_dict()["multi_objective"]["options"]["optimizer"]} - {"gram"} == {*OPTIMIZER}
    assert {*SOLVERS} == {*solvers.available()}
    for name, options in SOLVERS.items():
        assert {*options} == {*solvers.get(name).options()} - {"seed"}, name


def test_each_option_alone_is_refused_whole_in_both_directions():
    wrong = {}
    for part, solver, name, value in CHANGES:
        (net, usual), (other, changed) = build(part, solver), build(part, solver, {name: value})
        for n, here, there in ((net, usual, changed), (other, changed, usual)):
            before, state = snapshot(n, here), copy.deepcopy(there.state_dict())
            try:
                here.load_state_dict(state)
                wrong[part, solver, name] = "was taken"
            except ValueError as error:
                if name not in str(error) or not same(before, snapshot(n, here)):
                    wrong[part, solver, name] = repr(error)
    assert wrong == {}


@settings(max_examples=30, deadline=None, derandomize=True, database=None)
@given(changes=st.lists(st.sampled_from([c for c in CHANGES if c[0] != "solver"]), min_size=1, max_size=4))
def test_several_options_are_all_named(changes):
    """After steps too: the state of neither is changed."""
    net, opt = build()
    train(net, opt, 2)
    other = Net()
    options = {name: value for part, _, name, value in changes if part == "metric"}
    assume(not {"momentum", "normalise"} <= options.keys())  # these do not go together
    more = {name: value for part, _, name, value in changes if part == "optimizer"}
    if more.pop("shared", False):
        more["shared"] = other.trunk
    metric = PreferenceMetric(**{"estimator": "full", "rampup": 3, **options})
    there = MultiObjective(adam(other), solvers.UW(), metric, **more)
    train(other, there, 2)
    before = snapshot(net, opt)
    with pytest.raises(ValueError) as error:  # noqa: PT011
        opt.load_state_dict(there.state_dict())
    assert same(before, snapshot(net, opt))
    assert all(f" {name}=" in str(error.value) for name in (*options, *more))


def test_the_same_options_go_on_bit_for_bit():
    for part, solver, name, value in CHANGES:
        if part == "solver" and solver != "uw":
            continue
        net, opt = build(part, solver, {name: value})
        train(net, opt, 2)
        other, fresh = build(part, solver, {name: value})
        other.load_state_dict(net.state_dict())
        fresh.load_state_dict(copy.deepcopy(opt.state_dict()))
        train(net, opt, 2, start=2)
        train(other, fresh, 2, start=2)
        assert same(snapshot(net, opt), snapshot(other, fresh)), name


def test_who_wants_other_options_deletes_those_of_the_checkpoint():
    net, opt = build()
    train(net, opt, 2)
    state = copy.deepcopy(opt.state_dict())
    other, changed = build("metric", "uw", {"beta": 0.9, "eps": 1e-8})
    with pytest.raises(ValueError, match=r"beta=None \(here 0\.9\).*delete the 'options'"):
        changed.load_state_dict(state)
    del state["multi_objective"]["options"]
    changed.load_state_dict(state)
    assert changed.metric.beta == 0.9 and changed.metric.steps == 2
    train(other, changed, 2, start=2)


def test_hyper_parameters_of_the_groups_are_restored_as_in_torch():
    net, other = Net(), Net()
    opt = MAdam(net.parameters(), lr=1e-2, betas=(0.5, 0.9), eps=1e-6, weight_decay=0.1)
    train(net, opt, 2)
    fresh = MAdam(other.parameters())
    fresh.load_state_dict(copy.deepcopy(opt.state_dict()))
    group = fresh.param_groups[0]
    assert (group["lr"], group["betas"], group["eps"], group["weight_decay"]) == (1e-2, (0.5, 0.9), 1e-6, 0.1)
    other.load_state_dict(net.state_dict())
    train(net, opt, 2, start=2)
    train(other, fresh, 2, start=2)
    assert same(snapshot(net, opt), snapshot(other, fresh))


def test_a_seed_is_no_option_since_the_generators_are_loaded():
    net, other = Net(), Net()

    def make(net, seed):
        return MultiObjective(adam(net), solvers.RLW(seed=seed), PreferenceMetric("pair", seed=seed))

    opt, fresh = make(net, 0), make(other, 1)
    train(net, opt, 2)
    other.load_state_dict(net.state_dict())
    fresh.load_state_dict(copy.deepcopy(opt.state_dict()))
    train(net, opt, 5, start=2)
    train(other, fresh, 5, start=2)
    assert same(snapshot(net, opt)["params"], snapshot(other, fresh)["params"])


def test_the_options_of_a_checkpoint_are_plain_values():
    """So that weights_only reads them, whatever was given: tensors, tuples, dtypes, modules."""
    net = Net()
    solver = solvers.LS(torch.tensor([1.0, 2.0, 3.0]))
    opt = MultiObjective(adam(net), solver, PreferenceMetric(dtype=torch.bfloat16), shared=net.trunk)
    saved = opt.state_dict()["multi_objective"]["options"]
    assert saved["solver"] == {"weights": [1.0, 2.0, 3.0]}
    assert saved["metric"]["dtype"] == "bfloat16"
    assert saved["optimizer"]["shared"] == [0, 1]
    again = MultiObjective(adam(Net()), solvers.LS((1, 2, 3)), PreferenceMetric(dtype="bfloat16"))
    with pytest.raises(ValueError, match="shared"):
        again.load_state_dict(opt.state_dict())
