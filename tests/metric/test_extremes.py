"""Gradients and weights of any size: no NaN, no error in ``step()``, and the bound holds."""

import math
import warnings

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import nn

from given_rows import Raw, RawGradient, build, draw, start
from madamoo import MAdam, MultiObjective, PreferenceMetric, solvers
from madamoo.metric import ESTIMATORS, ReferenceMetric, _preference

COUNT = 3
RESTLESS = [e for e in ESTIMATORS if e != "collapsed"]
DTYPES = [torch.float32, torch.float64, torch.bfloat16]
SMALL = [None, "bfloat16", "float8_e5m2", "float64"]


class Problem:
    """Linear losses of a trunk and one head per objective, so that the gradients are what a test chooses."""

    def __init__(self, precision, solver, **options):
        self.trunk = nn.Parameter(torch.zeros(2, 3, dtype=precision))
        self.heads = [nn.Parameter(torch.zeros(size, dtype=precision)) for size in (2, 1, 2)]
        self.params = [self.trunk, *self.heads]
        max_norm = options.pop("max_norm", None)
        metric = PreferenceMetric(**options)
        self.opt = MultiObjective(torch.optim.SGD(self.params, lr=0.0), solver, metric, max_norm=max_norm)

    def backward(self, slopes, weights):
        """``slopes[i]`` are those of trunk and head of objective i, or None where it is missing."""
        self.opt.solver.given = tuple(w for w, g in zip(weights, slopes, strict=True) if g is not None)
        self.opt.zero_grad()
        losses = [
            None if g is None else (self.trunk * g[0].to(self.trunk)).sum() + (head * g[1].to(head)).sum()
            for head, g in zip(self.heads, slopes, strict=True)
        ]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of steps that are skipped
            self.opt.backward(losses)
        found = [p.grad.flatten().double() for p in self.params if p.grad is not None]
        return torch.cat([torch.zeros(1), *found])  # none, if the only objective that is there has weight zero

    def kept(self):
        return [t for block in self.opt.metric.averages for t in block.tensors()]


SIZE = st.tuples(st.floats(-30, 15), st.floats(-12, 12), st.sampled_from([-1.0, 1.0, 1.0, 0.0]), st.integers(0, 5))


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    steps=st.lists(st.lists(SIZE, min_size=COUNT, max_size=COUNT), min_size=1, max_size=6),
    estimator=st.sampled_from(RESTLESS),
    dtype=st.sampled_from(DTYPES),
    kept=st.sampled_from(SMALL),
    solver=st.sampled_from([Raw, RawGradient]),
    beta=st.sampled_from([0.0, 0.5, 0.9, 0.999]),
    rampup=st.sampled_from([0, 3]),
    every=st.sampled_from([1, 1, 3]),
    normalise=st.booleans(),
    bias_correction=st.booleans(),
    max_norm=st.sampled_from([None, None, 1e-3]),
    seed=st.integers(0, 2**32 - 1),
)
def test_no_nan_and_the_bound_holds(steps, dtype, kept, solver, seed, **options):
    """Gradients of 1e-30 to 1e15, weights of 1e-12 to 1e12 of either sign, zeros, objectives that are missing."""
    generator = torch.Generator().manual_seed(seed)
    problem = Problem(dtype, solver(), dtype=kept, seed=seed % 100, **options)
    bound = ReferenceMetric(options["beta"]).bound * (1.01 if dtype == torch.bfloat16 else 1 + 1e-4)
    for sizes in steps:
        slopes, weights, largest = [], [], 0.0
        for i, (power, weight, sign, what) in enumerate(sizes):
            g = [10.0**power * torch.randn(p.shape, generator=generator) for p in (problem.trunk, problem.heads[i])]
            slopes.append(None if what == 0 and i else g if what > 1 else [g[0], torch.zeros_like(g[1])])
            weights.append(sign * 10.0**weight)
            largest = max(largest, 10.0**power * max(1.0, abs(weights[-1])))
        before = problem.opt.skipped
        found = problem.backward(slopes, weights)
        assert found.isfinite().all() and found.abs().max() <= bound
        # What is refused is bounded from above: a sum of several objectives counts with its weights once more.
        wide = dtype == torch.float64 and kept in (None, "float64")
        if largest * max(1.0, *map(abs, weights)) < 1e16 or wide:
            assert problem.opt.skipped == before
        problem.opt.step()
        assert all(t.float().isfinite().all() for t in problem.kept())


