"""MSOAP: what it is made of, decoupled weight decay, and schedulers."""

import re

import pytest
import torch

from helpers import Net, same_params, train
from madamoo import MSOAP, MAdam, MultiObjective, PreferenceMetric, solvers
from madamoo.metric import EigenBasis
from madamoo.relatives import SOAP, AdaTask


def test_it_is_sgd_behind_momentum_and_metric():
    one, two = Net(), Net()
    train(one, MSOAP(one.parameters(), lr=1e-2, betas=(0.9, 0.8), solver="mgda"), 8)
    metric = PreferenceMetric(basis=EigenBasis(beta=0.8), momentum=0.9)
    train(two, MultiObjective(torch.optim.SGD(two.parameters(), lr=1e-2), solvers.MGDA(), metric), 8)
    assert same_params(one, two)


@pytest.mark.parametrize(
    "solver, estimator",
    [
        (None, "auto"),
        ("cagrad", "auto"),
        ("epo", "marginal"),
        ("rlw", "marginal"),
        ("famo", "marginal"),
        (solvers.LRA(reference=[0]), "marginal"),
        ("preference", "marginal"),
        (solvers.Preference(normalise=True), "marginal"),
        (solvers.COSMOS(weight=1.0), "marginal"),
        ("gradnorm", "marginal"),
    ],
)
def test_only_gradient_balancing_is_in_the_curvature(solver, estimator):
    params = [torch.nn.Parameter(torch.ones(3, 2))]
    assert MSOAP(params, solver=solver).metric.estimator == estimator
    assert MSOAP(params, solver=solver, estimator="full").metric.estimator == "full"


def test_gradients_of_single_objectives_every_so_many_steps(monkeypatch):
    """The first ten steps make the basis, and are all measured."""
    param, passes = torch.nn.Parameter(torch.linspace(0.1, 1.0, 6).reshape(3, 2)), []
    grad = torch.autograd.grad
    monkeypatch.setattr(torch.autograd, "grad", lambda *a, **k: passes.append(1) or grad(*a, **k))
    opt = MSOAP([param], lr=1e-3, solver="rlw", estimator="separable", every=5)
    counts = []
    for _ in range(20):
        passes.clear()
        opt.backward([param.square().sum(), (param[0] - 1).square().sum(), param[:, 1].exp().sum()])
        opt.step()
        counts.append(len(passes))
    assert counts == [3] * 10 + [1, 1, 1, 1, 3] * 2


def test_what_is_first_reached_between_two_measurements_takes_no_leap():
    generator = torch.Generator().manual_seed(0)
    param, other = (torch.nn.Parameter(torch.ones(8, 6)) for _ in range(2))
    opt = MSOAP([param, other], lr=1e-6, solver="rlw", estimator="separable", every=7)
    for t in range(40):  # measured are the first ten, and 16, 23, 30, ...
        both, rows = param + other if t > 25 else param, torch.randn(2, 8, 6, generator=generator)
        opt.zero_grad()
        opt.backward([(g * both).sum() for g in rows])
        opt.step()
        if t > 26:
            assert 0.1 < other.grad.square().mean().sqrt() < 2.0, t


def test_weight_decay_is_decoupled():
    """A step with a gradient of zero shrinks the parameters alone, as AdamW's."""
    param = torch.nn.Parameter(torch.full((3, 2), 2.0))
    opt = MSOAP([param], lr=0.1, weight_decay=0.5)
    opt.backward([(0.0 * param).sum(), (0.0 * param).sum()])
    opt.step()
    torch.testing.assert_close(param.detach(), torch.full((3, 2), 2.0 * (1 - 0.1 * 0.5)))


def test_schedulers_and_groups():
    net = Net()
    opt = MSOAP([{"params": net.trunk.parameters()}, {"params": net.heads.parameters(), "lr": 1e-3}], lr=1e-2)
    schedule = torch.optim.lr_scheduler.StepLR(opt, 1, gamma=0.5)
    train(net, opt, 1)
    schedule.step()
    assert [group["lr"] for group in opt.param_groups] == [5e-3, 5e-4]


@pytest.mark.parametrize("optimizer", [MAdam, MSOAP, SOAP, AdaTask])
@pytest.mark.parametrize(
    ("betas", "said"),
    [
        ((1.0, 0.9), "betas[0] must be at least 0 and below 1, got 1.0"),
        ((0.9, 1.0), "betas[1] must be at least 0 and below 1, got 1.0"),
        ((-0.1, 0.9), "betas[0] must be"),
        ((0.9, "0.9"), "betas[1] must be"),
        ((0.9,), "betas must be two numbers, of the first moment and of the second, got (0.9,)"),
        ((0.9, 0.9, 0.9), "betas must be two numbers"),
        (0.9, "betas must be two numbers"),
    ],
)
def test_wrong_betas(optimizer, betas, said):
    with pytest.raises(ValueError, match=rf"^{re.escape(said)}"):
        optimizer(Net().parameters(), betas=betas)
