"""Metrics from outside: a subclass that keeps its averages in another basis, and one that shares no code with ours."""

import copy
from dataclasses import dataclass

import pytest
import torch

from helpers import Net, same, train
from madamoo import MAdam, MultiObjective, PreferenceMetric, solvers
from madamoo.metric import ESTIMATORS, Metric
from madamoo.metric._basis import Bases, Frame, Turn


class Turned(PreferenceMetric):
    """The averages in a basis whose vectors are those of the parameters in another order, some of them reversed."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self._bases = Reordered(None)


class Reordered(Bases):
    def turn(self, x):
        return Signed(x.block, (None,) * len(x.block.params))


class Signed(Turn):
    is_identity = False

    def _turn(self):
        generator = torch.Generator().manual_seed(self.block.entries)
        order, start = [], 0
        for size in self.block.sizes:
            order.append(start + torch.randperm(size, generator=generator))
            start += size
        return torch.cat(order), torch.randint(2, (self.block.entries,), generator=generator) * 2.0 - 1.0

    def _each(self, whole, verb):
        order, signs = self._turn()
        if verb is Frame.rotate:
            return whole[..., order] * signs
        return torch.empty_like(whole).index_copy_(0, order, whole * signs)


@pytest.mark.parametrize("estimator", ["full", "pair", "diagonal", "separable", "collapsed", "marginal"])
def test_a_signed_permutation_of_the_basis_changes_nothing(estimator):
    """The groups of separable averages are whole tensors here."""
    assert estimator in ESTIMATORS
    ends = []
    for kind in (PreferenceMetric, Turned):
        net = Net()
        metric = kind(estimator, rampup=3, normalise=estimator == "full")
        solver = solvers.get("ls" if estimator == "collapsed" else "uw")
        opt = MAdam(net.parameters(), lr=1e-2, solver=solver, metric=metric)
        train(net, opt, 8)
        ends.append(torch.cat([p.detach().flatten() for p in net.parameters()]))
    torch.testing.assert_close(*ends, rtol=1e-9, atol=1e-12)


def test_the_averages_are_kept_in_that_basis():
    net = Net()
    metric = Turned("full", rampup=0, beta=0.0)
    opt = MAdam(net.parameters(), solver=solvers.UW(), metric=metric)
    train(net, opt, 1)
    (g,) = torch.autograd.grad(Net().losses(0)[0], Net().trunk[0].weight, allow_unused=True)
    fresh = Net()
    (g,) = torch.autograd.grad(fresh.losses(0)[0], fresh.trunk[0].weight)
    kept = opt.metric.averages[net.trunk[0].weight]
    F = kept.scale[0] * kept.F[0]
    torch.testing.assert_close(F.sort().values, g.flatten().square().sort().values)
    assert not torch.allclose(F, g.flatten().square())


@dataclass(frozen=True)
class Plan:
    count: int
    every_row: bool = True
    heads_together: bool = False

    def needed(self, present):
        return tuple(present)


class LargestSeen:
    """Divides by the largest |g| that any objective has ever had in a parameter: no averages, no options."""

    beta = None

    def __init__(self):
        self.largest = {}
        self.steps = 0
        self.calls = []

    def needs_rows(self, *, static):
        return True

    def largest_gradient(self, param):
        return 1e15

    def compute_dtype(self, param):
        return param.dtype

    def measure(self, count, *, static, rows):
        self.calls.append("measure")
        return Plan(count)

    def settle(self, measurement, weights, present, directions, layout):
        self.calls.append("settle")
        assert len(weights) == measurement.count and {*present} <= {*range(measurement.count)}
        assert {x.block for x in directions} <= {*layout.blocks}
        return measurement

    def _now(self, x):
        rows = x.rows.abs().amax(0) if len(x.rows) else torch.zeros_like(x.d)
        sizes = [part.amax() for part in rows.split(x.block.sizes)]
        return [torch.maximum(s, self.largest.get(p, s)) for p, s in zip(x.block.params, sizes, strict=True)]

    def precondition(self, x, beta, measurement):
        assert beta == 0.99  # that of the group
        parts = zip(x.d.split(x.block.sizes), self._now(x), strict=True)
        return torch.cat([d / largest for d, largest in parts])

    def commit(self, measurement, directions, weights, present):
        self.calls.append("commit")
        self.steps += 1
        for x, _ in directions:
            self.largest.update(zip(x.block.params, self._now(x), strict=True))

    def options(self):
        return {}

    def state_dict(self, params):
        return {"steps": self.steps, "largest": [self.largest.get(p) for p in params]}

    def check_state_dict(self, state, params, count, *, static):
        if len(state["largest"]) != len(params):
            raise ValueError("the checkpoint has another number of parameters")

    def load_state_dict(self, state, params, layout, count, *, static):
        self.steps = state["steps"]
        self.largest = {p: s for p, s in zip(params, state["largest"], strict=True) if s is not None}


def wrapped(net, metric, solver="uw"):
    inner = torch.optim.AdamW(net.parameters(), lr=1e-2, betas=(0.9, 0.99))
    return MultiObjective(inner, solvers.get(solver), metric)


def test_a_metric_of_your_own():
    """Against a loop by hand; and through a checkpoint, bit for bit."""
    assert isinstance(LargestSeen(), Metric)
    net, largest = Net(), {}
    opt = wrapped(net, LargestSeen())
    for t in range(6):
        losses = net.losses(t)
        rows = [
            torch.autograd.grad(loss, list(net.parameters()), retain_graph=True, allow_unused=True) for loss in losses
        ]
        opt.zero_grad()
        opt.backward(losses)
        for k, p in enumerate(net.parameters()):
            g = {i: row[k] for i, row in enumerate(rows) if row[k] is not None}
            largest[k] = max(largest.get(k, 0.0), *(float(row.abs().max()) for row in g.values()))
            d = sum(float(opt.weights[i]) * row for i, row in g.items())
            torch.testing.assert_close(p.grad, d / largest[k])
        opt.step()
    other = copy.deepcopy(net)
    again = wrapped(other, LargestSeen())
    again.load_state_dict(copy.deepcopy(opt.state_dict()))
    assert again.metric.steps == 6
    train(net, opt, 3, start=6)
    train(other, again, 3, start=6)
    assert same(net.state_dict(), other.state_dict()) and same(opt.state_dict(), again.state_dict())


def test_a_step_that_is_not_taken_is_not_committed():
    net = Net()
    opt = wrapped(net, LargestSeen(), "mgda")
    opt.backward(net.losses(0))
    opt.zero_grad()
    assert opt.metric.calls == ["measure", "settle"] and opt.metric.steps == 0
    opt.backward(net.losses(0))
    opt.backward(net.losses(1))
    opt.step()
    assert opt.metric.calls == ["measure", "settle", "measure", "settle", "settle", "commit"]


def test_what_is_no_metric_is_refused():
    class Half:
        beta = None

        def precondition(self, x, beta, measurement):
            return x.d

    with pytest.raises(TypeError, match="metric must be"):
        wrapped(Net(), Half())
