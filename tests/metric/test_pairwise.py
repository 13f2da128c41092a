"""The fast averages equal the reference, which reads like the paper, over any sequence of steps."""

from itertools import combinations_with_replacement

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from madamoo import PreferenceMetric
from madamoo.direction import combine
from madamoo.gradients import Block, Layout, SharedRows
from madamoo.metric import ReferenceMetric
from madamoo.metric._pairwise import PairAverages

pytestmark = pytest.mark.filterwarnings("ignore:a batch lacks objectives")

COUNT = 4
ESTIMATORS = ["full", "pair", "diagonal", "collapsed", "marginal"]
OPTIONS = st.fixed_dictionaries(
    {
        "estimator": st.sampled_from(ESTIMATORS),
        "beta": st.sampled_from([0.0, 0.5, 0.9, 0.999]),
        "rampup": st.sampled_from([0, 1, 4]),
        "ramp": st.sampled_from(["largest", "paper"]),
        "bias_correction": st.booleans(),
        "floor": st.booleans(),
        "normalise": st.booleans(),
        "seed": st.integers(0, 99),
    }
)
# One step: which of the four objectives are present, and whether the solver wants all their rows anyway.
STEP = st.tuples(st.sets(st.integers(0, COUNT - 1), min_size=1), st.booleans())
STEPS = st.lists(STEP, min_size=1, max_size=8)


def measured(estimator, drawn, present):
    """The entries that a step updates, in the paper's words."""
    if estimator == "diagonal":
        return [(i, i) for i in present]
    chosen = present if estimator == "full" else [i for i in present if i in drawn]
    return list(combinations_with_replacement(chosen, 2))


def shared(shape, dtype):
    """One parameter that every objective reaches, and the layout that says so."""
    block = Block((torch.zeros(shape, dtype=dtype),))
    return block, Layout({block.params[0]: frozenset(range(COUNT))}, [block])


def run(options, steps, shape=(3, 2), every=1, dtype=torch.float64, rows_seed=0, clip=False, large=1.0):
    """Both metrics over the same steps; checks what they make of the direction, and at last what they keep."""
    estimator, beta = options["estimator"], options["beta"]
    # Without the floor nothing but eps keeps rounding from being divided by: take one above it.
    eps = 1e-16 if options["floor"] else 1e-6
    rtol, atol = (1e-6, 1e-9) if dtype == torch.float64 else (2e-2, 1e-3)
    metric = PreferenceMetric(**{**options, "beta": None}, eps=eps, every=every)
    names = ("rampup", "ramp", "bias_correction", "floor", "normalise")
    every = 1 if estimator in ("collapsed", "marginal") else every  # these take in d, which is there in every step
    reference = ReferenceMetric(beta**every, eps, **{name: options[name] for name in names})
    generator = torch.Generator().manual_seed(rows_seed)
    block, layout = shared(shape, dtype)
    constant = torch.rand(COUNT, generator=generator).tolist()
    for t, (present, all_rows) in enumerate(steps):
        present = sorted(present)
        g = torch.randn(COUNT, *shape, generator=generator, dtype=torch.float64).to(dtype)
        free = (large * torch.randn(COUNT, generator=generator)).tolist()
        weights = [w if i in present else 0.0 for i, w in enumerate(constant if estimator == "collapsed" else free)]
        scale = 0.25 + 0.5 * (t % 2) if clip else 1.0
        d = scale * sum(weights[i] * g[i] for i in present)

        measurement = metric.measure(COUNT, static=estimator == "collapsed")
        active = t % every == 0
        needed = present if all_rows else measurement.needed(present)
        rows = [g[i] for i in needed]
        if len(needed) < len(present):
            rows.append(sum(weights[i] * g[i] for i in present if i not in needed))
        stack = torch.stack(rows).reshape(len(rows), block.entries)
        x = combine(SharedRows(block, tuple(needed), stack, len(rows) > len(needed)), weights, dtype).scaled(scale)
        measurement = metric.settle(measurement, weights, present, [x], layout)
        found = metric.precondition(x, beta, measurement).view(shape)
        metric.commit(measurement, [(x, beta)], weights, present)

        if estimator in ("collapsed", "marginal"):
            wanted = reference.step({0: d}, [(0, 0)] if active else [], [1.0], d)
        else:
            pairs = measured(estimator, measurement.drawn, present) if active else []
            wanted = reference.step({i: scale * g[i] for i in needed}, pairs, weights, d)
        torch.testing.assert_close(found, wanted, rtol=rtol, atol=atol)

    (kept,) = metric.averages
    assert dict(zip(kept.pairs, kept.n, strict=True)) == reference.n
    for pair, scale, F in zip(kept.pairs, kept.scale, [] if kept.F is None else kept.F, strict=True):
        torch.testing.assert_close(scale * F.view(shape), reference.F[pair])


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    options=OPTIONS,
    steps=STEPS,
    clip=st.booleans(),
    rows=st.integers(0, 2**32),
    large=st.sampled_from([1.0, 1e6]),
)
def test_equals_the_reference(options, steps, clip, rows, large):
    """Large weights too, which are shrunk on the way."""
    run(options, steps, clip=clip, rows_seed=rows, large=large)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(options=OPTIONS, steps=STEPS, every=st.integers(2, 4))
