"""Every quantity against a brute-force recomputation, against closed forms, and against the lemma itself."""

import copy
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnostics.oracle import Oracle, compare, flat
from helpers import Net, adam, preference, wrap
from madamoo import MAdam, MultiObjective, PreferenceMetric, diagnostics, solvers
from madamoo.diagnostics import _measure
from madamoo.diagnostics._measure import Piece, Sums, make_row
from madamoo.metric._ramp import metric_of
from madamoo.pareto import TiltedQuadratics

STEPS = 7


def sgd(net):
    return torch.optim.SGD(net.parameters(), lr=1e-2, momentum=0.5)


def draws(opt):
    """The pairs that the metric will draw, one per step."""
    generator = copy.deepcopy(opt.metric.generator)
    drawn = []

    def pairs(t):
        while len(drawn) <= t:
            i, j = torch.randint(3, (2,), generator=generator).tolist()
            drawn.append(sorted({(i, i), (j, j), (min(i, j), max(i, j))}))
        return drawn[t]

    return pairs


@pytest.mark.parametrize(
    "solver, estimator, options",
    [
        ("ls", None, {}),
        ("uw", None, {}),
        ("mgda", None, {}),
        ("preference", None, {}),
        ("ls", "collapsed", {"exact": True}),
        ("ls", "collapsed", {}),
        ("uw", "full", {"exact": True}),
        ("rlw", "full", {}),
        ("rlw", "pair", {"exact": True}),
        ("dwa", "marginal", {"exact": True}),
        ("cagrad", "full", {"exact": True}),
    ],
)
def test_rows_equal_brute_force(solver, estimator, options):
    for parts in (1, 2):
        _compare_rows(solver, estimator, options, parts)


def _compare_rows(solver, estimator, options, parts):
    net = Net()
    opt = wrap(net, solver, estimator)
    probe = diagnostics.attach(opt, every=3, **options)
    pairs = draws(opt) if estimator == "pair" else None
    oracle = Oracle(net, opt, heads_weigh_one=opt.solver.family == "gradient", pairs=pairs)
    for t in range(STEPS):
        opt.zero_grad()
        for part in range(parts):
            opt.backward(net.losses(t, part, parts), preference(opt, t, 3))
        oracle.look([net.losses(t, part, parts) for part in range(parts)])
        opt.step()
        assert probe.measured == (t % 3 == 0)
        if not probe.measured:
            continue
        C = None if estimator is None else oracle.v_hat if estimator in ("collapsed", "marginal") else oracle.curvature
        wanted = oracle.row(
            adam=estimator is None or "exact" in options,
            preference=None if estimator is None else oracle.written,
            curvature=C,
        )
        assert probe.rows[-1]["step"] == t
        compare(probe.rows[-1], wanted)
    assert len(probe.rows) == 3
    if estimator == "pair":
        assert any(row["floored"] > 0 for row in probe.rows)


@pytest.mark.parametrize("options, known", [({}, False), ({"exact": True}, True)])
def test_an_optimizer_unlike_adam_has_no_second_moment_unless_it_is_asked_for(options, known):
    net = Net()
    opt = wrap(net, "uw", None, inner=sgd)
    probe = diagnostics.attach(opt, every=2, **options)
    oracle = Oracle(net, opt)
    for t in range(5):
        opt.zero_grad()
        opt.backward(net.losses(t))
        oracle.look(net.losses(t))
        opt.step()
        if probe.measured:
            compare(probe.rows[-1], oracle.row(adam=known))
    assert len(probe.rows) == 3
    assert probe.rows[-1]["bytes"]["probe"] == (8 * len(oracle.d) if known else 0)


@pytest.mark.parametrize("solver, estimator", [("uw", "full"), ("uw", "pair"), ("ls", "auto"), ("cagrad", "full")])
def test_a_shadow_is_the_metric_that_is_not_used(solver, estimator):
    """It is fed each step, measured or not, with the averages of the run as it is."""
    net = Net()
    opt = wrap(net, solver)
    shadow = PreferenceMetric(estimator, rampup=0, beta=0.9)
    probe = diagnostics.attach(opt, every=3, shadow=shadow)
    pairs = draws(MultiObjective(adam(net), metric=copy.deepcopy(shadow))) if estimator == "pair" else None
    oracle = Oracle(net, opt, heads_weigh_one=solver == "cagrad", pairs=pairs)
    curved = Oracle(net, opt, heads_weigh_one=solver == "cagrad", pairs=pairs, beta2=0.9)
    for t in range(STEPS):
        opt.zero_grad()
        opt.backward(net.losses(t))
        oracle.look(net.losses(t))
        curved.look(net.losses(t))
        opt.step()
        if probe.measured:
            C = curved.curvature
            floor = np.where(C == 0.0, 1.0, 0.1)  # no average yet
            M = np.sqrt(np.maximum(C, floor * curved.d**2) + 1e-16)
            wanted = oracle.row(preference=oracle.d / M, curvature=C)
            wanted["floored"] = np.mean(C[curved.d != 0] <= 0.1 * curved.d[curved.d != 0] ** 2)
            compare(probe.rows[-1], wanted)
    assert len(probe.rows) == 3
    assert shadow.steps == STEPS


