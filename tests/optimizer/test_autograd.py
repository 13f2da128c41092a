"""What the optimizer asks of autograd: how many passes and buffers, and graphs that are compiled or checkpointed."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.checkpoint import checkpoint

from helpers import Net, close_params, metric, same, same_params, snapshot, train, wrap
from madamoo import MAdam, MultiObjective, PreferenceMetric, solvers
from optimizer.cover import KINDS, sgd


def _per_step(passes, opt, net, steps=20):
    passes()
    counts = []
    for t in range(steps):
        train(net, opt, 1, start=t)
        counts.append(passes())
    return counts


@pytest.mark.parametrize(
    "solver, estimator, count, expected",
    [
        (solvers.LS, "auto", 7, {1}),
        (solvers.LS, None, 7, {1}),
        (solvers.UW, None, 7, {1}),
        (solvers.RLW, "marginal", 7, {1}),
        (solvers.MGDA, None, 4, {4}),
        (solvers.CAGrad, "auto", 4, {4}),
        (solvers.CAGrad, "marginal", 4, {4}),
        (solvers.UW, "auto", 2, {1}),  # its weights drift
        (solvers.RLW, "auto", 2, {1, 2}),  # measured to jump
        (solvers.UW, "full", 2, {2}),
        (solvers.UW, "pair", 7, {2, 3}),  # one or two objectives of a pair, and the rest
        (solvers.RLW, "pair", 2, {2}),
        (solvers.RLW, "full", 5, {5}),
    ],
)
def test_number_of_backward_passes(passes, solver, estimator, count, expected):
    net = Net(count)
    opt = MultiObjective(torch.optim.SGD(net.parameters(), lr=1e-3), solver(), metric(estimator))
    assert set(_per_step(passes, opt, net)) == expected


@pytest.mark.parametrize("estimator, active", [("pair", {2, 3}), ("full", {7})])
def test_steps_that_measure_nothing_take_one_pass(passes, estimator, active):
    net = Net(7)
    opt = MAdam(net.parameters(), solver=solvers.UW(), metric=PreferenceMetric(estimator, every=10))
    counts = _per_step(passes, opt, net, 30)
    assert {c for t, c in enumerate(counts) if t % 10} == {1}
    assert set(counts[::10]) <= active


def test_a_static_preference_costs_one_buffer_a_parameter():
    net = Net(7)
    opt = MAdam(net.parameters())
    train(net, opt, 3)
    assert all(len(a.F) == 1 for a in opt.metric.averages)
    assert sum(a.F.numel() for a in opt.metric.averages) == sum(p.numel() for p in net.parameters())
    assert opt.run.pending is None  # nothing of the step is left


class Checkpointed(Net):
    def __init__(self, part="trunk", use_reentrant=False):
        super().__init__()
        self.part, self.use_reentrant = part, use_reentrant

    def forward(self, x):
        if self.part == "trunk":
            h = checkpoint(self.trunk, x.requires_grad_(), use_reentrant=self.use_reentrant)
            return [head(h)[:, 0] for head in self.heads]
        h = self.trunk(x)
        return [checkpoint(head, h, use_reentrant=self.use_reentrant)[:, 0] for head in self.heads]


@pytest.mark.parametrize("part", ["trunk", "heads"])
@pytest.mark.parametrize("solver, estimator", [("cagrad", "full"), ("uw", "pair"), ("ls", "collapsed")])
def test_checkpointed_activations_change_nothing(solver, estimator, part):
    nets = [Net(), Checkpointed(part)]
    for net in nets:
        train(net, wrap(net, solver, estimator), 3)
    assert same_params(*nets)


@pytest.mark.parametrize("later", [0, 2])
@pytest.mark.parametrize("part", ["trunk", "heads"])
def test_reentrant_checkpoints_give_the_advice(part, later):
    """Never a silent None, in the first step or later: autograd does not look for parameters inside."""
    for solver, estimator in KINDS[:6]:
        net = Checkpointed(part)
        opt = wrap(net, solver, estimator)
        train(net, opt, later)
        net.use_reentrant = True
        before = snapshot(net, opt)
        opt.zero_grad()
        with pytest.raises(RuntimeError, match="use_reentrant=False"):
            opt.backward(net.losses(2))
        assert same(before, snapshot(net, opt))
        net.use_reentrant = False
        penalty = checkpoint(net.trunk, torch.ones(2, 4, dtype=torch.float64).requires_grad_(), use_reentrant=True)
        with pytest.raises(RuntimeError, match="use_reentrant=False"):
            opt.backward(net.losses(2), extra=penalty.sum())


def test_the_graph_is_kept_on_request():
    net, control = Net(), Net()
    opt, reference = wrap(net, "cagrad"), wrap(control, "cagrad")
    losses = net.losses(0)
    opt.backward(losses, retain_graph=True)
    opt.backward(losses)
    with pytest.raises(RuntimeError, match="second time"):
        opt.backward(losses)
    opt.step()
    reference.backward([2 * loss for loss in control.losses(0)])
    reference.step()
    close_params(net, control, rtol=1e-12)


@pytest.fixture
def donated_buffers():
    """torch's default, whatever earlier optimizers in this process have set."""
    import torch._functorch.config as config

    before = config.donated_buffer
    config.donated_buffer = True
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
    config.donated_buffer = before


