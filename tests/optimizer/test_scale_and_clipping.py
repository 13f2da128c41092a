"""The scale of the losses does not matter; clipping acts where it is asked for."""

import pytest
import torch

from helpers import Net, adam, close_params, metric, same, snapshot, train, wrap
from madamoo import MAdam, MultiObjective, solvers
from madamoo.metric import ReferenceMetric


def _scaled_run(factor, solver):
    net = Net()
    opt = MAdam(net.parameters(), lr=1e-2, solver=solver, metric=metric("auto", rampup=40))
    for t in range(80):  # past the ramp-up
        opt.zero_grad()
        opt.backward([factor * loss for loss in net.losses(t)])
        opt.step()
    return net


@pytest.mark.parametrize("solver", [solvers.LS, solvers.CAGrad])
def test_the_scale_of_the_losses_does_not_matter(solver):
    one = _scaled_run(1.0, solver())
    moved = max((p - q).abs().max() for p, q in zip(one.parameters(), Net().parameters(), strict=True))
    assert moved > 0.1
    for factor in (1e-4, 1e4):
        close_params(_scaled_run(factor, solver()), one, rtol=0, atol=1e-6)


@pytest.mark.parametrize("estimator, max_norm", [("collapsed", None), ("collapsed", 0.3), ("full", 0.3), ("full", 1e3)])
def test_max_norm_clips_the_direction_before_the_metric(estimator, max_norm):
    """Against the metric as the paper writes it, fed with the clipped direction."""
    weights = [0.2, 0.3, 0.5]
    net, control = Net(), Net()
    train(net, MultiObjective(adam(net), solvers.LS(weights), metric(estimator), max_norm=max_norm), 6)
    reference, params = adam(control), list(control.parameters())
    metrics = [ReferenceMetric(rampup=3) for _ in params]
    clipped = 0
    for t in range(6):
        total = sum(w * loss for w, loss in zip(weights, control.losses(t), strict=True))
        directions = torch.autograd.grad(total, params)
        norm = torch.cat([d.flatten() for d in directions]).norm()
        factor = 1.0 if max_norm is None else min(1.0, max_norm / norm)
        clipped += factor < 1
        for p, m, d in zip(params, metrics, directions, strict=True):
            p.grad = m.step({0: factor * d}, [(0, 0)], [1.0], factor * d)
        reference.step()
    assert clipped == (6 if max_norm == 0.3 else 0)
    close_params(net, control, rtol=1e-6)


def test_clipping_after_backward_reaches_the_inner_optimizer_only():
    net, control = Net(), Net()
    sgd = [torch.optim.SGD(n.parameters(), lr=0.1) for n in (net, control)]
    opts = [MultiObjective(o, solvers.UW(), metric("full")) for o in sgd]
    start = [p.clone() for p in net.parameters()]
    for n, opt in zip((net, control), opts, strict=True):
        opt.backward(n.losses(0))
    norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 0.01)
    assert norm > 1
    for opt in opts:
        opt.step()
    for p, q, s in zip(net.parameters(), control.parameters(), start, strict=True):
        torch.testing.assert_close(p - s, (q - s) * 0.01 / norm, rtol=1e-4, atol=1e-12)
    own = [snapshot(n, opt)["opt"]["multi_objective"] for n, opt in zip((net, control), opts, strict=True)]
    assert same(*own)  # the averages know nothing of it


@pytest.mark.parametrize("estimator, size", [("full", 1e18), (None, 1e25)])
def test_a_norm_that_overflows_is_clipped_all_the_same(estimator, size):
    p = torch.nn.Parameter(torch.ones(1000))
    opt = wrap(torch.nn.ParameterList([p]), "uw", estimator, max_norm=1.0)
    opt.backward([size * p.sum(), size * (2 * p).sum()])
    assert opt.skipped == 0 and bool((p.grad > 1e-3).all())


@pytest.mark.parametrize("clip", [False, True])
def test_a_direction_of_zero_is_a_step(clip):
    """At a Pareto point d is zero; clipping it touches the gradients, which is not to clear them."""
    p = torch.nn.Parameter(torch.tensor([0.0, 3.0]))
    opt = MAdam([p], solver=solvers.MGDA(), metric=metric("full"))
    for _ in range(4):
        opt.zero_grad()
        opt.backward([(p[0] - 1) ** 2, (p[0] + 1) ** 2])
        assert not p.grad.any()
        if clip:
            torch.nn.utils.clip_grad_norm_([p], 1.0)
        opt.step()
    assert opt.metric.steps == 4 and [block.n for block in opt.metric.averages] == [[4, 4, 4]]