def test_a_shadow_divides_an_extra_term_as_the_metric_would():
    """The floor matters then: d is not made of the objectives' gradients alone."""
    rows = []
    for used in (True, False):
        net = Net()
        metric = PreferenceMetric("full", rampup=0, beta=0.5)
        frozen = torch.optim.SGD(net.parameters(), lr=0.0)
        opt = MultiObjective(frozen, solvers.UW(), metric if used else None, head_weights="lambda")
        probe = diagnostics.attach(opt, every=1, shadow=None if used else metric)
        for t in range(4):
            opt.zero_grad()
            opt.backward(net.losses(t), extra=100.0 * sum(p.square().sum() for p in net.parameters()))
            opt.step()
        rows.append([row["effects"]["preference"] | {"floored": row["floored"]} for row in probe.rows])
    assert rows[0][-1]["floored"] > 0.5
    for a, b in zip(*rows, strict=True):
        compare(b, a, rtol=1e-9)


def test_a_direction_that_is_clipped_or_masked_is_taken_as_it_is():
    for solver, options in (("graddrop", {}), ("ls", {"max_norm": 0.05})):
        net = Net()
        opt = wrap(net, solver, **options)
        probe = diagnostics.attach(opt, every=1)
        oracle = Oracle(net, opt)
        for t in range(3):
            opt.zero_grad()
            opt.backward(net.losses(t))
            oracle.look(net.losses(t))
            opt.step()
            d = oracle.written
            row = probe.rows[-1]
            compare(row["effects"]["euclidean"], oracle.G @ d)
            compare(row["direction_norm"], np.linalg.norm(d))
            compare(row["norms"], np.linalg.norm(oracle.G, axis=1))


@pytest.mark.parametrize("form", [lambda x: 1.0 * torch.stack(x), torch.stack], ids=["opaque", "stacked"])
@pytest.mark.parametrize("solver, estimator", [("ls", None), ("cagrad", "full"), ("rlw", "pair")])
def test_losses_as_one_vector_give_the_same_row(form, solver, estimator):
    rows = []
    for given_as in (list, form):
        net = Net()
        opt = wrap(net, solver, estimator)
        probe = diagnostics.attach(opt, every=2)
        for t in range(3):
            opt.zero_grad()
            opt.backward(given_as(net.losses(t)))
            opt.step()
        rows.append([{k: v for k, v in row.items() if k not in ("seconds", "bytes")} for row in probe.rows])
    assert len(rows[0]) == 2
    for a, b in zip(*rows, strict=True):
        for key in ("norms", "effects", "alignments", "predicted", "floored", "condition", "cosines"):
            compare(b[key], a[key], rtol=1e-9)


def test_an_objective_that_the_batch_lacks_is_none():
    net = Net()
    opt = wrap(net, "uw", objectives=["a", "b", "c"])
    probe = diagnostics.attach(opt, every=1)
    a, _, c = net.losses(0)
    opt.backward({"a": a, "c": c})
    opt.step()
    row = probe.rows[0]
    for key in ("losses", "weights", "norms", "positive", "negative", "threshold", "predicted"):
        assert row[key]["b"] is None and row[key]["a"] is not None, key
    assert row["effects"]["adam"]["b"] is None and row["flips"]["realised"]["b"] is None
    assert row["cosines"][0][1] is None and row["cosines"][0][2] is not None
    assert row["conflict_rate"] in (0.0, 1.0)


def test_small_pieces_and_samples_add_up(monkeypatch):
    """The same row whatever the number of coordinates at a time; percentiles of a sample are near those of all."""

    def run():
        net = Net()
        opt = wrap(net, "uw", "full")
        probe = diagnostics.attach(opt, every=2, exact=True)
        for t in range(3):
            opt.zero_grad()
            opt.backward(net.losses(t))
            opt.step()
        return [{k: v for k, v in row.items() if k not in ("seconds", "bytes")} for row in probe.rows]

    whole = run()
    monkeypatch.setattr(_measure, "CHUNK", 5)
    for a, b in zip(whole, run(), strict=True):
        compare(b, a, rtol=1e-10)
    monkeypatch.setattr(_measure, "SAMPLE", 20)
    for a, b in zip(whole, run(), strict=True):
        assert b["condition"] == pytest.approx(a["condition"])
        assert 1 < b["spread"]["adam"] <= a["condition"]["adam"] * (1 + 1e-9)


