"""The metric through the public API, against the paper's equations."""

import warnings
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from madamoo import MAdam, MultiObjective, PreferenceMetric, solvers
from madamoo.metric import ESTIMATORS, ReferenceMetric

EVERY_ESTIMATOR = [e for e in ESTIMATORS if e != "auto"]
RESTLESS = [e for e in EVERY_ESTIMATOR if e != "collapsed"]  # those that allow weights to change
PLAIN = {"eps": 1e-8, "ramp": "paper", "bias_correction": False, "floor": False}


class Given(solvers.Preference):
    """A solver for which every objective is differentiated, though its weights are given."""

    needs_gram = True


def start(dtype=torch.float64, size=5):
    return torch.nn.Parameter(torch.linspace(-1.0, 1.0, size, dtype=dtype))


def build(param, estimator="full", solver=None, betas=(0.9, 0.999), **options):
    """MAdam without ramp-up unless asked for, on objectives whose weights come with the step."""
    metric = PreferenceMetric(estimator, **{"rampup": 0, **options})
    params = [param] if isinstance(param, torch.Tensor) else param
    return MAdam(params, lr=1e-2, betas=betas, solver=solver or solvers.Preference(), metric=metric)


def draw(steps, count, size=5, seed=0):
    """Rows of unlike size and correlated objectives, and a new preference each step."""
    rng = np.random.default_rng(seed)
    own, common = rng.normal(size=(steps, count, size)), rng.normal(size=(steps, 1, size))
    rows = own * np.logspace(-1, 1, count)[:, None] + common
    return rows, rng.dirichlet(np.ones(count), steps)


def averages(opt, index=0):
    """The entry of a parameter in the checkpoint, with F in full: its scale is kept apart."""
    entry = opt.state_dict()["multi_objective"]["metric"]["averages"][index]
    scale = torch.tensor(entry["scale"], dtype=entry["F"].dtype).view(-1, *[1] * (entry["F"].dim() - 1))
    return {**entry, "F": scale * entry["F"]}


def both_ways(i, j):
    return {(i, i), (j, j), (i, j), (j, i)}


# -- exact oracles ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", EVERY_ESTIMATOR)
def test_one_objective_is_adam_on_the_whitened_gradient(estimator, dtype, close):
    """200 steps of a noisy problem: MAdam, and torch's Adam fed with g / sqrt(EMA(g^2))."""
    ours, theirs = start(dtype), start(dtype)
    opt = build(ours, estimator, solver=solvers.LS())
    adam, v, beta = torch.optim.Adam([theirs], lr=1e-2), torch.zeros_like(theirs), 0.999
    generator = torch.Generator().manual_seed(1)
    for t in range(1, 201):
        x = torch.randn(8, 5, generator=generator, dtype=dtype)
        opt.zero_grad()
        opt.backward([(x @ ours - 1).square().mean()])
        opt.step()
        (g,) = torch.autograd.grad((x @ theirs - 1).square().mean(), theirs)
        v = beta * v + (1 - beta) * g * g
        theirs.grad = g / torch.sqrt(v / (1 - beta**t) + 1e-16)
        adam.step()
        close(ours.detach(), theirs.detach(), dtype, rtol=1e-10 if dtype == torch.float64 else 1e-4)


@pytest.mark.parametrize("ramp", ["largest", "matched", "paper"])
@pytest.mark.parametrize("bias_correction", [True, False])
def test_full_with_constant_weights_is_collapsed(bias_correction, ramp, dtype, feed, close):
    rows, _ = draw(60, 4)
    options = {"bias_correction": bias_correction, "ramp": ramp, "rampup": 10}
    found = []
    for estimator in ("full", "collapsed"):
        param = start(dtype)
        found.append(feed(build(param, estimator, solvers.LS([0.1, 0.2, 0.3, 0.6]), **options), param, rows))
    close(*found, dtype)


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("estimator", ["full", "diagonal", "marginal"])
def test_every_average_under_a_restless_preference(estimator, count, dtype, feed, brute_force, close):
    rows, weights = draw(60, count)
    param = start(dtype)
    found = feed(build(param, estimator, floor=False), param, rows, weights)
    if estimator == "marginal":  # the average of d^2: one objective, d, of weight 1
        rows, weights = np.einsum("tc,tcn->tn", weights, rows)[:, None], np.ones((60, 1))
    pairs = (lambda t: [(i, i) for i in range(count)]) if estimator == "diagonal" else None
    close(found, brute_force(rows, weights, pairs, floor=False), dtype)


