"""Heads are handled together, whatever their objectives, and train as if each were handled by itself."""

import copy
from functools import partial
from itertools import chain

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from helpers import Net, estimators, preference, same
from madamoo import MultiObjective, PreferenceMetric, solvers
from madamoo.gradients import HeadRows
from madamoo.metric import _preference

COUNT = 4
ALL = tuple(range(COUNT))
# Constant weights, weights that move, weights of one on heads, a Gram matrix with heads in it.
CASES = [*(("uw", e) for e in estimators("uw")), ("ls", "collapsed"), ("cagrad", "full"), ("epo", "diagonal")]


class Heads(Net):
    """Heads of several tensors and shapes, and losses of several sizes."""

    def __init__(self, dtype=torch.float64):
        super().__init__(COUNT, dtype)
        with torch.random.fork_rng():
            torch.manual_seed(1)
            self.heads[0] = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 1))
            self.heads[3] = nn.Linear(6, 1, bias=False)
        self.to(dtype)

    def losses(self, t, part=0, parts=1):
        like = self.trunk[0].weight
        x, y = torch.randn(2, 8, 4, generator=torch.Generator().manual_seed(t), dtype=torch.float64).to(like)
        outs = self(x.chunk(parts)[part])
        return [(0.1 + i) * (out - y.chunk(parts)[part][:, i]).square().mean() / parts for i, out in enumerate(outs)]


def build(apart, solver="uw", estimator="full", net=None, **options):
    """Parameters of different groups are never in one block, so a group for each head keeps heads apart."""
    net = Heads() if net is None else net
    heads = [list(head.parameters()) for head in net.heads]
    groups = [list(net.trunk.parameters()), *(heads if apart else [[*chain(*heads)]])]
    metric = None if estimator is None else PreferenceMetric(estimator, **{"rampup": 2, "beta": 0.9, **options})
    inner = torch.optim.AdamW([{"params": group} for group in groups], lr=1e-2)
    return net, MultiObjective(inner, solvers.get(solver), metric)


def train(net, opt, batches, start=0, parts=1):
    """Each batch is the objectives that it has; one of its micro-batches lacks the first of them."""
    for t, present in enumerate(batches, start):
        opt.zero_grad()
        for part in range(parts):
            here = present[1:] if part and len(present) > 1 else present
            losses = [loss if i in here else None for i, loss in enumerate(net.losses(t, part, parts))]
            opt.backward(losses, preference(opt, t, COUNT))
        opt.step()


def blocks(net, opt):
    """How many blocks the heads are in."""
    of = {p: block for block in opt.run.layout.blocks for p in block.params}
    return len({id(of[p]) for p in net.heads.parameters() if p in of})


def averages(net, opt):
    """Of each parameter: what is kept of it, as a checkpoint has it."""
    if opt.metric is None:
        return {}
    saved = opt.metric.state_dict(list(net.parameters()))["averages"]
    return {i: {"params": p, **saved.get(i, {})} for i, p in enumerate(net.parameters())}


def check(a, b, rtol=1e-11):
    """That two runs are in the same state, to rounding."""
    torch.testing.assert_close([*a[0].parameters()], [*b[0].parameters()], rtol=rtol, atol=rtol)
    torch.testing.assert_close(averages(*a), averages(*b), rtol=rtol, atol=rtol**2)


def both(batches, solver="uw", estimator="full", parts=1, make=Heads, **options):
    runs = [build(apart, solver, estimator, make(), **options) for apart in (True, False)]
    for net, opt in runs:
        train(net, opt, batches, parts=parts)
    return runs


@pytest.mark.parametrize(("solver", "estimator"), CASES)
def test_equals_heads_apart(solver, estimator):
    apart, together = both([ALL] * 6, solver, estimator)
    assert blocks(*apart) == COUNT and (blocks(*together) == 1) == (estimator != "pair")
    check(apart, together)


OPTIONS = {
    "normalise": {"normalise": True},
    "every": {"every": 3},
    "every-normalised": {"every": 2, "normalise": True},
    "plain": {"bias_correction": False, "floor": False, "ramp": "paper", "eps": 1e-8},
    "no-ramp": {"rampup": 0},
    "short-ramp": {"rampup": 9},
}