@pytest.mark.filterwarnings("ignore:the weights of a static solver were changed")
@pytest.mark.parametrize("estimator", ["full", "pair", "diagonal", "marginal", "collapsed"])
def test_the_curvature_is_the_one_the_metric_divides_by(estimator):
    """Floor, eps and ramp-up on top of it give what the metric gives, also after a restart of its averages."""
    for options in (
        {},
        {"every": 3},
        {"normalise": True},
        {"bias_correction": False, "floor": False},
        {"rampup": 0, "ramp": "paper", "eps": 1e-4},
    ):
        _divide_by_the_curvature(estimator, options)


def _divide_by_the_curvature(estimator, options):
    net = Net()
    metric = PreferenceMetric(estimator, **{"rampup": 4, **options})
    opt = MultiObjective(adam(net), solvers.LS([1.0, 2.0, 3.0]), metric)
    seen = []
    for t in range(6):
        if t == 4 and estimator == "collapsed":
            opt.solver.coefficients = torch.tensor([3.0, 2.0, 1.0], dtype=torch.float64)
        opt.zero_grad()
        opt.backward(net.losses(t))
        assert opt.run.pending.measurement.restarts == (t == 4 and estimator == "collapsed")
        for x, beta in opt.run.pending.directions:
            C = metric.curvature(x, beta, opt.run.pending.measurement)
            floor = 0.0 if not metric.floor else 1.0 if C is None else 1 - beta
            seen.append(None if C is None else C.clone())
            given = {"eps": metric.eps, "alpha": metric.alpha, "ramp": metric.ramp}
            M = metric_of(x.d, C, x.block, floor=floor, **given)
            found = torch.cat([p.grad.reshape(-1) for p in x.block.params])
            torch.testing.assert_close(found, x.d / M, rtol=1e-12, atol=0)
        opt.step()
    assert any(C is not None and bool((C > 0).any()) for C in seen)


# Closed forms.


def tilted(start=(0.4, 0.9)):
    problem = TiltedQuadratics()
    point = problem.point(torch.tensor(start, dtype=torch.float64))
    x = np.array(start)
    A, c = problem.hessians.numpy(), problem.centres.numpy()
    g = np.stack([A[i] @ (x - c[i]) for i in range(2)])
    return problem, point, A, g


def take(problem, point, opt, weights):
    opt.zero_grad()
    opt.backward(list(problem.losses(point()).unbind()), preference=weights)
    opt.step()


def test_adams_first_step_on_the_tilted_quadratics():
    """Its second moment is d^2, so that M = |d|: the effect is g_i . sign(d)."""
    problem, point, _, g = tilted()
    opt = MultiObjective(torch.optim.Adam(point.parameters(), lr=0.1, eps=1e-30), solvers.Preference())
    probe = diagnostics.attach(opt)
    lam = np.array([0.3, 0.7])
    take(problem, point, opt, lam.tolist())
    row, d = probe.rows[0], lam @ g
    compare(row["effects"]["euclidean"], g @ d)
    compare(row["effects"]["adam"], g @ np.sign(d))
    compare(row["effects"]["realised"], 0.1 * g @ np.sign(d))
    compare(row["alignments"]["adam"], g @ np.sign(d) / np.linalg.norm(g, axis=1) / math.sqrt(2))
    compare(row["condition"]["adam"], np.abs(d).max() / np.abs(d).min())
    assert row["effects"]["preference"] is None and row["marginalisation"] is None and row["floored"] is None


def test_the_change_of_a_quadratic_is_predicted_up_to_its_curvature():
    """Along x - eta d the loss changes by -eta g.d + eta^2 d'Ad / 2, exactly."""
    problem, point, A, g = tilted()
    opt = MultiObjective(torch.optim.SGD(point.parameters(), lr=0.05), solvers.Preference())
    probe = diagnostics.attach(opt)
    take(problem, point, opt, [0.6, 0.4])
    probe.observe(problem.losses(point()).detach())
    d, row = 0.6 * g[0] + 0.4 * g[1], probe.rows[0]
    compare(row["predicted"], -0.05 * g @ d)
    compare(row["observed"], np.array([-0.05 * g[i] @ d + 0.05**2 * d @ A[i] @ d / 2 for i in range(2)]))
    assert row["effects"]["adam"] is None