POWER = st.sampled_from([-60, -44, -30, -20, -8, -4, 0, 2, 4, 4.5, 8, 17, 18.5, 19.5, 25, 37, 60])


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    steps=st.lists(st.tuples(POWER, POWER, st.sampled_from([1e-9, 1.0, 1.0, 1e9])), min_size=1, max_size=4),
    estimator=st.sampled_from([None, *RESTLESS]),
    dtypes=st.sampled_from([(dtype, kept) for dtype in [*DTYPES, torch.float16] for kept in SMALL]),
    floor=st.booleans(),
    rampup=st.sampled_from([0, 3]),
    normalise=st.booleans(),
    seed=st.integers(0, 99),
)
@example(
    steps=[(25, 25, 1.0)] * 2,
    estimator="full",
    dtypes=(torch.float64, "bfloat16"),
    seed=0,
    floor=True,
    rampup=0,
    normalise=False,
)
@example(
    steps=[(4, 4, 1.0)],
    estimator="pair",
    dtypes=(torch.float16, "float64"),
    seed=0,
    floor=False,
    rampup=0,
    normalise=False,
)
@example(
    steps=[(17, -30, 1.0)] * 2,
    estimator="full",
    dtypes=(torch.float32, "float8_e5m2"),
    seed=0,
    floor=True,
    rampup=0,
    normalise=False,
)
def test_what_no_precision_holds_is_skipped(steps, dtypes, estimator, seed, **options):
    """A square that the averages cannot keep, or a result that half precision cannot: counted, never silent."""
    generator = torch.Generator().manual_seed(seed)
    problem = Problem(dtypes[0], Raw(), estimator=estimator or "full", dtype=dtypes[1], **options)
    if estimator is None:
        problem.opt.metric = None
    for first, second, weight in steps:
        slopes = [
            [(10.0**power * torch.randn(p.shape, generator=generator).double()) for p in (problem.trunk, head)]
            for power, head in zip((first, second, second), problem.heads, strict=True)
        ]
        before = problem.opt.skipped
        found = problem.backward(slopes, [1.0, weight, 0.5])
        assert found.isfinite().all()
        if problem.opt.skipped > before:
            assert not found.any()
        problem.opt.step()
        assert all(p.isfinite().all() for p in problem.params)
        assert estimator is None or all(t.double().isfinite().all() for t in problem.kept())


SIZES = [1e-30, 1e-23, 1e-21, 1e-19, 1e-12, 1.0, 1e12, 1e17, 1e18]


@pytest.mark.parametrize("estimator", ["full", "pair", "diagonal", "separable", "marginal"])
def test_normalised_gradients_of_any_norm(estimator):
    """In shared parameters and heads, in all dtypes, from one size to any other: nothing raises in ``step()``."""
    for dtype, kept in [*((dtype, None) for dtype in DTYPES), (torch.float32, "bfloat16"), (torch.float32, SMALL[2])]:
        generator = torch.Generator().manual_seed(0)
        problem = Problem(dtype, Raw(), estimator=estimator, dtype=kept, rampup=0, normalise=True)
        for t in range(24):
            sizes = [SIZES[int(k)] for k in torch.randint(len(SIZES), (COUNT,), generator=generator)]
            sizes = sizes if t % 3 else sizes[:1] * COUNT
            slopes = [
                [size * torch.randn(p.shape, generator=generator) / 3 for p in (problem.trunk, head)]
                for size, head in zip(sizes, problem.heads, strict=True)
            ]
            weights = [1.0] * COUNT if t % 2 else [min(1 / size, 1e21) for size in sizes]
            found = problem.backward(slopes, weights)
            assert found.isfinite().all() and found.abs().max() <= 1.01 * ReferenceMetric().bound
            problem.opt.step()
            assert all(math.isfinite(norm) for norm in problem.opt.metric.norms.values())
            assert all(t.float().isfinite().all() for t in problem.kept())
        assert problem.opt.skipped < 12


