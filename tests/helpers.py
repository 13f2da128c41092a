"""A small problem, a way to run it, and a way to compare runs: what several rooms' tests share."""

import copy

import pytest
import torch
from torch import nn

from madamoo import MultiObjective, PreferenceMetric, solvers
from madamoo.metric import ESTIMATORS


class Net(nn.Module):
    """A trunk that all objectives share and a head for each; ``losses(t)`` are those of batch ``t``."""

    def __init__(self, count=3, dtype=torch.float64):
        super().__init__()
        with torch.random.fork_rng(devices=[]), torch.device("cpu"):  # the same start on every device
            torch.manual_seed(0)
            self.trunk = nn.Sequential(nn.Linear(4, 6), nn.Tanh())
            self.heads = nn.ModuleList(nn.Linear(6, 1) for _ in range(count))
        self.to(torch.get_default_device(), dtype)

    def forward(self, x):
        h = self.trunk(x)
        return [head(h)[:, 0] for head in self.heads]

    def losses(self, t, part=0, parts=1):
        """With ``parts``, those of one micro-batch, divided by their number."""
        generator = torch.Generator().manual_seed(t)
        like = self.heads[0].weight
        x = torch.randn(8, 4, generator=generator, dtype=torch.float64).to(like).chunk(parts)[part]
        y = torch.randn(8, len(self.heads), generator=generator, dtype=torch.float64).to(like).chunk(parts)[part]
        return [(out - y[:, i]).square().mean() / parts for i, out in enumerate(self(x))]


def adam(net, lr=1e-2):
    return torch.optim.AdamW(net.parameters(), lr=lr)


def metric(estimator, **options):
    """The metric in the middle of its ramp-up from the second step on; None for no metric."""
    return None if estimator is None else PreferenceMetric(estimator, **{"rampup": 3, **options})


def wrap(net, solver="ls", estimator=None, inner=adam, **options):
    return MultiObjective(inner(net), solvers.get(solver), metric(estimator), **options)


def estimators(solver):
    """No metric, and every estimator that the solver of this name allows."""
    static = solvers.get(solver).static
    return [None, *(e for e in ESTIMATORS if static or e != "collapsed")]


CASES = [(solver, estimator) for solver in solvers.available() for estimator in estimators(solver)]
"""Every solver with every estimator."""
COVER = [(s, e) for s, e in CASES if e == "full" or (s, e) in [("ls", "collapsed"), ("uw", None)] or s == "rlw"]
"""Every solver and every estimator."""


def preference(opt, t, count):
    """Another one each step, for solvers that take one."""
    if not opt.solver.uses_preference:
        return None
    return torch.rand(count, generator=torch.Generator().manual_seed(t), dtype=torch.float64) + 0.1


def backward(net, opt, t, parts=1):
    for part in range(parts):
        opt.backward(net.losses(t, part, parts), preference(opt, t, len(net.heads)))


def train(net, opt, steps, start=0, parts=1):
    for t in range(start, start + steps):
        opt.zero_grad()
        backward(net, opt, t, parts)
        opt.step()


def inf_loss(losses):
    return [losses[0], losses[1] * torch.inf, *losses[2:]]


def nan_gradient(losses):
    """Finite as a loss, not once it is differentiated: the root of zero."""
    return [losses[0], losses[1] + (losses[1] - losses[1]).sqrt(), *losses[2:]]


def snapshot(net, opt):
    """All that a step changes, but for the count of skipped ones."""
    state = copy.deepcopy({"params": list(net.parameters()), "opt": opt.state_dict()})
    del state["opt"]["multi_objective"]["skipped"]
    return state


def same(a, b):
    """Whether two nests of containers, numbers and tensors are equal, the tensors bit for bit and in dtype."""
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(_bits(a), _bits(b))
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return isinstance(b, list | tuple) and len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


def same_params(a, b):
    return same(list(a.parameters()), list(b.parameters()))


def _bits(x):
    """NaN counts as equal to NaN."""
    x = x.detach().contiguous()
    return x.view(torch.uint8) if x.dim() else x.reshape(1).view(torch.uint8)


def close_params(a, b, rtol, atol=0.0):
    torch.testing.assert_close(list(a.parameters()), list(b.parameters()), rtol=rtol, atol=atol)


def assert_leaves_no_trace(net, opt):
    """Neither a backward that is discarded nor a step that is skipped changes anything."""
    before = snapshot(net, opt)
    opt.backward(net.losses(99))
    opt.zero_grad()
    with pytest.warns(UserWarning, match="skipped"):
        opt.backward([loss * torch.nan for loss in net.losses(98)])
    opt.step()
    assert same(before, snapshot(net, opt))