@pytest.mark.parametrize("estimator", ["full", "diagonal"])
def test_missing_objectives_rest(estimator, dtype, feed, brute_force, close):
    rows, weights = draw(60, 4)
    rng = np.random.default_rng(2)
    rows[(rng.random((60, 4)) < 0.4) & (np.arange(4) != rng.integers(4, size=(60, 1)))] = np.nan
    param = start(dtype)
    found = feed(build(param, estimator), param, rows, weights)

    def diagonal(t):
        return [(i, i) for i in range(4) if not np.isnan(rows[t, i]).any()]

    close(found, brute_force(rows, weights, diagonal if estimator == "diagonal" else None), dtype)


@pytest.mark.parametrize("solver, count", [(None, 3), (None, 6), (solvers.RLW, 4), (solvers.MGDA, 4), (Given, 2)])
def test_pair_follows_its_generator(solver, count, feed, brute_force, drawn, close):
    rows, weights = draw(80, count)
    param = start()
    opt = build(param, "pair", solver and solver(), seed=7)
    pairs = drawn(7, count, 80)
    if solver is None:
        found = feed(opt, param, rows, weights)
    else:  # the weights are the solver's: record them
        found, weights = [], []
        for g in rows:
            found.append(feed(opt, param, g[None])[0])
            weights.append(opt.weights)
        found, weights = torch.stack(found), torch.stack(weights)
    close(found, brute_force(rows, weights, lambda t: both_ways(*pairs[t])), rtol=1e-7)

    entries = averages(opt)
    counts = {(i, j): sum((i, j) in both_ways(*p) for p in pairs) for i in range(count) for j in range(i, count)}
    assert {tuple(p): n for p, n in zip(entries["pairs"], entries["n"], strict=True)} == {
        pair: n for pair, n in counts.items() if n
    }


def test_pairs_are_uniform():
    """An off-diagonal entry is updated 2/C^2 of the time, a diagonal one (2C - 1)/C^2."""
    metric, count, steps = PreferenceMetric("pair"), 3, 2000
    updates = Counter()
    for _ in range(steps):
        measurement = metric.measure("pair", range(count))
        updates.update(measurement.pairs(range(count)))
        metric.end_update(measurement, [1.0] * count, range(count))
    assert len(updates) == 6
    for (i, j), n in updates.items():
        p = (2 * count - 1) / count**2 if i == j else 2 / count**2
        assert abs(n - steps * p) < 4 * (steps * p * (1 - p)) ** 0.5


def test_pair_is_full_on_a_repeated_batch_once_every_pair_was_seen(dtype, feed, drawn, close):
    rows, weights = draw(120, 4)
    rows[:] = np.abs(rows[0])  # of one sign: nothing cancels, and float32 is as good as float64
    found = {}
    for estimator in ("pair", "full"):
        param = start(dtype)
        found[estimator] = feed(build(param, estimator), param, rows, weights)
    seen, last = set(), 0
    for t, pair in enumerate(drawn(0, 4, 120)):
        last = t if not both_ways(*pair) <= seen else last
        seen |= both_ways(*pair)
    assert len(seen) == 16 and last < 100
    close(found["pair"][last:], found["full"][last:], dtype)
    assert not torch.allclose(found["pair"][:last], found["full"][:last], rtol=0.05)