@pytest.mark.usefixtures("donated_buffers")
@pytest.mark.parametrize(
    "backend, solver, estimator",
    [("inductor", "cagrad", "full"), ("aot_eager", "uw", "pair"), ("aot_eager", "ls", "full")],
)
def test_a_compiled_model_trains_as_it_is(backend, solver, estimator):
    """The first batch takes one backward pass, for which torch compiles; the others take more."""
    runs = []
    for compiled in (True, False):
        net = Net(dtype=torch.float32)
        opt = wrap(net, solver, estimator, inner=sgd)
        if compiled:
            net.compile(backend=backend)
        opt.backward([net.losses(0)[0], None, None])
        opt.step()
        train(net, opt, 4, start=1)
        runs.append((net, [opt.run.layout.reach[p] for p in net.parameters()]))
    close_params(runs[0][0], runs[1][0], rtol=1e-4, atol=1e-5)
    assert runs[0][1] == runs[1][1]  # heads are told apart


@pytest.mark.filterwarnings("ignore:a batch lacks objectives")
@pytest.mark.parametrize("solver, estimator", [("cagrad", "full"), ("uw", "pair"), ("ls", "collapsed"), ("ls", None)])
def test_the_head_of_a_missing_objective_rests_in_a_compiled_model_too(solver, estimator):
    """Behind a compiled graph its gradient is zero, not None: momentum and weight decay must not act on it."""
    net = Net()
    opt = wrap(net, solver, estimator)
    net.compile(backend="aot_eager")
    train(net, opt, 2)
    before = [p.clone() for p in net.heads[1].parameters()]
    a, _, c = net.losses(2)
    opt.zero_grad()
    opt.backward([a, None, c])
    opt.step()
    assert same(before, list(net.heads[1].parameters()))


class Switched(nn.Module):
    """Two losses in one vector, on a trunk and heads; a switch turns all gradients of the first layer to zero."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.trunk = nn.Linear(4, 4).double(), nn.Linear(4, 3).double()
        self.heads = nn.ModuleList(nn.Linear(3, 1) for _ in range(3)).double()

    def losses(self, t, on):
        x = torch.randn(6, 4, generator=torch.Generator().manual_seed(t), dtype=torch.float64)
        h = torch.tanh(self.trunk(x + on * self.first(x)))
        return (torch.cat([head(h) for head in self.heads], 1) - 1).square().mean(0)


@given(
    present=st.lists(st.sampled_from([(0,), (1,), (0, 2), (0, 1), (1, 2), (0, 1, 2)]), min_size=1, max_size=4),
    case=st.sampled_from([("cagrad", "full"), ("uw", "diagonal"), ("rlw", "separable"), ("mgda", None)]),
)
@settings(max_examples=25, deadline=None, derandomize=True, database=None)
def test_a_zero_gradient_stays_zero_where_a_present_objective_is_known_to_reach(present, case):
    """None would stop momentum and weight decay; what only the missing objectives reach rests."""
    net = Switched()
    opt = wrap(net, *case)
    for on in (1.0, 1.0):
        opt.zero_grad()
        opt.backward(list(net.losses(0, on)))  # entries of one vector: the graph does not show what they reach
        opt.step()
    for t, here in enumerate(present, start=1):
        before = [p.clone() for p in net.parameters()]
        opt.zero_grad()
        opt.backward([loss if i in here else None for i, loss in enumerate(net.losses(t, 0.0))])
        for p in net.first.parameters():
            assert p.grad is not None and not p.grad.any()
        opt.step()
        after = list(net.parameters())
        assert not any(torch.equal(a, b) for a, b in zip(before[:2], after[:2], strict=True))  # decay and momentum
        for i, head in enumerate(net.heads):
            rests = [torch.equal(a, b) for a, b in zip(before[4 + 2 * i : 6 + 2 * i], head.parameters(), strict=True)]
            assert rests == [i not in here] * 2
