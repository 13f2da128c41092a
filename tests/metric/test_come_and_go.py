"""Objectives come and go, and reach other parameters than before: the averages of each stay those of the reference."""

import copy
from itertools import combinations_with_replacement

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from given_rows import Given
from madamoo import MAdam, MultiObjective, PreferenceMetric, solvers
from madamoo.metric import EigenBasis, ReferenceMetric

SHAPES = [(2, 3), (3,), (), (3,)]
COUNT, BETA = 3, 0.9
# A micro-batch: which parameters each objective reaches, which objectives are present, and whether the losses are
# entries of one tensor, in which the others are hidden.
REACH = st.lists(st.sets(st.integers(0, len(SHAPES) - 1), min_size=1), min_size=COUNT, max_size=COUNT)
BATCH = st.tuples(REACH, st.sets(st.integers(0, COUNT - 1), min_size=1), st.booleans())
BASES = ("identity", EigenBasis(every=2))
STEPS = st.lists(st.lists(BATCH, min_size=1, max_size=2), min_size=1, max_size=7)


def losses_of(params, slopes, reach, present, opaque):
    """Linear losses, so that the gradients are the slopes."""
    each = [sum((params[p] * slopes[i][p]).sum() for p in sorted(reach[i])) for i in range(COUNT)]
    if opaque:
        each = (torch.stack(each) * 1.0).unbind()
    return [loss if i in present else None for i, loss in enumerate(each)]


class Expected:
    """What each objective's row of each parameter is, by the rules: a row that is zero behind an opaque graph counts
    if, and only if, the objective is known to reach the parameter."""

    def __init__(self):
        self.known = [set() for _ in SHAPES]

    def rows(self, batches, needed, weights):
        rows, rest = [{} for _ in SHAPES], [None for _ in SHAPES]
        for slopes, (reach, present, opaque) in batches:
            for p in range(len(SHAPES)):
                for i in sorted(present):
                    if i in needed and p in reach[i]:
                        rows[p][i] = rows[p].get(i, 0.0) + slopes[i][p]
                    elif i in needed and opaque and i in self.known[p] and any(p in r for r in reach):
                        rows[p].setdefault(i, torch.zeros(SHAPES[p], dtype=torch.float64))
                    elif i not in needed and p in reach[i]:
                        rest[p] = (0.0 if rest[p] is None else rest[p]) + weights[i] * slopes[i][p]
            for p, found in enumerate(rows):
                self.known[p] |= {*found}
        return rows, rest


def pairs_of(estimator, objectives, drawn):
    if estimator == "diagonal":
        return [(i, i) for i in objectives]
    chosen = [i for i in objectives if drawn is None or i in drawn]
    return list(combinations_with_replacement(sorted(chosen), 2))


def build(params, estimator, solver, apart=False, **options):
    metric = PreferenceMetric(estimator, beta=BETA, **options)
    groups = [{"params": [p]} for p in params] if apart else params
    return MultiObjective(torch.optim.SGD(groups, lr=0.0), solver(), metric)


def check_labels(opt):
    for averages in opt.metric.averages:
        assert averages.pairs in ([], [None]) if averages.owners else None not in averages.pairs
        assert all(i >= 0 for pair in averages.pairs if pair for i in pair) and all(i >= 0 for i in averages.owners)
    for index, objectives in opt.state_dict()["multi_objective"]["layout"]["reach"].items():
        assert 0 <= index < len(SHAPES) and all(0 <= i < COUNT for i in objectives)


