"""What the options of the metric do: ramp-up, floor, every, dtype, beta, and constant weights that change."""

import warnings

import numpy as np
import pytest
import torch

from given_rows import averages, both_ways, build, draw, start
from madamoo import MAdam, MultiObjective, PreferenceMetric, solvers
from madamoo.metric import ESTIMATORS, EigenBasis

RESTLESS = [e for e in ESTIMATORS if e != "collapsed"]


# -- ramp-up ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ramp", ["largest", "paper"])
def test_ramp_up(ramp, feed, brute_force, close):
    rows, weights = draw(12, 2)
    for rampup, total, steps in [(0, None, 0), (1, None, 1), (7, None, 7), (0.1, 50, 5), (0.25, 2, 1)]:
        param = start()
        opt = build(param, "full", ramp=ramp, rampup=rampup, total_steps=total)

        def alpha(t, steps=steps):
            return min(1.0, t / steps) if steps else 1.0

        assert opt.metric.alpha == alpha(0)
        close(feed(opt, param, rows, weights), brute_force(rows, weights, alpha=alpha, ramp=ramp))
        assert opt.metric.alpha == alpha(12)


def test_a_ramp_up_longer_than_the_run_is_told():
    with pytest.warns(UserWarning, match=r"rampup=300 is longer than the run, total_steps=200"):
        PreferenceMetric(total_steps=200)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        PreferenceMetric(total_steps=300)


def test_first_step_of_the_ramps(feed, close):
    """alpha = 0: the direction itself, divided by one number per tensor."""
    rows, weights = draw(1, 2)
    d = weights[0] @ rows[0]
    for ramp, scale in [("paper", 1.0), ("largest", np.abs(d).max())]:
        param = start()
        close(feed(build(param, "full", ramp=ramp, rampup=10), param, rows, weights)[0], d / scale)


@pytest.mark.parametrize("estimator", RESTLESS)
def test_ramps_are_blind_to_the_scale_of_the_losses(estimator, feed, close):
    rows, weights = draw(12, 3)
    for rampup in (0, 5, 20):
        found = []
        for scale in (1.0, 1e-4, 7.3e3):
            param = start()
            found.append(feed(build(param, estimator, rampup=rampup), param, scale * rows, weights))
        close(found[1], found[0], rtol=1e-4)
        close(found[2], found[0], rtol=1e-4)


def test_the_papers_ramp_is_not(feed):
    rows, weights = draw(12, 3)
    found = []
    for scale in (1.0, 100.0):
        param = start()
        found.append(feed(build(param, "full", rampup=20, ramp="paper"), param, scale * rows, weights))
    assert not torch.allclose(*found, rtol=0.5)


# -- floor -----------------------------------------------------------------------------------------------------------


def test_the_bound_is_reached(feed):
    """A gradient that jumps up from nothing: 1 / sqrt(1 - beta), and not less, after a long rest."""
    rows = np.full((300, 1, 1), 1e-6)
    rows[-1] = 1.0
    param = start(size=1)
    assert feed(build(param, "full", beta=0.96), param, rows)[-1].item() == pytest.approx(5.0, rel=1e-5)


def test_floor_changes_nothing_in_full(feed, close):
    for count in range(1, 6):
        rows, weights = draw(12, count, seed=count)
        found = []
        for floor in (True, False):
            param = start()
            opt = build(param, "full", floor=floor, bias_correction=count % 2 == 0, beta=0.9)
            found.append(feed(opt, param, rows, weights))
        close(*found, rtol=1e-7)