def test_plain_form_is_algorithm_1(drawn, close):
    """A literal transcription, Adam included, on losses whose gradients are positive: no root of a negative number."""
    count, size, steps, lr, (b1, b2), warmup, tiny = 3, 4, 80, 1e-2, (0.9, 0.99), 20, 1e-8
    rng = np.random.default_rng(0)
    slopes = rng.uniform(0.2, 1.5, (steps, count, size))
    preferences = rng.dirichlet(np.ones(count), steps)

    theta, m, v = np.zeros(size), np.zeros(size), np.zeros(size)
    F = np.zeros((count, count, size))
    for t, (i, j) in enumerate(drawn(3, count, steps)):
        lam = preferences[t]
        g = slopes[t] * np.exp(slopes[t] * theta)  # of  sum_k exp(a_k theta_k)
        d = (lam[:, None] * g).sum(0)
        for p, q in {(i, i), (j, j), (i, j)}:
            F[p, q] = F[q, p] = b2 * F[p, q] + (1 - b2) * g[p] * g[q]
        C = sum(lam[p] * lam[q] * F[p, q] for p in range(count) for q in range(count))
        alpha = min(1.0, t / warmup)
        d = d / (alpha * np.sqrt(C + tiny) + (1 - alpha))
        m, v = b1 * m + (1 - b1) * d, b2 * v + (1 - b2) * d * d
        theta = theta - lr * (m / (1 - b1 ** (t + 1))) / (np.sqrt(v / (1 - b2 ** (t + 1))) + 1e-8)

    param = torch.nn.Parameter(torch.zeros(size, dtype=torch.float64))
    opt = build(param, "pair", betas=(b1, b2), rampup=warmup, seed=3, **PLAIN)
    for t in range(steps):
        opt.zero_grad()
        opt.backward(torch.exp(torch.from_numpy(slopes[t]) * param).sum(1), preference=preferences[t])
        opt.step()
    close(param.detach(), theta)


# -- ramp-up ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ramp", ["largest", "matched", "paper"])
@pytest.mark.parametrize("rampup, steps", [(0, 0), (1, 1), (7, 7), ((0.1, 50), 5), ((0.25, 2), 1)])
def test_ramp_up(rampup, steps, ramp, dtype, feed, brute_force, close):
    rows, weights = draw(12, 2)
    param = start(dtype)
    options = {"rampup": rampup} if isinstance(rampup, int) else {"rampup": rampup[0], "total_steps": rampup[1]}
    found = feed(build(param, "full", ramp=ramp, **options), param, rows, weights)

    def alpha(t):
        return min(1.0, t / steps) if steps else 1.0

    close(found, brute_force(rows, weights, alpha=alpha, ramp=ramp), dtype)


def test_first_step_of_the_ramps(feed, close):
    """alpha = 0: the direction itself, divided by one number a tensor."""
    rows, weights = draw(1, 2)
    d = weights[0] @ rows[0]
    for ramp, scale in [("paper", 1.0), ("matched", np.abs(d).mean()), ("largest", np.abs(d).max())]:
        param = start()
        close(feed(build(param, "full", ramp=ramp, rampup=10), param, rows, weights)[0], d / scale)


@pytest.mark.parametrize("estimator", RESTLESS)
@settings(max_examples=10, deadline=None, derandomize=True)
@given(power=st.floats(-4, 4), rampup=st.sampled_from([0, 5, 20]), ramp=st.sampled_from(["largest", "matched"]))
def test_ramps_are_blind_to_the_scale_of_the_losses(estimator, power, rampup, ramp, feed, close):
    rows, weights = draw(12, 3)
    found = []
    for scale in (1.0, 10.0**power):
        param = start()
        found.append(feed(build(param, estimator, rampup=rampup, ramp=ramp), param, scale * rows, weights))
    close(*found, rtol=1e-4)


def test_the_papers_ramp_is_not(feed):
    rows, weights = draw(12, 3)
    found = []
    for scale in (1.0, 100.0):
        param = start()
        found.append(feed(build(param, "full", rampup=20, ramp="paper"), param, scale * rows, weights))
    assert not torch.allclose(*found, rtol=0.5)