def test_equals_the_reference_when_measured_now_and_then(options, steps, every):
    run({**options, "floor": False}, steps, every=every)  # the floor's own beta is the step's, not the measurement's


@settings(max_examples=40, deadline=None, derandomize=True)
@given(options=OPTIONS, steps=STEPS)
def test_equals_the_reference_in_float32(options, steps):
    run({**options, "floor": True}, steps, dtype=torch.float32)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_parameters_of_any_shape(estimator):
    names = {"beta": 0.9, "rampup": 2, "ramp": "largest", "bias_correction": True, "floor": True, "seed": 0}
    steps = [({0, 1, 3}, False), ({0, 1, 3}, True), ({2}, True), ({0, 1, 2, 3}, False)]
    for shape in [(), (1,), (0,), (2, 1, 3)]:
        for normalise in (False, True):
            run({"estimator": estimator, "normalise": normalise, **names}, steps, shape=shape)


def test_precondition_leaves_no_trace():
    metric = PreferenceMetric("full", rampup=0)
    block, layout = shared((3,), torch.float32)
    g = torch.tensor([[1.0, 2.0, 3.0], [0.5, 0.0, -1.0]])
    for _ in range(3):
        x = combine(SharedRows(block, (0, 1), g), (1.0, 1.0), torch.float32)
        measurement = metric.measure(2, static=False)
        measurement = metric.settle(measurement, (1.0, 1.0), (0, 1), [x], layout)
        before = x.d.clone(), g.clone(), [(a, a.F.clone(), list(a.n)) for a in metric.averages]
        outs = [metric.precondition(x, 0.9, measurement) for _ in range(2)]
        assert torch.equal(*outs)
        assert torch.equal(x.d, before[0]) and torch.equal(g, before[1])
        for averages, F, n in before[2]:
            assert torch.equal(averages.F, F) and averages.n == n
        metric.commit(measurement, [(x, 0.9)], (1.0, 1.0), (0, 1))


def test_the_state_of_one_parameter():
    block, _ = shared((2, 3), torch.float64)
    F = torch.arange(12.0, dtype=torch.float64).view(2, 6)
    averages = PairAverages(block, (), None, [(0, 0), (0, 2)], [3, 1], [0.5, 1.0], F)
    state = averages.state_dict()
    assert (
        state["F"].shape == (2, 2, 3) and state["pairs"] == [[0, 0], [0, 2]] and state["F"].data_ptr() != F.data_ptr()
    )
    again = PairAverages(block)
    again.check_state_dict(state)
    again.load_state_dict(state, torch.float64)
    assert (again.pairs, again.n, again.scale) == (averages.pairs, averages.n, averages.scale)
    assert torch.equal(again.F, F) and again.F.data_ptr() != state["F"].data_ptr()
    again.n[0] += 1
    assert state["n"] == [3, 1]


DAMAGE = [
    (lambda e: e.pop("scale"), "lack 'scale'"),
    (lambda e: e.update(F=e["F"][:1]), "for 2 pairs"),
    (lambda e: e.update(n=e["n"][:1]), "for 2 pairs"),
    (lambda e: e.update(F=e["F"][..., :2]), r"the parameter has shape \(2, 3\)"),
    (lambda e: e.update(pairs=[[0, 0], [-2, -2]]), r"have the pair \[-2, -2\]"),
    (lambda e: e.update(pairs=[[0, 0], [1, 0]]), r"have the pair \[1, 0\]"),
    (lambda e: e.update(pairs=[[0, 0], [1]]), r"have the pair \[1\]"),
    (lambda e: e.update(F=e["F"].bfloat16()), "in torch.bfloat16"),
]


def test_a_state_that_does_not_fit_is_refused():
    block, _ = shared((2, 3), torch.float64)
    for damage, message in DAMAGE:
        state = PairAverages(block, (), None, [(0, 0), (0, 2)], [3, 1], [0.5, 1.0], torch.zeros(2, 6)).state_dict()
        damage(state)
        with pytest.raises(ValueError, match=message):
            PairAverages(block).check_state_dict(state)
