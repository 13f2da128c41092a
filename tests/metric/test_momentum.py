"""Momentum before the metric, by its definition; Adam and checkpoints as further oracles."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from helpers import Net, assert_leaves_no_trace, close_params, same_params, train
from madamoo import MSOAP, MultiObjective, PreferenceMetric, solvers
from madamoo.metric import EigenBasis

ESTIMATORS = ("full", "pair", "diagonal", "separable", "marginal")


def by_definition(rows, weights, momentum, beta, eps=1e-16):
    """m / M step by step: the averages of d, of lambda and of all g_i g_j, each corrected for its start at zero."""
    m, preference, F, out = 0.0, 0.0, 0.0, []
    for t, (g, w) in enumerate(zip(rows, weights, strict=True), start=1):
        g, w = np.nan_to_num(g), np.where(np.isnan(g).any(1), 0.0, w)
        m = momentum * m + (1 - momentum) * w @ g
        preference = momentum * preference + (1 - momentum) * w
        F = beta * F + (1 - beta) * g[:, None] * g[None]
        now, p = m / (1 - momentum**t), preference / (1 - momentum**t)
        C = np.einsum("i,j,ijn->n", p, p, F / (1 - beta**t))
        out.append(now / np.sqrt(np.maximum(C, (1 - beta) * now**2) + eps))
    return np.stack(out)


def sgd(params, solver, lr=0.0, **options):
    return MultiObjective(torch.optim.SGD(params, lr=lr), solver, PreferenceMetric(**options))


def test_against_its_definition(feed, close):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(12, 3, 7)) * np.exp(rng.normal(size=(12, 3, 1)))
    weights = rng.dirichlet(np.ones(3), 12)
    param = nn.Parameter(torch.zeros(7, dtype=torch.float64))
    opt = sgd([param], solvers.Preference(), estimator="full", momentum=0.8, beta=0.9)
    found = feed(opt, param, rows, torch.tensor(weights))
    close(found, by_definition(rows, weights, 0.8, 0.9))
    assert opt.metric.rampup == 0  # there is none unless asked for


def test_the_bound_holds_where_the_preference_jumps(feed):
    """Then the curvature at the momentum's preference may be anything, and zero too."""
    rng = np.random.default_rng(1)
    weights = np.eye(2)[rng.integers(2, size=40)]
    for estimator in ("full", "separable", "diagonal"):
        param = nn.Parameter(torch.zeros(5, dtype=torch.float64))
        opt = sgd([param], solvers.Preference(), estimator=estimator, momentum=0.9, beta=0.75)
        found = feed(opt, param, rng.normal(size=(40, 2, 5)), torch.tensor(weights))
        assert float(found.abs().max()) <= 2.0 + 1e-9  # 1 / sqrt(1 - beta)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_the_bound_holds_where_the_momentum_outlives_the_averages(estimator, feed):
    """Gradients that vanish: the average of d^2 forgets the large ones first."""
    rows = np.random.default_rng(2).normal(size=(60, 2, 5))
    rows[20:] *= 1e-5
    param = nn.Parameter(torch.zeros(5, dtype=torch.float64))
    found = feed(sgd([param], solvers.RLW(), estimator=estimator, momentum=0.95, beta=0.75), param, rows)
    assert float(found.abs().max()) <= 2.0 + 1e-9


@pytest.mark.filterwarnings("ignore:the weights of a static solver were changed")
def test_the_bound_holds_where_the_averages_start_again(feed):
    """The weights of a static solver are changed: the momentum still holds what the averages have lost."""
    rows = np.random.default_rng(3).normal(size=(22, 2, 500))
    param = nn.Parameter(torch.zeros(500, dtype=torch.float64))
    opt = sgd([param], solvers.LS([0.5, 0.5]), momentum=0.9, beta=0.75)
    feed(opt, param, rows[:20])
    opt.solver.coefficients.copy_(torch.tensor([0.9, 0.1], dtype=torch.float64))
    assert float(feed(opt, param, rows[20:]).abs().max()) <= 2.0 + 1e-9


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_measured_now_and_then_it_starts_no_faster(estimator, feed):
    """There is no ramp-up: by the one sample of the first step, those that follow would be divided by too little."""
    rows, largest = np.random.default_rng(4).normal(size=(30, 2, 300)), []
    for every in (1, 10):
        param = nn.Parameter(torch.zeros(300, dtype=torch.float64))
        found = feed(sgd([param], solvers.RLW(), estimator=estimator, momentum=0.9, every=every), param, rows)
        largest.append(float(found[:10].square().mean(1).sqrt().max()))
    assert largest[1] < 1.1 * largest[0]