# -- floor -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", RESTLESS)
@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 2**32 - 1),
    count=st.integers(1, 5),
    beta=st.sampled_from([0.0, 0.5, 0.9, 0.999]),
    every=st.integers(1, 3),
    spread=st.floats(0, 6),
    bias_correction=st.booleans(),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    needs_gram=st.booleans(),
)
def test_floor_bounds_every_entry(
    estimator, seed, count, beta, every, spread, bias_correction, dtype, needs_gram, feed
):
    """Under restless preferences, gradients of every size, zeros and missing objectives."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(15, count, 4)) * 10 ** rng.uniform(-spread, spread, (15, count, 1))
    rows[rng.random(rows.shape) < 0.2] = 0.0
    missing = rng.random((15, count)) < 0.2
    missing[missing.all(1)] = False
    rows[missing] = np.nan
    param = start(dtype, 4)
    solver = Given() if needs_gram else solvers.Preference()
    opt = build(param, estimator, solver, beta=beta, every=every, bias_correction=bias_correction, seed=seed)
    found = feed(opt, param, rows, rng.dirichlet(0.3 * np.ones(count), 15))
    assert found.isfinite().all()
    assert found.abs().max() <= ReferenceMetric(beta).bound * (1 + 1e-5)


def test_the_bound_is_reached(feed):
    """A gradient that jumps up from nothing: 1 / sqrt(1 - beta), and not less, after a long rest."""
    rows = np.full((300, 1, 1), 1e-6)
    rows[-1] = 1.0
    param = start(size=1)
    assert feed(build(param, "full", beta=0.96), param, rows)[-1].item() == pytest.approx(5.0, rel=1e-5)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32 - 1), count=st.integers(1, 5), bias_correction=st.booleans())
def test_floor_changes_nothing_in_full(seed, count, bias_correction, feed, close):
    rows, weights = draw(12, count, seed=seed)
    found = []
    for floor in (True, False):
        param = start()
        opt = build(param, "full", floor=floor, bias_correction=bias_correction, beta=0.9)
        found.append(feed(opt, param, rows, weights))
    close(*found, rtol=1e-7)


def test_negative_curvature_without_floor_is_no_curvature(dtype, feed):
    """Pairs seen at different times: C < 0 does happen, and is not rooted."""
    rows = np.random.default_rng(4).normal(size=(60, 3, 5))
    _, weights = draw(60, 3)
    param = start(dtype)
    opt = build(param, "pair", floor=False, beta=0.5, eps=1e-8)
    negative = 0
    for t in range(60):
        out = feed(opt, param, rows[t : t + 1], weights[t : t + 1])[0]
        assert out.isfinite().all()
        e, w = averages(opt), weights[t]
        terms = zip(e["F"], e["pairs"], e["n"], strict=True)
        C = sum((1 + (i != j)) * w[i] * w[j] * F / (1 - 0.5**n) for F, (i, j), n in terms)
        d = torch.as_tensor(w @ rows[t], dtype=dtype)
        below = C + 1e-6 * d.square() < 0
        negative += int(below.sum())
        torch.testing.assert_close(out[below], d[below] / 1e-4, rtol=1e-4, atol=0.0)
    assert negative > 0


# -- options ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", ["full", "pair"])
def test_every_kth_step_is_measured(estimator, dtype, feed, brute_force, drawn, close):
    rows, weights = draw(31, 3)
    param = start(dtype)
    opt = build(param, estimator, every=3, beta=0.9)
    pairs = drawn(0, 3, 11)
    before, found = None, []
    for t in range(31):
        found.append(feed(opt, param, rows[t : t + 1], weights[t : t + 1])[0])
        F = averages(opt)["F"].clone()
        assert t % 3 == 0 or torch.equal(F, before)
        before = F
    chosen = None if estimator == "full" else lambda t: both_ways(*pairs[t // 3])
    close(torch.stack(found), brute_force(rows, weights, chosen, every=3, beta=0.9), dtype)


def test_unmeasured_steps_take_one_backward_pass(monkeypatch):
    param, passes = start(), []
    grad = torch.autograd.grad
    monkeypatch.setattr(torch.autograd, "grad", lambda *a, **k: passes.append(1) or grad(*a, **k))
    opt = build(param, "full", every=4)
    counts = []
    for _ in range(5):
        passes.clear()
        opt.backward([param.sum(), param.square().sum(), param.exp().sum()])
        opt.step()
        counts.append(len(passes))
    assert counts == [3, 1, 1, 1, 3]


@pytest.mark.parametrize("estimator, most", [("pair", 3), ("collapsed", 1), ("marginal", 1), ("full", 6)])
def test_backward_passes(estimator, most, monkeypatch):
    """At most three under pair (the two and the rest) whatever C; one where d alone is needed."""
    param, passes = start(), []
    grad = torch.autograd.grad
    monkeypatch.setattr(torch.autograd, "grad", lambda *a, **k: passes.append(1) or grad(*a, **k))
    opt = build(param, estimator, solver=solvers.LS())
    for _ in range(10):
        passes.clear()
        opt.backward([param.square().sum() * i for i in range(1, 7)])
        opt.step()
        assert len(passes) <= most


def test_averages_are_float32_for_bfloat16_parameters():
    param = torch.nn.Parameter(torch.ones(6, dtype=torch.bfloat16))
    opt = build(param, "full", beta=0.9)
    rows, weights = draw(10, 2, size=6)
    rows = torch.as_tensor(rows, dtype=torch.bfloat16)
    F = torch.zeros(3, 6)
    for g, w in zip(rows, weights, strict=True):
        opt.backward([g_i @ param for g_i in g], preference=w)
        opt.step()
        g = g.float()
        F = 0.9 * F + 0.1 * torch.stack([g[0] * g[0], g[0] * g[1], g[1] * g[1]])
    entries = averages(opt)
    assert entries["F"].dtype == torch.float32 and param.grad.dtype == torch.bfloat16
    assert entries["pairs"] == [[0, 0], [0, 1], [1, 1]]
    torch.testing.assert_close(entries["F"], F, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "param, given, kept",
    [
        (torch.bfloat16, None, torch.float32),
        (torch.float32, None, torch.float32),
        (torch.float64, None, torch.float64),
        (torch.float32, torch.float64, torch.float64),
        (torch.float64, torch.float32, torch.float32),
    ],
)
def test_dtype_of_the_averages(param, given, kept, feed):
    param = start(param)
    opt = build(param, "full", dtype=given)
    feed(opt, param, *draw(2, 2))
    assert averages(opt)["F"].dtype == kept


def test_beta_of_the_group(feed, brute_force, close):
    """betas[1] of each group's own; the one given to the metric for all; 0.999 where a group has none."""
    rows, weights = draw(20, 2)
    for beta, expected in [(None, (0.9, 0.5)), (0.8, (0.8, 0.8))]:
        a, b = start(), start()
        groups = [{"params": [a], "betas": (0.9, 0.9)}, {"params": [b], "betas": (0.9, 0.5)}]
        metric = PreferenceMetric("full", beta=beta, rampup=0)
        opt = MAdam(groups, lr=1e-2, solver=solvers.Preference(), metric=metric)
        seen = []
        for g, w in zip(torch.from_numpy(rows), weights, strict=True):
            opt.backward([g_i @ (a + b) for g_i in g], preference=w)
            seen.append(torch.stack([a.grad, b.grad]))
            opt.step()
        for k, used in enumerate(expected):
            close(torch.stack(seen)[:, k], brute_force(rows, weights, beta=used))