@pytest.mark.parametrize("estimator", ["full", "diagonal", "separable", "marginal", "pair"])
def test_equals_heads_apart_with_options(estimator):
    for options in OPTIONS.values():
        for solver in ("uw", "cagrad"):
            check(*both([ALL] * 7, solver, estimator, **options))


@pytest.mark.parametrize("estimator", [None, "full", "separable", "marginal"])
def test_equals_heads_apart_in_other_precisions(estimator):
    for dtype, rtol in ((torch.float32, 1e-5), (torch.bfloat16, 2e-2)):
        check(*both([ALL] * 5, "uw", estimator, make=partial(Heads, dtype)), rtol=rtol)


@pytest.mark.parametrize("estimator", ["full", "separable"])
def test_in_pieces(estimator, monkeypatch):
    whole = both([ALL] * 3, "uw", estimator, rampup=0)
    monkeypatch.setattr(_preference, "PIECE", 7)
    pieces = both([ALL] * 3, "uw", estimator, rampup=0)
    check(*pieces)
    check(whole[1], pieces[1])


@pytest.mark.parametrize("weight", [1.0, 0.3])
def test_the_direction_of_heads(weight):
    net = Heads()
    heads = sorted(net.heads.parameters(), key=lambda p: p.shape)
    wanted = torch.autograd.grad(sum(net.losses(0)), heads)
    solver = solvers.CAGrad() if weight == 1.0 else solvers.LS([weight] * COUNT)
    opt = MultiObjective(torch.optim.SGD(net.parameters(), lr=0.1), solver, rows="all")
    opt.backward(net.losses(0))
    (rows,) = (r for r in opt.run.pending.rows if isinstance(r, HeadRows))
    assert rows.block.params == tuple(heads) and sorted({*rows.block.owners}) == [*ALL]
    torch.testing.assert_close([p.grad for p in heads], [weight * g for g in wanted])


batches = st.lists(st.lists(st.sampled_from(ALL), min_size=1, unique=True).map(sorted), min_size=2, max_size=6)


@pytest.mark.parametrize("estimator", [None, "full", "diagonal", "separable", "marginal", "pair"])
@settings(max_examples=15, deadline=None, derandomize=True, database=None)
@given(
    solver=st.sampled_from(["uw", "cagrad"]),
    batches=batches,
    parts=st.sampled_from([1, 2]),
    normalise=st.booleans(),
    whole=st.booleans(),
)
def test_heads_of_missing_objectives_rest(estimator, solver, batches, parts, normalise, whole):
    """In whatever order objectives come and go, within a step or from one to the next."""
    given = [ALL, *batches] if whole else batches
    if solver == "uw" and parts > 1 and estimator not in ("full", "diagonal", "separable"):
        parts = 1  # weights that the second micro-batch changes are refused there
    options = {} if estimator is None else {"normalise": normalise}
    check(*both(given, solver, estimator, parts, **options), rtol=1e-9)


@pytest.mark.parametrize(
    ("solver", "estimator"),
    [("cagrad", None), ("cagrad", "full"), ("cagrad", "separable"), ("uw", "full"), ("uw", "separable")],
)
def test_a_head_that_a_second_objective_reaches_alone(solver, estimator):
    """The trunk of a first batch looks like a head; the next objective that reaches it alone makes it shared."""
    runs = []
    for apart in (True, False):
        p, q = (nn.Parameter(torch.linspace(-1, 1, 3, dtype=torch.float64)) for _ in range(2))
        groups = [{"params": [p]}, {"params": [q]}] if apart else [p, q]
        metric = None if estimator is None else PreferenceMetric(estimator, rampup=0)
        opt = MultiObjective(torch.optim.Adam(groups, lr=0.1), solvers.get(solver), metric)
        for present in [(0, 2), (1, 2), (0, 1, 2), (1,), (0, 2)]:
            losses = [(p - 1).square().sum(), (p + 2).exp().sum(), (q - 3).square().sum()]
            opt.zero_grad()
            opt.backward([loss if i in present else None for i, loss in enumerate(losses)])
            opt.step()
        assert opt.run.layout.reach == {p: {0, 1}, q: {2}}
        runs.append((p, q))
    torch.testing.assert_close(*runs, rtol=1e-12, atol=0)


