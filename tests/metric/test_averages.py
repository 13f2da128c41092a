"""The fast averages equal the reference, which reads like the paper, over any sequence of steps."""

from itertools import combinations_with_replacement

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from madamoo import PreferenceMetric
from madamoo.direction import combine
from madamoo.gradients import REST, Rows
from madamoo.metric import ReferenceMetric

OPTIONS = st.fixed_dictionaries(
    {
        "estimator": st.sampled_from(["full", "pair", "diagonal", "collapsed", "marginal"]),
        "beta": st.sampled_from([0.0, 0.5, 0.9, 0.999]),
        "rampup": st.sampled_from([0, 1, 4]),
        "ramp": st.sampled_from(["largest", "matched", "paper"]),
        "bias_correction": st.booleans(),
        "floor": st.booleans(),
        "normalise": st.booleans(),
        "seed": st.integers(0, 99),
    }
)
# One step: which of the (up to four) objectives are present, and whether the solver wants all their rows anyway.
STEP = st.tuples(st.sets(st.integers(0, 3), min_size=1), st.booleans())


def measured(estimator, pair, present):
    """The entries that a step updates, in the paper's words."""
    if estimator == "full":
        return list(combinations_with_replacement(present, 2))
    if estimator == "diagonal":
        return [(i, i) for i in present]
    return sorted({(pair[0], pair[0]), (pair[1], pair[1]), pair})


def run(options, steps, shape=(3, 2), every=1, dtype=torch.float64, rows_seed=0, clip=False):
    """Both metrics over the same steps; yields what they make of the direction, and at last compares what they keep."""
    estimator, beta = options["estimator"], options["beta"]
    # Without the floor nothing but eps keeps rounding from being divided by: take one above it.
    eps = 1e-16 if options["floor"] else 1e-6
    metric = PreferenceMetric(**{**options, "beta": None}, eps=eps, every=every)
    names = ("rampup", "ramp", "bias_correction", "floor", "normalise")
    reference = ReferenceMetric(beta**every, eps, **{name: options[name] for name in names})
    generator = torch.Generator().manual_seed(rows_seed)
    param = torch.zeros(shape, dtype=dtype)
    constant = torch.rand(4, generator=generator).tolist()
    for t, (present, all_rows) in enumerate(steps):
        present = sorted(present if t or estimator != "collapsed" else range(4))
        g = torch.randn(4, *shape, generator=generator, dtype=torch.float64).to(dtype)
        drawn = torch.randn(4, generator=generator).tolist()
        weights = [w if i in present else 0.0 for i, w in enumerate(constant if estimator == "collapsed" else drawn)]
        scale = 0.25 + 0.5 * (t % 2) if clip else 1.0
        d = scale * sum(weights[i] * g[i] for i in present)

        measurement = metric.measure(estimator, present)
        active = t % every == 0
        needed = present if all_rows else measurement.needed(present)
        rows = {i: g[i] for i in needed}
        if len(needed) < len(present):
            rows[REST] = sum(weights[i] * g[i] for i in present if i not in needed)
        stack = torch.stack(list(rows.values())).reshape(len(rows), param.numel())
        x = combine(Rows((param,), tuple(rows), stack), weights, dtype).scaled(scale)
        measurement = metric.settle(measurement, weights, present, [x])
        found = metric.precondition(x, beta, measurement).view(shape)
        metric.begin_update(measurement)
        metric.update(x, beta, measurement)
        metric.end_update(measurement, weights, present)

        if estimator in ("collapsed", "marginal"):
            wanted = reference.step({0: d}, [(0, 0)] if active else [], [1.0], d)
        else:
            pairs = measured(estimator, measurement.pair, present) if active else []
            wanted = reference.step({i: scale * g[i] for i in needed}, pairs, weights, d)
        yield found, wanted

    (kept,) = metric.averages
    assert dict(zip(kept.pairs, kept.n, strict=True)) == reference.n
    for pair, scale, F in zip(kept.pairs, kept.scale, kept.F, strict=True):
        torch.testing.assert_close(scale * F.view(shape), reference.F[pair])


@settings(max_examples=150, deadline=None, derandomize=True)
@given(options=OPTIONS, steps=st.lists(STEP, min_size=1, max_size=8), clip=st.booleans(), rows=st.integers(0, 2**32))
def test_equals_the_reference(options, steps, clip, rows):
    for found, wanted in run(options, steps, clip=clip, rows_seed=rows):
        torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-9)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(options=OPTIONS, steps=st.lists(STEP, min_size=1, max_size=8), every=st.integers(2, 4))
def test_equals_the_reference_when_measured_now_and_then(options, steps, every):
    options = {**options, "floor": False}  # the floor's own beta is the step's, not the measurement's
    for found, wanted in run(options, steps, every=every):
        torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-9)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(options=OPTIONS, steps=st.lists(STEP, min_size=1, max_size=8))
def test_equals_the_reference_in_float32(options, steps):
    for found, wanted in run({**options, "floor": True}, steps, dtype=torch.float32):
        torch.testing.assert_close(found, wanted, rtol=2e-2, atol=1e-3)


@pytest.mark.parametrize("shape", [(), (1,), (0,), (2, 1, 3)], ids=str)
@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("estimator", ["full", "pair", "diagonal", "collapsed", "marginal"])
def test_parameters_of_any_shape(estimator, normalise, shape):
    names = {"beta": 0.9, "rampup": 2, "ramp": "matched", "bias_correction": True, "floor": True, "seed": 0}
    steps = [({0, 1, 3}, False), ({0, 1, 3}, True), ({2}, True), ({0, 1, 2, 3}, False)]
    for found, wanted in run({"estimator": estimator, "normalise": normalise, **names}, steps, shape=shape):
        torch.testing.assert_close(found, wanted)


def test_precondition_leaves_no_trace():
    metric = PreferenceMetric("full", rampup=0)
    param, g = torch.zeros(3), torch.tensor([[1.0, 2.0, 3.0], [0.5, 0.0, -1.0]])
    x = combine(Rows((param,), (0, 1), g), (1.0, 1.0), torch.float32)
    for _ in range(3):
        measurement = metric.measure("full", (0, 1))
        before = x.d.clone(), g.clone(), [(a, a.F.clone(), list(a.n)) for a in metric.averages]
        outs = [metric.precondition(x, 0.9, measurement) for _ in range(2)]
        assert torch.equal(*outs)
        assert torch.equal(x.d, before[0]) and torch.equal(g, before[1])
        for averages, F, n in before[2]:
            assert torch.equal(averages.F, F) and averages.n == n
        metric.update(x, 0.9, measurement)
        metric.end_update(measurement, (1.0, 1.0), (0, 1))
