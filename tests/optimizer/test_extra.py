"""A term that is no objective: its gradient joins the direction, with weight 1, before the metric."""

import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import Net, adam, close_params, metric, preference, same, snapshot, train, wrap
from madamoo import MultiObjective, solvers
from madamoo.metric import ReferenceMetric
from optimizer.cover import COVER, KINDS, sgd


class Penalised(Net):
    """With two penalties: one on all parameters, also one that no loss reaches, the other on what a head puts out."""

    def __init__(self, dtype=torch.float64):
        super().__init__(dtype=dtype)
        self.unreached = torch.nn.Parameter(torch.linspace(-1, 1, 5, dtype=dtype))

    def penalty(self, t=0, head=1):
        x = torch.linspace(-1, 1, 8, dtype=self.unreached.dtype).view(2, 4) + 0.1 * t
        return 0.3 * sum(p.square().sum() for p in self.parameters()) + self(x)[head].pow(4).sum()


def _penalised(net, opt, t, part=0, parts=1, size=1.0, **options):
    losses, extra = net.losses(t, part, parts), size * net.penalty(t) / parts
    opt.backward(losses, preference(opt, t, 3), extra=extra, **options)


def test_its_gradient_is_added_to_the_direction():
    """On shared parameters and heads, with every solver and every estimator: autograd says what is added."""
    for solver, estimator in COVER:
        net = Penalised()
        opt = wrap(net, solver, estimator)
        opt.backward(net.losses(0), preference(opt, 0, 3))
        weights, plain = opt.weights, {name: d.clone() for name, d in _directions(net, opt).items()}
        opt.zero_grad()
        _penalised(net, opt, 0)
        found = _directions(net, opt)
        assert same(weights, opt.weights), solver  # it has no part in them
        assert all(p.grad is not None for p in net.parameters())
        if opt.solver.per_coordinate:
            continue  # its mask is drawn block by block, and the blocks are others
        added = torch.autograd.grad(net.penalty(0), list(net.parameters()))
        for (name, d), g in zip(plain.items(), added, strict=True):
            torch.testing.assert_close(found[name], d + g, rtol=1e-11, atol=1e-12)


def _directions(net, opt):
    """d by parameter, as it goes to the metric; where there is none, what is in .grad."""
    if opt.metric is None:
        return {n: torch.zeros_like(p) if p.grad is None else p.grad for n, p in net.named_parameters()}
    found = {n: torch.zeros_like(p) for n, p in net.named_parameters()}
    names = {p: n for n, p in net.named_parameters()}
    for x, _ in opt.run.pending.directions:
        for p, part in x.block.parts():
            found[names[p]] = x.d[part].view(p.shape)
    return found


@pytest.mark.parametrize("estimator", ["collapsed", "marginal", "full", "diagonal", "pair"])
def test_the_metric_divides_the_sum(estimator):
    """Against the metric as the paper writes it: rows of the objectives, and d with the extra term in it."""
    weights = [0.2, 0.3, 0.5]
    net, control = Penalised(), Penalised()
    opt = MultiObjective(adam(net), solvers.LS(weights), metric(estimator))
    reference, params = adam(control), list(control.parameters())
    metrics = [ReferenceMetric(rampup=3) for _ in params]
    generator = torch.Generator().manual_seed(0)
    for t in range(6):
        opt.zero_grad()
        _penalised(net, opt, t)
        opt.step()
        rows = [torch.autograd.grad(loss, params, allow_unused=True) for loss in _apart(control, t)]
        extra = torch.autograd.grad(control.penalty(t), params)
        i, j = torch.randint(3, (2,), generator=generator).tolist() if estimator == "pair" else (0, 0)
        for k, (p, m) in enumerate(zip(params, metrics, strict=True)):
            g = {i: row[k] for i, row in enumerate(rows) if row[k] is not None}
            d = extra[k] + sum(weights[i] * g[i] for i in g)
            pairs = {
                "full": [(i, j) for i in g for j in g if i <= j],
                "diagonal": [(i, i) for i in g],
                "pair": sorted({(a, b) for a in (i, j) for b in (i, j) if a <= b and {a, b} <= {*g}}),
            }.get(estimator)
            p.grad = m.step({0: d}, [(0, 0)], [1.0], d) if pairs is None else m.step(g, pairs, weights, d)
        reference.step()
    close_params(net, control, rtol=1e-7, atol=1e-9)