@pytest.mark.parametrize("estimator", ["full", "separable"])
def test_a_head_that_is_frozen_for_a_while(estimator):
    runs = [build(apart, "uw", estimator) for apart in (True, False)]
    for net, opt in runs:
        for t, frozen in enumerate([False, True, True, False, False]):
            net.heads[1].requires_grad_(not frozen)
            train(net, opt, [ALL if not frozen else (0, 2, 3)], t)
    check(*runs)


@pytest.mark.parametrize(("solver", "estimator", "options"), [
    ("graddrop", "full", {}),
    ("uw", "full", {"dtype": "float8_e5m2"}),
    ("uw", "separable", {"dtype": "float8_e5m2"}),
    ("cagrad", "pair", {}),
])  # fmt: skip
def test_what_is_drawn_or_scaled_by_objective_keeps_heads_apart(solver, estimator, options):
    apart, together = both([ALL] * 4, solver, estimator, **options)
    assert blocks(*together) == COUNT
    assert same(averages(*apart), averages(*together))


@pytest.mark.parametrize("estimator", ["full", "separable"])
def test_averages_in_few_bits(estimator):
    """Where the run goes does not depend on them here, so they stay near the exact ones."""
    for normalise in (False, True):
        found = []
        for dtype in ("bfloat16", None):
            net, opt = build(False, "uw", estimator, dtype=dtype, normalise=normalise)
            for group in opt.param_groups:
                group["lr"] = 0.0
            train(net, opt, [ALL] * 8)
            assert blocks(net, opt) == 1
            kept = averages(net, opt)
            heads = [k for k, p in enumerate(net.parameters()) if any(p is q for q in net.heads.parameters())]
            key = "v" if estimator == "separable" else "F"
            found.append([_value(kept[k], key) for k in heads])
        torch.testing.assert_close(*found, rtol=0.05, atol=0)


def _value(saved, key):
    """The average of a head, its scale multiplied in."""
    scale = torch.as_tensor(saved["scale"], dtype=torch.float64).flatten()[0]
    return scale * saved[key].double().flatten()


@pytest.mark.parametrize("estimator", [None, "full", "diagonal", "separable", "marginal", "pair"])
@pytest.mark.parametrize("options", [{}, {"normalise": True, "every": 2}, {"dtype": "bfloat16"}], ids=str)
def test_a_run_resumes_bit_for_bit(estimator, options):
    for before in ([ALL, ALL], [ALL, (0, 2)], [(1, 3), (0, 1)]):
        after = [ALL, (0, 1, 3), ALL, ALL]
        net, opt = build(False, "uw", estimator, **options)
        train(net, opt, before)
        saved = copy.deepcopy((net.state_dict(), opt.state_dict()))
        train(net, opt, after, len(before))
        again, fresh = build(False, "uw", estimator, **options)
        again.load_state_dict(saved[0])
        fresh.load_state_dict(saved[1])
        train(again, fresh, after, len(before))
        states = [opt.state_dict(), fresh.state_dict()]
        for state in states:
            state["multi_objective"]["layout"]["blocks"].sort()  # their order has no meaning
        assert same(*states) and same(net.state_dict(), again.state_dict())


@pytest.mark.parametrize("estimator", [None, "marginal"])
def test_heads_weigh_one_between_looks_at_the_gradients(estimator, monkeypatch):
    """A sum over the objectives would have the solver's weights; without heads, it is enough."""
    passes = []
    grad = torch.autograd.grad
    monkeypatch.setattr(torch.autograd, "grad", lambda *a, **k: passes.append(1) or grad(*a, **k))
    for options, between in (({}, COUNT), ({"head_weights": "lambda"}, 1)):
        net, metric = Heads(), None if estimator is None else PreferenceMetric(estimator)
        solver = solvers.NashMTL(max_norm=None, update_every=3)
        opt = MultiObjective(torch.optim.SGD(net.parameters(), 0.0), solver, metric, **options)
        counts = []
        for _ in range(4):
            passes.clear()
            opt.zero_grad()
            opt.backward(net.losses(0))
            counts.append(len(passes))
            if estimator is None and not options:
                wanted = grad(net.losses(0)[3], [net.heads[3].weight])[0]
                torch.testing.assert_close(net.heads[3].weight.grad, wanted)
            opt.step()
        assert counts == [COUNT, between, between, COUNT]