def test_sgd_has_no_betas(dtype, feed, brute_force, close):
    rows, weights = draw(20, 2)
    param = start(dtype)
    first = param.detach().double().clone()
    opt = MultiObjective(torch.optim.SGD([param], lr=1e-2), solvers.Preference(), PreferenceMetric("full", rampup=0))
    wanted = brute_force(rows, weights, beta=0.999)
    close(feed(opt, param, rows, weights), wanted, dtype)
    close(param.detach(), first - 1e-2 * torch.from_numpy(wanted).sum(0), dtype, rtol=1e-6)


AUTO = [
    (solvers.LS, 2, "collapsed"),
    (solvers.LS, 12, "collapsed"),
    (solvers.Preference, 1, "full"),
    (solvers.Preference, 4, "full"),
    (solvers.UW, 8, "full"),
    (solvers.UW, 9, "separable"),
    (solvers.MGDA, 8, "full"),
    (solvers.MGDA, 9, "separable"),
]


@pytest.mark.parametrize("solver, count, chosen", AUTO)
def test_auto(solver, count, chosen, feed):
    found = []
    for estimator in ("auto", chosen):
        param = start()
        opt = build(param, estimator, solver())
        found.append(feed(opt, param, draw(8, count)[0]))
        assert opt.state_dict()["multi_objective"]["metric"]["estimator"] == chosen
    assert torch.equal(*found)


def test_full_on_request_above_eight_objectives(feed):
    param = start()
    opt = build(param, "full", solvers.MGDA())
    feed(opt, param, draw(2, 9)[0])
    assert len(averages(opt)["pairs"]) == 45


@pytest.mark.parametrize("solver", ["rlw", "uw", "dwa", "mgda", "cagrad", "preference"])
def test_collapsed_refuses_weights_that_change(solver):
    with pytest.raises(ValueError, match=r"collapsed.*constant weights"):
        build(start(), "collapsed", solvers.get(solver))