@pytest.mark.parametrize("estimator, tiny", [("full", 1e-20), ("diagonal", 1e-17), ("separable", 1e-20)])
def test_normalised_averages_do_not_depend_on_the_size_of_the_gradients(estimator, tiny):
    """Rows times s and weights divided by s: the same result for norms far from 1 as for 1."""
    found = []
    for size in (1.0, tiny, 1e17):
        generator = torch.Generator().manual_seed(0)
        problem = Problem(torch.float32, Raw(), estimator=estimator, beta=0.9, rampup=0, normalise=True)
        seen = []
        for _ in range(8):
            slopes = [
                [size * torch.rand(p.shape, generator=generator) for p in (problem.trunk, head)]
                for head in problem.heads
            ]
            seen.append(problem.backward(slopes, [w / size for w in (0.5, 1.0, 2.0)]))
            problem.opt.step()
        found.append(torch.stack(seen))
    torch.testing.assert_close(found[1], found[0], rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(found[2], found[0], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("estimator", RESTLESS)
def test_shrinking_large_weights_changes_no_bit(estimator, monkeypatch):
    """By what is needed, by more, and not at all, where nothing overflows."""
    needed = _preference.shrink_for
    ways = {"needed": needed, "more": lambda x, norms: needed(x, norms) / 8, "none": lambda x, norms: 1.0}
    for ramp, normalise in (("largest", False), ("paper", False), ("largest", True)):
        found = {}
        for name, way in ways.items():
            monkeypatch.setattr(_preference, "shrink_for", way)
            generator = torch.Generator().manual_seed(1)
            problem = Problem(torch.float32, Raw(), estimator=estimator, ramp=ramp, rampup=3, normalise=normalise)
            seen = []
            for t in range(6):
                slopes = [
                    [torch.randn(p.shape, generator=generator) for p in (problem.trunk, head)] for head in problem.heads
                ]
                seen.append(problem.backward(slopes, [10.0**t, -3.0, 0.5]))
                problem.opt.step()
            found[name] = torch.stack(seen)
        assert torch.equal(found["needed"], found["none"]) and torch.equal(found["more"], found["none"])


@pytest.mark.parametrize("name", ["pcgrad", "upgrad", "dualproj", "gradvac", "cosmos", "dbmtl", "nashmtl", "mgda"])
def test_solvers_after_huge_gradients_and_with_tiny_ones(name):
    """Averages that remember 1e15, and weights that answer with 1e9; then denormal numbers."""
    for estimator in (None, "full", "separable"):
        generator = torch.Generator().manual_seed(0)
        w = nn.Parameter(torch.ones(8))
        metric = None if estimator is None else PreferenceMetric(estimator)
        opt = MAdam([w], lr=1e-3, solver=solvers.get(name), metric=metric)
        a, b, c = torch.randn(3, 8, generator=generator)
        for G in ((a * 1e15, b * 1e15), (a * 1e9, -a + 0.1 * c), (a * 1e-40, b * 1e-40), (a, b), (a * 1e12, -a)):
            opt.zero_grad()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                opt.backward([(w * G[0]).sum(), (w * G[1]).sum()])
            opt.step()
            assert w.isfinite().all()


def test_the_sum_of_many_large_gradients_does_not_overflow(feed):
    """As many objectives as one likes, each of the largest size that is let in, with weights that add up to much."""
    rows, weights = draw(6, 8)
    rows = rows / abs(rows).max() * 2e17
    for estimator in RESTLESS:
        param = start(torch.float32)
        opt = build(param, estimator, beta=0.9)
        assert feed(opt, param, rows, 4 * weights).abs().max() <= ReferenceMetric(0.9).bound * (1 + 1e-4)
        assert opt.skipped == 0


@pytest.mark.parametrize("estimator", RESTLESS)
def test_a_rotation_lets_no_square_overflow(estimator):
    """It may put the length of a whole matrix into one entry; the averages stay finite, whatever is let in."""
    for power in (14, 15, 16, 17, 18):
        trunk, small = nn.Parameter(torch.zeros(64, 64)), nn.Parameter(torch.zeros(2))
        metric = PreferenceMetric(estimator, basis="eigen", momentum=0.9)
        opt = MultiObjective(torch.optim.SGD([trunk, small], lr=0.0), "rlw", metric)
        for _ in range(2):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                opt.backward([10.0**power * trunk.sum() + small[i] for i in range(2)])
            assert trunk.grad is not None and trunk.grad.isfinite().all()
            opt.step()
        assert all(t.isfinite().all() for block in opt.metric.averages for t in block.tensors())
        assert opt.skipped == (2 if power > 16 else 0)