def test_a_constant_preference_has_nothing_to_marginalise():
    """Proposition 1, at its trivial end: v_hat is the curvature itself. After a switch of preference it is not."""
    problem, point, _, _ = tilted()
    opt = MultiObjective(torch.optim.Adam(point.parameters(), lr=1e-3), solvers.Preference())
    probe = diagnostics.attach(opt, every=1, shadow=PreferenceMetric("full", rampup=0))
    for t in range(20):
        take(problem, point, opt, [0.9, 0.1] if t < 15 else [0.1, 0.9])
    apart = [row["marginalisation"]["log_distance"] for row in probe.rows]
    assert max(apart[:15]) < 1e-9
    assert min(apart[15:]) > 0.1


# The lemma.


def row_of(g, d, m):
    """The row of one objective with gradient g, direction d and the diagonal metric m."""
    g, d, m = (torch.as_tensor(x, dtype=torch.float64) for x in (g, d, m))
    sums = Sums(1, d.numel())
    sums.add(Piece((0,), (g[None],), d, torch.zeros_like(d), -d, {"adam": d / m}))
    one = torch.ones(1, dtype=torch.float64)
    return make_row(sums, ["a"], one, one, [0])


vectors = st.integers(2, 8).flatmap(
    lambda n: st.tuples(
        *[st.lists(st.integers(-8, 8).map(float), min_size=n, max_size=n)] * 2,
        st.lists(st.integers(-6, 6).map(lambda k: 2.0**k), min_size=n, max_size=n),
    )
)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(vectors)
def test_a_flip_implies_a_condition_number_above_the_threshold(case):
    """Integers and powers of two, so that nothing is rounded."""
    row = row_of(*case)
    if row["flips"]["adam"]["a"]:
        assert row["threshold"]["a"] is not None
        assert row["condition"]["adam"] >= row["threshold"]["a"]
    compare(row["effects"]["euclidean"]["a"], row["positive"]["a"] - row["negative"]["a"])


@pytest.mark.parametrize("factor, effect", [(0.5, 1), (1.0, 0), (2.0, -1)])
def test_the_extremal_metric_flips_exactly_at_the_threshold(factor, effect):
    g, d = [1.0, 3.0, -1.0, 0.0], [2.0, 2.0, 1.0, 5.0]  # P = 8, N = 1
    rho = 8.0 * factor
    row = row_of(g, d, [rho if gk * dk > 0 else 1.0 for gk, dk in zip(g, d, strict=True)])
    assert row["threshold"]["a"] == 8.0 and row["condition"]["adam"] == rho
    assert np.sign(row["effects"]["adam"]["a"]) == effect
    assert row["flips"]["adam"]["a"] == (effect < 0)


def test_no_metric_flips_an_objective_that_no_coordinate_is_against():
    row = row_of([1.0, 2.0], [1.0, 1.0], [1e-9, 1e9])
    assert row["negative"]["a"] == 0.0 and row["threshold"]["a"] is None
    assert row["flips"]["adam"]["a"] is False


def test_an_objective_that_the_direction_makes_worse_cannot_be_flipped():
    row = row_of([1.0, -2.0], [1.0, 1.0], [1.0, 9.0])
    assert row["effects"]["adam"]["a"] > 0 > row["effects"]["euclidean"]["a"]
    assert row["flips"]["adam"]["a"] is None


def test_a_run_that_flips():
    """Adam's metric on the tilted quadratics, where the paper draws it: flips are found, and as the lemma says."""
    problem = TiltedQuadratics(stiff=4.0, soft=0.05)
    point = problem.point(torch.tensor([1.2, 0.8], dtype=torch.float64))
    opt = MultiObjective(torch.optim.Adam(point.parameters(), lr=0.05), solvers.Preference())
    probe = diagnostics.attach(opt, every=1)
    for t in range(200):
        take(problem, point, opt, [0.9, 0.1] if t % 40 < 20 else [0.2, 0.8])
    flipped = [(r, n) for r in probe.rows for n in r["objectives"] if r["flips"]["adam"][n]]
    assert flipped
    for row, name in flipped:
        assert row["condition"]["adam"] >= row["threshold"][name] * (1 - 1e-9)


def test_the_rooms_are_timed_and_the_memory_is_counted():
    net = Net(dtype=torch.float32)
    opt = MAdam(net.parameters(), solver=solvers.UW(), metric=PreferenceMetric("full"))
    probe = diagnostics.attach(opt, every=1)
    for t in range(2):
        opt.zero_grad()
        opt.backward(net.losses(t))
        opt.step()
    row = probe.rows[-1]
    assert set(row["seconds"]) == {"gradients", "solver", "metric", "optimizer", "probe"}
    assert all(s > 0 for s in row["seconds"].values())
    size = len(flat(net.parameters()))
    trunk = len(flat(net.trunk.parameters()))
    assert row["bytes"]["averages"] == 4 * (6 * trunk + (size - trunk))
    assert row["bytes"]["optimizer"] >= 8 * size
    assert row["bytes"]["probe"] == 0