BAD_OPTIONS = [
    ({"estimator": "fisher"}, "estimator"),
    ({"beta": 1.0}, "beta"),
    ({"beta": -0.1}, "beta"),
    ({"beta": float("nan")}, "beta"),
    ({"eps": 0.0}, "eps"),
    ({"eps": float("nan")}, "eps"),
    ({"eps": float("inf")}, "eps"),
    ({"ramp": "linear"}, "ramp"),
    ({"rampup": -1}, "rampup"),
    ({"rampup": 1.5}, "rampup"),
    ({"rampup": float("nan")}, "rampup"),
    ({"rampup": float("inf")}, "rampup"),
    ({"rampup": 0.1}, "total_steps"),
    ({"rampup": 0.1, "total_steps": 0}, "total_steps"),
    ({"every": 0}, "every"),
    ({"every": 1.5}, "every"),
    ({"every": float("inf")}, "every"),
    ({"dtype": torch.float16}, "dtype"),
    ({"dtype": "int8"}, "dtype"),
]


@pytest.mark.parametrize("options, name", BAD_OPTIONS, ids=lambda x: str(x))
def test_options_are_checked(options, name):
    with pytest.raises(ValueError, match=rf"{name}.* got ") as error:
        PreferenceMetric(**options)
    assert repr(list(options.values())[-1]) in str(error.value) or name == "total_steps"


# -- heads -----------------------------------------------------------------------------------------------------------


def as_sequence(trunk, heads):
    return [(trunk @ head).square() for head in heads]


def as_stack(trunk, heads):
    return torch.stack(as_sequence(trunk, heads))


def as_dense(trunk, heads):
    return torch.stack([trunk @ head for head in heads]).square()


def as_dict(trunk, heads):
    return {f"task {i}": loss for i, loss in enumerate(as_sequence(trunk, heads))}


@pytest.mark.parametrize("losses", [as_sequence, as_stack, as_dense, as_dict])
@pytest.mark.parametrize("solver", ["preference", "mgda", "cagrad", "rlw"])
@pytest.mark.parametrize("estimator", ["full", "pair", "diagonal", "marginal"])
def test_heads_keep_their_own_entry_only(estimator, solver, losses):
    count = 3
    trunk = torch.nn.Parameter(torch.tensor([1.0, -2.0, 0.5]))
    heads = [torch.nn.Parameter(torch.full((3,), float(i + 1))) for i in range(count)]
    opt = MAdam([trunk, *heads], lr=1e-3, solver=solvers.get(solver), metric=PreferenceMetric(estimator, rampup=0))
    for _ in range(40):
        opt.zero_grad()
        opt.backward(losses(trunk, heads))
        opt.step()
    alone = [[i, i] for i in range(count)]
    every = [[i, j] for i in range(count) for j in range(i, count)]
    shared = {"full": every, "pair": every, "diagonal": alone, "marginal": [[0, 0]]}[estimator]
    assert sorted(averages(opt, 0)["pairs"]) == shared
    for i in range(count):
        own = [0, 0] if estimator == "marginal" else [i, i]
        assert averages(opt, 1 + i)["pairs"] == [own]
        assert averages(opt, 1 + i)["F"].shape == (1, 3)


@pytest.mark.parametrize("pick", [list, lambda x: {"a": x[0], "b": x[1], "c": x[2]}], ids=["unbound", "indexed"])
def test_heads_behind_losses_picked_from_one_tensor(pick):
    trunk = torch.nn.Parameter(torch.tensor([1.0, -2.0, 0.5]))
    heads = [torch.nn.Parameter(torch.full((3,), float(i + 1))) for i in range(3)]
    opt = MAdam([trunk, *heads], solver=solvers.MGDA(), metric=PreferenceMetric("full", rampup=0))
    opt.backward(pick(as_dense(trunk, heads)))
    opt.step()
    assert [averages(opt, 1 + i)["pairs"] for i in range(3)] == [[[i, i]] for i in range(3)]


def test_the_form_of_the_losses_does_not_matter():
    ends = []
    for losses in (as_sequence, as_stack, as_dense, as_dict):
        trunk = torch.nn.Parameter(torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64))
        heads = [torch.nn.Parameter(torch.full((3,), float(i + 1), dtype=torch.float64)) for i in range(3)]
        opt = MAdam([trunk, *heads], lr=1e-2, solver=solvers.CAGrad(), metric=PreferenceMetric("full", rampup=5))
        for _ in range(20):
            opt.zero_grad()
            opt.backward(losses(trunk, heads))
            opt.step()
        ends.append(torch.cat([trunk, *heads]).detach())
    for a, b in pairwise(ends):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