@settings(max_examples=70, deadline=None, derandomize=True)
@given(
    steps=STEPS,
    estimator=st.sampled_from(["full", "pair", "diagonal"]),
    solver=st.sampled_from([solvers.Preference, Given]),
    rampup=st.sampled_from([0, 3]),
    normalise=st.booleans(),
    every=st.sampled_from([1, 1, 2]),
    resume=st.integers(0, 8),
    seed=st.integers(0, 2**32 - 1),
)
def test_averages_are_those_of_the_reference(steps, estimator, solver, rampup, normalise, every, resume, seed):
    generator = torch.Generator().manual_seed(seed)
    params = [nn.Parameter(torch.zeros(shape, dtype=torch.float64)) for shape in SHAPES]
    # The floor's beta is that of the step, not of the measurement; without it, eps keeps roundings apart.
    options = {"rampup": rampup, "normalise": normalise, "every": every, "seed": seed % 100}
    options |= {"floor": every == 1, "eps": 1e-16 if every == 1 else 1e-6}
    opt, expected, norms = build(params, estimator, solver, **options), Expected(), {}
    same = {"eps": options["eps"], "floor": options["floor"], "rampup": rampup}
    references = [ReferenceMetric(BETA**every, **same) for _ in SHAPES]
    draws = torch.Generator().manual_seed(seed % 100)
    for t, batches in enumerate(steps):
        if t == resume:
            state = copy.deepcopy(opt.state_dict())
            opt = build(params, estimator, solver, **options)
            opt.load_state_dict(state)
        weights = (torch.rand(COUNT, generator=generator, dtype=torch.float64) + 0.1).tolist()
        slopes = [
            [[torch.randn(s, generator=generator, dtype=torch.float64) for s in SHAPES] for _ in range(COUNT)]
            for _ in batches
        ]
        opt.zero_grad()
        for g, batch in zip(slopes, batches, strict=True):
            opt.backward(losses_of(params, g, *batch), preference=weights)

        active, drawn = t % every == 0, None
        if estimator == "pair" and active:
            drawn = torch.randint(COUNT, (2,), generator=draws).tolist()
        everything = solver is Given or (active and estimator != "pair")
        needed = range(COUNT) if everything else drawn or ()
        rows, rest = expected.rows(list(zip(slopes, batches, strict=True)), needed, weights)
        present = set().union(*(batch[1] for batch in batches))
        weights = [w if i in present else 0.0 for i, w in enumerate(weights)]
        for i in {i for found in rows for i in found}:
            norms[i] = sum(float(found[i].square().sum()) for found in rows if i in found) ** 0.5
        for p, (param, g, reference) in enumerate(zip(params, rows, references, strict=True)):
            if not g and rest[p] is None:
                assert param.grad is None
                continue
            d = sum(weights[i] * g[i] for i in g) + (0.0 if rest[p] is None else rest[p])
            effective = weights
            if normalise:
                g = {i: row / norms[i] for i, row in g.items()}
                effective = [w * norms.get(i, 0.0) for i, w in enumerate(weights)]
            reference.t = t  # that of the whole, also where a parameter has rested
            measured = pairs_of(estimator, list(g), drawn) if active else []
            wanted = reference.step(g, measured, effective, d)
            torch.testing.assert_close(param.grad, wanted, rtol=1e-6, atol=1e-9)
        opt.step()

        check_labels(opt)
        kept = opt.state_dict()["multi_objective"]["metric"]["averages"]
        assert {*kept} == {p for p, reference in enumerate(references) if reference.F}
        for p, entry in kept.items():
            pairs = [tuple(pair) for pair in entry["pairs"]]
            assert dict(zip(pairs, entry["n"], strict=True)) == references[p].n
            for pair, scale, F in zip(pairs, entry["scale"], entry["F"], strict=True):
                torch.testing.assert_close(scale * F, references[p].F[pair], rtol=1e-9, atol=1e-15)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(
    steps=STEPS,
    estimator=st.sampled_from(["separable", "full", "marginal"]),
    solver=st.sampled_from(["preference", "mgda", "uw"]),
    normalise=st.booleans(),
    resume=st.integers(0, 8),
    seed=st.integers(0, 2**32 - 1),
)
def test_blocks_do_not_matter(steps, estimator, solver, normalise, resume, seed):
    """The same, however the parameters are laid out: in one group, or in a group each; and after a resume."""
    runs = []
    for apart, at in ((False, -1), (True, -1), (False, resume)):
        generator = torch.Generator().manual_seed(seed)
        params = [nn.Parameter(torch.zeros(shape, dtype=torch.float64)) for shape in SHAPES]

        def made(apart=apart, params=params):
            return build(params, estimator, lambda: solvers.get(solver), apart, rampup=2, normalise=normalise)

        opt, seen = made(), []
        for t, batches in enumerate(steps):
            if t == at:
                state = copy.deepcopy(opt.state_dict())
                opt = made()
                opt.load_state_dict(state)
            opt.zero_grad()
            for batch in batches[:1] if solver == "uw" else batches:
                slopes = [
                    [torch.randn(s, generator=generator, dtype=torch.float64) for s in SHAPES] for _ in range(COUNT)
                ]
                opt.backward(losses_of(params, slopes, *batch))
            seen.append([None if p.grad is None else p.grad.clone() for p in params])
            opt.step()
            check_labels(opt)
        runs.append(seen)
    for other in runs[1:]:
        for a, b in zip(runs[0], other, strict=True):
            assert [g is None for g in a] == [g is None for g in b]
            here = [(g, h) for g, h in zip(a, b, strict=True) if g is not None]
            torch.testing.assert_close([g for g, _ in here], [h for _, h in here], rtol=1e-7, atol=1e-10)