def _apart(net, t):
    """Each loss with a graph of its own."""
    return [net.losses(t)[i] for i in range(3)]


def test_without_a_metric_it_is_one_more_constant_term_of_the_loss():
    for inner in (adam, sgd):
        net, control = Penalised(), Penalised()
        opt, reference = MultiObjective(inner(net), solvers.LS([0.2, 0.3, 0.5])), inner(control)
        for t in range(5):
            opt.zero_grad()
            _penalised(net, opt, t)
            opt.step()
            reference.zero_grad()
            total = sum(w * loss for w, loss in zip((0.2, 0.3, 0.5), control.losses(t), strict=True))
            (total + control.penalty(t)).backward()
            reference.step()
        close_params(net, control, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("estimator", [None, "marginal"])
def test_with_the_gram_matrix_of_the_features(estimator):
    """Heads and trunk get it both, though it leads through the graph of the losses."""

    def run(term):
        net = Penalised()
        opt = wrap(net, "mgda", estimator, gram="features")
        z = net.trunk(torch.linspace(-1, 1, 32, dtype=torch.float64).view(8, 4))
        outs = [head(z)[:, 0] for head in net.heads]
        extra = None if term is None else term(net, z, outs)
        added = None if extra is None else torch.autograd.grad(extra, list(net.parameters()), retain_graph=True)
        opt.backward([(out - i).square().mean() for i, out in enumerate(outs)], features=z, extra=extra)
        found = {name: d.clone() for name, d in _directions(net, opt).items()}
        opt.step()
        return found, added

    plain, _ = run(None)
    for term in (
        lambda net, z, outs: net.penalty(),
        lambda net, z, outs: net.penalty() + z.square().sum(),
        lambda net, z, outs: net.penalty() + sum(out.exp().sum() for out in outs),
    ):
        found, added = run(term)
        for (name, d), g in zip(plain.items(), added, strict=True):
            torch.testing.assert_close(found[name], d + g, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("solver, estimator", KINDS)
def test_micro_batches_add_up(solver, estimator):
    whole, split = Penalised(), Penalised()
    for net, parts in ((whole, 1), (split, 2)):
        opt = wrap(net, solver, estimator)
        for t in range(4):
            opt.zero_grad()
            for part in range(parts):
                _penalised(net, opt, t, part, parts)
            opt.step()
    close_params(whole, split, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("solver, estimator", KINDS)
def test_one_that_is_not_finite_skips_the_step_without_a_trace(solver, estimator):
    net, control = Penalised(), Penalised()
    opt, reference = wrap(net, solver, estimator), wrap(control, solver, estimator)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for t in range(3):
            for bad in (torch.nan, torch.inf, 1e200):
                opt.zero_grad()
                _penalised(net, opt, t, size=bad if estimator or bad != 1e200 else torch.inf)
                opt.step()
            train(net, opt, 1, start=t)
            train(control, reference, 1, start=t)
    assert opt.skipped == 9
    assert same(snapshot(net, opt), snapshot(control, reference))


@settings(max_examples=25, deadline=None, derandomize=True, database=None)
@given(
    case=st.sampled_from([case for case in KINDS if case[0] != "graddrop"]),
    sizes=st.lists(st.sampled_from([0.0, 1e-6, 1.0, 1e6]), min_size=1, max_size=4),
    scaled=st.booleans(),
)
def test_a_scaler_changes_nothing(case, sizes, scaled):
    """Whatever the sizes of the term from step to step."""
    runs = []
    for scaler in (None, torch.amp.GradScaler("cpu", init_scale=2.0**10, enabled=scaled)):
        net = Penalised()
        opt = wrap(net, *case, inner=sgd)
        for t, size in enumerate(sizes):
            opt.zero_grad()
            _penalised(net, opt, t, size=size, scaler=scaler)
            opt.step() if scaler is None else scaler.step(opt)
            if scaler is not None:
                scaler.update()
        assert opt.skipped == 0
        runs.append(list(net.parameters()))
    torch.testing.assert_close(*runs, rtol=1e-12, atol=1e-14)