# -- a static solver whose weights are changed after all -------------------------------------------------------------


@pytest.mark.parametrize("every", [1, 3])
def test_changed_weights_restart_the_averages(every, dtype, feed):
    """With a warning, and to the same result as a metric that starts there."""
    rows, _ = draw(20, 2)
    param, fresh = start(dtype), start(dtype)
    opt = build(param, "auto", solvers.LS([0.5, 0.5]), every=every)
    feed(opt, param, rows[:10])
    opt.solver.coefficients.copy_(torch.tensor([0.9, 0.1], dtype=torch.float64))
    with pytest.warns(UserWarning, match="start anew"):
        found = [*feed(opt, param, rows[10:11])]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found.extend(feed(opt, param, rows[11:]))
    wanted = feed(build(fresh, "auto", solvers.LS([0.9, 0.1]), every=every), fresh, rows[10:])
    assert torch.equal(torch.stack(found), wanted)


def test_batches_that_never_hold_every_objective_restart_nothing(feed, brute_force, close):
    """Tasks that take turns under constant weights: nobody changed them, so no warning and no restart."""
    rows, _ = draw(30, 2)
    rows[::2, 0] = np.nan
    rows[1::2, 1] = np.nan
    param = start()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = feed(build(param, "auto", solvers.LS(), beta=0.9), param, rows)
    d = 0.5 * np.nansum(rows, axis=1, keepdims=True)
    close(found, brute_force(d, np.ones((30, 1)), beta=0.9))


# -- averages of normalised gradients ----------------------------------------------------------------------------------


@pytest.mark.parametrize("every", [1, 3])
def test_normalised_averages(every, feed, brute_force, close):
    rows, weights = draw(40, 3)
    rows *= np.exp(np.random.default_rng(1).normal(size=(40, 3, 1)))  # norms that jump
    param = start()
    found = feed(build(param, "full", beta=0.9, every=every, normalise=True), param, rows, weights)
    close(found, brute_force(rows, weights, beta=0.9, every=every, normalise=True))


def test_normalised_averages_of_one_pair_a_step(feed, brute_force, drawn, close):
    rows, weights = draw(60, 4)
    rows *= np.exp(np.random.default_rng(1).normal(size=(60, 4, 1)))
    drawings = drawn(0, 4, 60)

    def pairs(t):
        i, j = drawings[t]
        return {(a, b) for a in (i, j) for b in (i, j)}

    param = start()
    found = feed(build(param, "pair", beta=0.9, normalise=True), param, rows, weights)
    close(found, brute_force(rows, weights, pairs, beta=0.9, normalise=True))


@pytest.mark.parametrize("estimator", ["full", "pair", "diagonal", "marginal"])
def test_normalised_averages_match_the_reference(estimator, feed, drawn, close):
    rows, weights = draw(30, 3)
    param = start()
    found = feed(build(param, estimator, beta=0.9, rampup=10, normalise=True), param, rows, weights)
    reference, drawings = ReferenceMetric(0.9, rampup=10, normalise=True), drawn(0, 3, 30)
    for t in range(30):
        g = {i: torch.as_tensor(rows[t, i]) for i in range(3)}
        d, w = sum(weights[t, i] * g[i] for i in g), list(weights[t])
        pairs = [(i, j) for i in range(3) for j in range(i, 3)]
        if estimator == "diagonal":
            pairs = [(i, i) for i in range(3)]
        elif estimator == "pair":
            g = {i: g[i] for i in set(drawings[t])}
            pairs = [(i, j) for i in g for j in g if i <= j]
        elif estimator == "marginal":
            g, w, pairs = {0: d}, [1.0], [(0, 0)]
        close(found[t], reference.step(g, pairs, w, d))


def test_normalised_averages_with_objectives_missing(feed, brute_force, close):
    rows, weights = draw(40, 3)
    rows[::3, 1] = np.nan
    rows[5:10, 2] = np.nan
    weights = np.where(np.isnan(rows).any(-1), 0.0, weights)
    param = start()
    found = feed(build(param, "full", beta=0.9, normalise=True), param, rows, weights)
    close(found, brute_force(rows, weights, beta=0.9, normalise=True))