def test_former_heads_forget():
    """Two data sets in turn. What heads had before they were shared decays, and weighs as their objective does."""
    x, y = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))
    metric = PreferenceMetric("full", beta=0.9, rampup=0)
    opt = MAdam([x, y], lr=0.0, solver=solvers.RLW(), metric=metric, objectives=["a", "b", "c"])
    generator = torch.Generator().manual_seed(0)
    for k in range(300):
        u, v = torch.randn(2, 3, generator=generator) * (1.0 if k < 2 else 1e-3)
        losses = [{"a": (x * u).sum(), "c": (y * v).sum()}, {"b": (x * u).sum() + (y * v).sum()}][k % 2]
        opt.zero_grad()
        opt.backward(losses)
        opt.step()
    assert [sorted(opt.metric.averages[p].pairs) for p in (x, y)] == [[(0, 0), (1, 1)], [(1, 1), (2, 2)]]
    assert x.grad.abs().max() > 0.05 and y.grad.abs().max() > 0.05


def test_scalars_then_a_vector():
    """And back: what is opaque is seen batch by batch, not remembered."""
    ends = []
    for vectors in ((), range(4, 8), range(2, 5)):
        torch.manual_seed(0)
        trunk, heads = nn.Linear(4, 6), nn.ModuleList(nn.Linear(6, 1) for _ in range(2))
        params = [*trunk.parameters(), *heads.parameters()]
        opt = MAdam(params, lr=1e-2, solver=solvers.MGDA())
        for k in range(8):
            z = torch.tanh(trunk(torch.randn(8, 4)))
            losses = [heads[0](z).square().mean(), 10 * (heads[1](z) - 3).square().mean()]
            opt.zero_grad()
            opt.backward(torch.stack(losses) * 1.0 if k in vectors else losses)
            opt.step()
        ends.append(torch.cat([p.detach().flatten() for p in params]))
    torch.testing.assert_close(ends[1], ends[0])
    torch.testing.assert_close(ends[2], ends[0])


@settings(max_examples=40, deadline=None, derandomize=True, database=None)
@given(steps=STEPS, estimator=st.sampled_from(["full", "pair", "separable", "marginal"]), basis=st.sampled_from(BASES))
def test_momentum_before_the_metric_rests_with_its_parameter(steps, estimator, basis):
    """Each is as old as the number of steps in which its parameter had a gradient."""
    generator = torch.Generator().manual_seed(0)
    params = [nn.Parameter(torch.zeros(shape, dtype=torch.float64)) for shape in SHAPES]
    metric = PreferenceMetric(estimator, beta=BETA, basis=basis, momentum=0.8)
    opt = MultiObjective(torch.optim.SGD(params, lr=0.1), solvers.RLW(), metric, rows="all")
    moved = [0] * len(SHAPES)
    for batches in steps:
        for reach, present, opaque in batches:
            slopes = [[torch.randn(s, dtype=torch.float64, generator=generator) for s in SHAPES] for _ in range(COUNT)]
            opt.backward(losses_of(params, slopes, reach, present, opaque))
        for p, param in enumerate(params):
            moved[p] += param.grad is not None
        opt.step()
        opt.zero_grad()
    assert all(bool(param.isfinite().all()) for param in params)
    state = opt.state_dict()["multi_objective"]["metric"]["momentum"]
    assert {p: entry["n"] for p, entry in state.items()} == {p: n for p, n in enumerate(moved) if n}
