"""Closures: run once by most optimizers, several times by L-BFGS."""

import pytest
import torch

from helpers import Net, same_params, train, wrap
from madamoo import MultiObjective, PreferenceMetric, solvers


@pytest.mark.parametrize("solver, estimator", [("ls", "collapsed"), ("cagrad", "full"), ("rlw", None)])
def test_step_runs_the_closure_once_and_returns_its_value(solver, estimator):
    net, control = Net(), Net()
    train(control, wrap(control, solver, estimator), 3)
    opt = wrap(net, solver, estimator)
    calls = []

    def closure():
        calls.append(len(calls))
        opt.zero_grad()
        losses = net.losses(calls[-1])
        opt.backward(losses)
        return sum(losses)

    with torch.no_grad():  # step turns gradients on for the closure
        values = [opt.step(closure) for _ in range(3)]
    assert calls == [0, 1, 2]
    assert all(isinstance(v, torch.Tensor) for v in values)
    assert same_params(net, control)


def _quadratics(x):
    """Their mean has its minimum at 1/2."""
    scale = torch.linspace(1, 3, len(x), dtype=x.dtype)
    return [(scale * x.square()).sum(), (scale * (x - 1).square()).sum()]


def _lbfgs_step(opt, x, spoil=1.0):
    def closure():
        opt.zero_grad()
        losses = [spoil * loss for loss in _quadratics(x)]
        opt.backward(losses)
        return sum(losses) / 2

    return opt.step(closure)


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_lbfgs_minimises_the_weighted_sum(search):
    for dtype in (torch.float32, torch.float64):
        x = torch.full((4,), 3.0, dtype=dtype, requires_grad=True)
        opt = MultiObjective(torch.optim.LBFGS([x], line_search_fn=search), solvers.LS())
        for _ in range(5):
            _lbfgs_step(opt, x)
        torch.testing.assert_close(x.detach(), torch.full((4,), 0.5, dtype=dtype), rtol=0, atol=1e-3)


@pytest.mark.filterwarnings("ignore:.*is not finite")
@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_lbfgs_does_not_move_on_a_loss_that_is_nan(search):
    x = torch.full((4,), 3.0, requires_grad=True)
    opt = MultiObjective(torch.optim.LBFGS([x], line_search_fn=search), solvers.LS())
    for _ in range(2):
        before = x.detach().clone()
        _lbfgs_step(opt, x, spoil=torch.nan)
        assert torch.equal(x, before)
        _lbfgs_step(opt, x)
    torch.testing.assert_close(x.detach(), torch.full((4,), 0.5), rtol=0, atol=1e-3)


def test_lbfgs_with_a_metric_or_weights_that_change_is_refused():
    for pieces in [(solvers.LS(), PreferenceMetric()), (solvers.RLW(), None), (solvers.MGDA(), None)]:
        with pytest.raises(ValueError, match=r"LBFGS.*metric=None and a static solver"):
            MultiObjective(torch.optim.LBFGS(Net().parameters()), *pieces)


def test_lbfgs_without_a_closure_is_told_what_to_write():
    x = torch.full((4,), 3.0, requires_grad=True)
    opt = MultiObjective(torch.optim.LBFGS([x]))
    opt.backward(_quadratics(x))
    with pytest.raises(TypeError, match=r"opt\.step\(closure\), where the closure calls .*opt\.backward\(losses\)"):
        opt.step()
    assert torch.equal(x, torch.full((4,), 3.0))