def test_the_norm_is_over_all_parameters(feed, brute_force, close):
    """Two parameters, one of them reached by one objective only: as one long vector."""
    rows, weights = draw(30, 2)
    rows[:, 0, 3:] = 0.0
    trunk, head = (torch.zeros(k, dtype=torch.float64, requires_grad=True) for k in (3, 2))
    opt = build([trunk, head], "full", beta=0.9, normalise=True)
    seen = []
    for t, g in enumerate(torch.as_tensor(rows)):
        opt.zero_grad()
        opt.backward([g[0, :3] @ trunk, g[1, :3] @ trunk + g[1, 3:] @ head], preference=weights[t])
        seen.append(torch.cat([trunk.grad, head.grad]))
        opt.step()
    close(torch.stack(seen), brute_force(rows, weights, beta=0.9, normalise=True))


@pytest.mark.parametrize("estimator", ["full", "diagonal"])
def test_moving_scales_of_the_losses_do_not_matter_if_lambda_makes_up_for_them(estimator, feed, close):
    """Plain averages keep this promise for constant scales only."""
    rows, weights = draw(40, 3)
    scales = np.exp(2 * np.random.default_rng(1).normal(size=(40, 3)))
    found = {}
    for normalise in (True, False):
        for c in (np.ones_like(scales), scales):
            param = start()
            opt = build(param, estimator, beta=0.9, normalise=normalise)
            found.setdefault(normalise, []).append(feed(opt, param, rows * c[:, :, None], weights / c))
    close(*found[True])
    assert not torch.allclose(*found[False], rtol=0.1)


def test_old_gradients_do_not_linger_under_growing_weights(feed):
    """Weights that grow a thousandfold as gradients shrink: d keeps its size, and what the optimizer sees nearly so."""
    steps = 600
    shrink = np.geomspace(1.0, 1e-3, steps)[:, None]
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(steps, 2, 5)) * shrink[:, :, None]
    size = {}
    for normalise in (False, True):
        param = start()
        opt = build(param, "full", normalise=normalise)
        size[normalise] = float(feed(opt, param, rows, np.ones((steps, 2)) / shrink)[-100:].abs().mean())
    assert size[False] < 0.02
    assert 0.2 < size[True] < 1.5


@pytest.mark.parametrize("estimator", ["full", "pair", "marginal"])
def test_gradients_of_zero_and_huge_ones_have_a_direction_too(estimator, feed):
    rows, weights = draw(30, 3)
    rows[:5] = 0.0
    rows[10:20, 1] = 0.0
    rows[25] *= 1e17
    param = start(torch.float32)
    found = feed(build(param, estimator, normalise=True), param, rows, weights)
    assert torch.isfinite(found).all() and found.abs().max() <= ReferenceMetric().bound * (1 + 1e-5)


def test_normalised_averages_add_up_over_micro_batches(feed, close):
    rows, weights = draw(20, 3)
    whole, parts = start(), start()
    wanted = feed(build(whole, "full", normalise=True), whole, rows, weights)
    opt, seen = build(parts, "full", normalise=True), []
    for t, g in enumerate(torch.as_tensor(rows)):
        opt.zero_grad()
        for share in (0.3, 0.7):
            opt.backward([share * g_i @ parts for g_i in g], preference=weights[t])
        seen.append(parts.grad.clone())
        opt.step()
    close(torch.stack(seen), wanted)


@pytest.mark.parametrize("estimator", ["full", "pair"])
def test_checkpoints_hold_the_norms(estimator, feed):
    rows, weights = draw(20, 3)
    param, other = start(), start()
    one = build(param, estimator, normalise=True)
    feed(one, param, rows[:10], weights[:10])
    state = one.state_dict()
    with torch.no_grad():
        other.copy_(param)
    two = build(other, estimator, normalise=True)
    two.load_state_dict(state)
    assert torch.equal(feed(one, param, rows[10:], weights[10:]), feed(two, other, rows[10:], weights[10:]))
    with pytest.raises(ValueError, match="not made with normalise=False"):
        build(other, estimator).load_state_dict(state)
    plain = build(other, estimator)
    feed(plain, other, rows[:2], weights[:2])
    with pytest.raises(ValueError, match="not made with normalise=True"):
        build(other, estimator, normalise=True).load_state_dict(plain.state_dict())