@pytest.mark.parametrize("estimator", ["auto", "full", "separable", "marginal"])
def test_constant_weights_are_adam(estimator):
    net, other = Net(), Net()
    train(net, sgd(net.parameters(), None, 1e-2, estimator=estimator, momentum=0.9, beta=0.99, eps=1e-24), 20)
    train(other, MultiObjective(torch.optim.Adam(other.parameters(), lr=1e-2, betas=(0.9, 0.99), eps=1e-12)), 20)
    close_params(net, other, rtol=1e-7, atol=1e-9)


def test_a_missing_objective_has_no_part_in_the_preference(feed, close):
    rng = np.random.default_rng(2)
    rows, weights = rng.normal(size=(8, 2, 5)), rng.dirichlet(np.ones(2), 8)
    rows[3:5, 1] = np.nan
    param = nn.Parameter(torch.zeros(5, dtype=torch.float64))
    opt = sgd([param], solvers.Preference(), estimator="marginal", momentum=0.8, beta=0.9)
    found = feed(opt, param, rows, torch.tensor(weights))
    clean = np.nan_to_num(rows)
    weighed = np.where(np.isnan(rows).any(2), 0.0, weights)
    d = np.einsum("ti,tin->tn", weighed, clean)[:, None]
    close(found, by_definition(d, np.ones((8, 1)), 0.8, 0.9))


@pytest.mark.parametrize("basis", ["identity", EigenBasis(every=2)])
def test_resumes_bit_for_bit_and_leaves_no_trace(basis):
    for estimator in ESTIMATORS:
        for extra in ({}, {"dtype": "bfloat16"}, {"every": 3}):
            net = Net(dtype=torch.float32)
            options = {"estimator": estimator, "basis": basis, "momentum": 0.9, "beta": 0.9, **extra}
            opt = sgd(net.parameters(), solvers.RLW(), 1e-2, **options)
            train(net, opt, 5)
            other = copy.deepcopy(net)
            again = sgd(other.parameters(), solvers.RLW(), 1e-2, **options)
            again.load_state_dict(copy.deepcopy(opt.state_dict()))
            assert_leaves_no_trace(net, opt)
            train(net, opt, 4, start=5)
            train(other, again, 4, start=5)
            assert same_params(net, other), options


def test_accumulation_is_one_batch():
    one, two = Net(), Net()
    for net, parts in ((one, 1), (two, 2)):
        train(net, MSOAP(net.parameters(), lr=1e-2, solver="mgda"), 6, parts=parts)
    close_params(one, two, rtol=1e-6, atol=1e-8)


def test_bytes_are_known_beforehand():
    net = Net(dtype=torch.float32)
    chosen = PreferenceMetric("full", momentum=0.9)
    said = chosen.state_bytes(net.trunk, 3, net.heads)
    train(net, MultiObjective(torch.optim.SGD(net.parameters(), lr=1e-2), solvers.RLW(), chosen), 2)
    held = sum(t.numel() * t.element_size() for a in chosen.averages for t in a.tensors())
    assert said == held + sum(p.numel() * 4 for p in net.parameters())


def test_checkpoints_that_do_not_fit_are_refused():
    def built(**options):
        net = Net()
        return net, sgd(net.parameters(), solvers.RLW(), 1e-2, estimator="full", **options)

    net, opt = built(momentum=0.9)
    train(net, opt, 2)
    for options in ({}, {"momentum": 0.8}):
        with pytest.raises(ValueError, match="momentum"):
            built(**options)[1].load_state_dict(opt.state_dict())
    for damage in ({"d": torch.zeros(2)}, {"n": 0}):
        state = copy.deepcopy(opt.state_dict())
        state["multi_objective"]["metric"]["momentum"][0].update(damage)
        with pytest.raises(ValueError, match="momentum of parameter 0"):
            built(momentum=0.9)[1].load_state_dict(state)
    state = copy.deepcopy(opt.state_dict())
    state["multi_objective"]["metric"]["momentum"][99] = state["multi_objective"]["metric"]["momentum"][0]
    with pytest.raises(ValueError, match="parameter 99"):
        built(momentum=0.9)[1].load_state_dict(state)


@pytest.mark.parametrize(
    "options, match",
    [
        ({"momentum": 1.0}, "momentum"),
        ({"momentum": -0.1}, "momentum"),
        ({"momentum": 0.9, "normalise": True}, "normalise"),
    ],
)
def test_wrong_options(options, match):
    with pytest.raises(ValueError, match=match):
        PreferenceMetric(**options)


def test_weights_per_coordinate_are_refused():
    net = Net()
    opt = sgd(net.parameters(), solvers.GradDrop(), momentum=0.9)
    with pytest.raises(ValueError, match="coordinate by coordinate"):
        opt.backward(net.losses(0))