def test_negative_curvature_without_floor_is_no_curvature(feed):
    """Pairs seen at different times: C < 0 does happen, and is not rooted."""
    dtype = torch.float64
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
def test_every_kth_step_is_measured(estimator, feed, brute_force, drawn, close):
    rows, weights = draw(31, 3)
    param = start()
    opt = build(param, estimator, every=3, beta=0.9)
    pairs = drawn(0, 3, 11)
    before, found = None, []
    for t in range(31):
        found.append(feed(opt, param, rows[t : t + 1], weights[t : t + 1])[0])
        F = averages(opt)["F"].clone()
        assert t % 3 == 0 or torch.equal(F, before)
        before = F
    chosen = None if estimator == "full" else lambda t: both_ways(*pairs[t // 3])
    close(torch.stack(found), brute_force(rows, weights, chosen, every=3, beta=0.9))


@pytest.mark.parametrize("momentum", [None, 0.9])
@pytest.mark.parametrize("estimator", ["full", "pair", "diagonal"])
def test_what_moves_first_between_two_measurements_takes_no_leap(estimator, momentum, feed):
    """As the first factor of a low-rank adapter whose second is zero: averages of zero would give it the bound."""
    rows, weights = draw(16, 3)
    rows[:14, :, 0] = 0.0
    opt = build(param := start(), estimator, every=4, momentum=momentum)
    found = feed(opt, param, rows, weights)  # measured is every fourth step; behind a momentum the first ten, then 13
    torch.testing.assert_close(found[:14, 0], torch.zeros_like(found[:14, 0]))
    torch.testing.assert_close(found[14:, 0].abs(), torch.ones_like(found[14:, 0]))


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


def test_backward_passes(monkeypatch):
    """At most three under pair (the two and the rest) whatever C; one where d alone is needed."""
    param, passes = start(), []
    grad = torch.autograd.grad
    monkeypatch.setattr(torch.autograd, "grad", lambda *a, **k: passes.append(1) or grad(*a, **k))
    for estimator, counts in {"pair": {2, 3}, "collapsed": {1}, "marginal": {1}, "full": {6}}.items():
        opt = build(param, estimator, solver=solvers.LS())
        seen = set()
        for _ in range(20):
            passes.clear()
            opt.backward([param.square().sum() * i for i in range(1, 7)])
            opt.step()
            seen.add(len(passes))
        assert seen == counts


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


def test_dtype_of_the_averages(feed):
    b, f, d = torch.bfloat16, torch.float32, torch.float64
    for param, given, kept in [(b, None, f), (f, None, f), (d, None, d), (f, d, d), (d, f, f), (b, "float64", d)]:
        param = start(param)
        opt = build(param, "full", dtype=given)
        feed(opt, param, *draw(2, 2))
        assert averages(opt)["F"].dtype == opt.metric.compute_dtype(param) == kept


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


def test_sgd_has_no_betas(feed, brute_force, close):
    rows, weights = draw(20, 2)
    param = start()
    first = param.detach().double().clone()
    opt = MultiObjective(torch.optim.SGD([param], lr=1e-2), solvers.Preference(), PreferenceMetric("full", rampup=0))
    wanted = brute_force(rows, weights, beta=0.999)
    close(feed(opt, param, rows, weights), wanted)
    close(param.detach(), first - 1e-2 * torch.from_numpy(wanted).sum(0), rtol=1e-6)


BAD_OPTIONS = [
    ({"estimator": "fisher"}, "estimator"),
    ({"estimator": "separable_pair"}, "estimator"),
    ({"beta": 1.0}, "beta"),
    ({"beta": -0.1}, "beta"),
    ({"beta": float("nan")}, "beta"),
    ({"eps": 0.0}, "eps"),
    ({"eps": float("nan")}, "eps"),
    ({"eps": float("inf")}, "eps"),
    ({"ramp": "linear"}, "ramp"),
    ({"rampup": -1}, "rampup"),
    ({"rampup": 1.5}, "rampup"),
    ({"rampup": "300"}, "rampup"),
    ({"beta": "0.9"}, "beta"),
    ({"every": "2"}, "every"),
    ({"normalise": "False"}, "normalise"),
    ({"floor": 0}, "floor"),
    ({"seed": None}, "seed"),
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


def test_options_are_checked():
    for options, name in BAD_OPTIONS:
        with pytest.raises(ValueError, match=rf"{name}.* got ") as error:
            PreferenceMetric(**options)
        assert repr(list(options.values())[-1]) in str(error.value) or name == "total_steps"


def test_options_are_shown():
    chosen = {
        "estimator": "pair",
        "beta": 0.9,
        "eps": 1e-8,
        "rampup": 7,
        "ramp": "paper",
        "bias_correction": False,
        "floor": False,
        "every": 3,
        "dtype": "bfloat16",
        "normalise": True,
    }
    basis = EigenBasis(every=7, beta=0.5)
    for given, shown in (("identity", "identity"), (basis, basis.options())):
        metric = PreferenceMetric(**chosen, seed=4, basis=given)
        assert metric.options() == {**chosen, "basis": shown, "momentum": None} and metric.needs_rows(static=True)
        again = eval(repr(metric), {"PreferenceMetric": PreferenceMetric, "EigenBasis": EigenBasis})
        assert again.options() == metric.options() and again.seed == 4
    assert "momentum=0.5" in repr(PreferenceMetric(momentum=0.5))
    assert not PreferenceMetric("marginal").needs_rows(static=False)


def test_another_estimator_in_the_middle_of_a_run_is_refused(feed):
    """ "auto" that would be another one: the averages of the first are of no use to it."""
    param = start()
    opt = build(param, "auto", solvers.LS())
    feed(opt, param, draw(2, 2)[0])
    with pytest.raises(ValueError, match="made with estimator 'collapsed', this step asks for 'full'"):
        opt.metric.measure(2, static=False)


# -- heads -----------------------------------------------------------------------------------------------------------

FORMS = {
    "sequence": list,
    "stack": torch.stack,
    "dense": lambda losses: torch.stack(losses) * 1.0,
    "picked": lambda losses: dict(zip("abc", (torch.stack(losses) * 1.0).unbind(), strict=True)),
    "dict": lambda losses: dict(zip("abc", losses, strict=True)),
}


def of_heads(estimator, solver, form, steps):
    trunk = torch.nn.Parameter(torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64))
    heads = [torch.nn.Parameter(torch.full((3,), float(i + 1), dtype=torch.float64)) for i in range(3)]
    opt = MAdam([trunk, *heads], lr=1e-2, solver=solvers.get(solver), metric=PreferenceMetric(estimator, rampup=5))
    for _ in range(steps):
        opt.zero_grad()
        opt.backward(FORMS[form]([(trunk @ head).square() for head in heads]))
        opt.step()
    return opt, torch.cat([trunk, *heads]).detach()


@pytest.mark.parametrize("estimator", ["full", "pair", "diagonal", "marginal"])
def test_heads_keep_their_own_entry_only(estimator):
    alone = [[i, i] for i in range(3)]
    every = [[i, j] for i in range(3) for j in range(i, 3)]
    shared = {"full": every, "pair": every, "diagonal": alone, "marginal": [[0, 0]]}[estimator]
    for solver, form in zip(["preference", "mgda", "cagrad", "rlw", "uw"], FORMS, strict=True):
        opt, _ = of_heads(estimator, solver, form, 40 if estimator == "pair" else 2)
        assert sorted(averages(opt, 0)["pairs"]) == shared
        for i in range(3):
            own = [0, 0] if estimator == "marginal" else [i, i]
            assert averages(opt, 1 + i)["pairs"] == [own] and averages(opt, 1 + i)["F"].shape == (1, 3)


def test_the_form_of_the_losses_does_not_matter():
    first, *others = [of_heads("full", "cagrad", form, 20)[1] for form in FORMS]
    for other in others:
        torch.testing.assert_close(first, other, rtol=1e-9, atol=1e-12)


def test_averages_that_start_late_are_measured_in_a_row(feed):
    """Weights that begin to jump: by one sample alone, with no ramp-up any more, the next steps would be divided."""
    rows, _ = draw(80, 3)
    weights = np.full((80, 3), 1.0 / 3.0)
    weights[40:] = np.random.default_rng(1).dirichlet(np.full(3, 0.3), size=40)
    largest = []
    for every in (1, 10):
        param = start()
        opt = build(param, "auto", every=every, rampup=20)
        found = feed(opt, param, rows, weights)
        assert opt.metric.used == "full"
        largest.append(float(found[41:].square().mean(1).sqrt().max()))
    assert largest[1] < 2.0 * largest[0]


@pytest.mark.parametrize("estimator", ["full", "pair", "diagonal", "separable"])
def test_what_no_objective_reaches_is_divided_alike_in_every_step(estimator):
    """A parameter that the extra term alone reaches has no average, whether the step is measured or not."""
    param, other = (torch.nn.Parameter(torch.ones(3, dtype=torch.float64)) for _ in range(2))
    opt = MultiObjective(torch.optim.SGD([param, other], 1e-3), "rlw", PreferenceMetric(estimator, rampup=0, every=3))
    for _ in range(6):
        opt.zero_grad()
        opt.backward([param.square().sum(), (param - 1.0).exp().sum()], extra=other.square().sum())
        torch.testing.assert_close(other.grad, torch.ones_like(other), rtol=1e-9, atol=0.0)
        opt.step()


# -- a static solver whose weights are changed after all -------------------------------------------------------------


@pytest.mark.parametrize("every", [1, 3])
def test_changed_weights_restart_the_averages(every, feed):
    """With a warning, and to the same result as a metric that starts there."""
    rows, _ = draw(20, 2)
    param, fresh = start(), start()
    opt = build(param, "auto", solvers.LS([0.5, 0.5]), every=every)
    feed(opt, param, rows[:10])
    opt.solver.coefficients.copy_(torch.tensor([0.9, 0.1], dtype=torch.float64))
    with pytest.warns(UserWarning, match="start again"):
        found = [*feed(opt, param, rows[10:11])]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found.extend(feed(opt, param, rows[11:]))
    wanted = feed(build(fresh, "auto", solvers.LS([0.9, 0.1]), every=every), fresh, rows[10:])
    assert torch.equal(torch.stack(found), wanted)


def test_batches_that_never_hold_every_objective_restart_nothing(feed, brute_force, close):
    """Tasks that take turns under constant weights: one average mixes them, which is said once; nothing restarts."""
    rows, _ = draw(30, 2)
    rows[::2, 0] = np.nan
    rows[1::2, 1] = np.nan
    param = start()
    with pytest.warns(UserWarning, match="a batch lacks objectives") as seen:
        found = feed(build(param, "auto", solvers.LS(), beta=0.9), param, rows)
    assert len(seen) == 1
    d = 0.5 * np.nansum(rows, axis=1, keepdims=True)
    close(found, brute_force(d, np.ones((30, 1)), beta=0.9))


def test_the_papers_own_form():
    plain = {"estimator": "pair", "eps": 1e-8, "ramp": "paper", "bias_correction": False, "floor": False}
    assert PreferenceMetric.paper(beta=0.9).options() == PreferenceMetric(**plain, beta=0.9).options()
    assert PreferenceMetric.paper(estimator="full").estimator == "full"
