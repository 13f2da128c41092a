"""Which averages are kept and updated, and of which gradients: in the words of the paper, and by counting."""

from collections import Counter

import pytest
import torch

from madamoo import MAdam, PreferenceMetric, solvers
from madamoo.direction import combine
from madamoo.gradients import Block, HeadRows, SharedRows
from madamoo.metric import ESTIMATORS, Estimator
from madamoo.metric._estimators import MOST_IN_FULL, choose
from madamoo.metric._pairwise import PairAverages
from madamoo.metric._separable import SeparableAverages

EVERY = [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2)]


def test_the_pairs_of_a_step():
    for drawn, wanted in [(None, EVERY), ((0, 2), [(0, 0), (0, 2), (2, 2)]), ((1, 1), [(1, 1)])]:
        assert ESTIMATORS["pair"]().pairs([0, 1, 2], drawn) == wanted
    assert ESTIMATORS["pair"]().pairs([1, 2], (0, 2)) == [(2, 2)]  # the other one is missing
    for name in ("full", "separable"):
        assert ESTIMATORS[name]().pairs([2, 0, 1], None) == EVERY
    assert ESTIMATORS["diagonal"]().pairs([0, 2], None) == [(0, 0), (2, 2)]
    assert [ESTIMATORS[name]().pairs([0], None) for name in ("collapsed", "marginal")] == [[(0, 0)]] * 2


def test_the_rows_that_a_step_needs():
    for name, estimator in ESTIMATORS.items():
        needed = estimator().needed((0, 2, 3), None)
        assert needed == ((0, 2, 3) if name in ("full", "diagonal", "separable") else ())
        assert estimator.of_direction == (name in ("collapsed", "marginal"))
        kind = SeparableAverages if name == "separable" else PairAverages
        assert type(estimator().empty(Block((torch.empty(2),), (1,)), None)) is kind
        assert estimator.heads_together == (name != "pair")
    pair = ESTIMATORS["pair"]()
    assert pair.needed((0, 2, 3), (0, 2)) == (0, 2) and pair.needed((0, 2, 3), (1, 2)) == (2,)
    assert pair.needed((0, 2, 3), (3, 3)) == (3,)


def test_what_a_direction_looks_like_to_them():
    block = Block((torch.empty(2), torch.empty(1)), (2, 0))
    x = combine(HeadRows(block, torch.tensor([[1.0, 2.0, 3.0]])), [0.5, 0.0, 2.0], torch.float32)
    full, marginal, pair = (ESTIMATORS[name]() for name in ("full", "marginal", "pair"))
    assert full.sees(x) is x and full.labels(x, None) == [None]
    d = marginal.sees(x)
    assert d.weights == (1.0,) and d.objectives == (0,) and d.rows.tolist() == [x.d.tolist()] and d.complete
    assert marginal.labels(d, None) == [(0, 0)] and not d.owners and d.block is block
    assert marginal.empty(block, None).owners == () and full.empty(block, None).owners == (2, 0)
    none = combine(HeadRows(block, torch.empty(0, 3), torch.ones(3)), [0.5, 0.0, 2.0], torch.float32)
    assert full.labels(none, None) == []
    alone = combine(HeadRows(Block((torch.empty(2),), (2,)), torch.ones(1, 2)), [1.0] * 3, torch.float32)
    assert pair.labels(alone, (0, 2)) == [None] and pair.labels(alone, (0, 1)) == []
    shared = combine(SharedRows(Block((torch.empty(2),)), (0, 2), torch.ones(2, 2)), [1.0] * 3, torch.float32)
    assert pair.labels(shared, (1, 2)) == [(2, 2)]


def test_pairs_are_uniform():
    """An off-diagonal entry is updated 2/C^2 of the time, a diagonal one (2C - 1)/C^2."""
    count, steps, estimator = 3, 2000, ESTIMATORS["pair"]()
    generator, updates = torch.Generator().manual_seed(0), Counter()
    for _ in range(steps):
        updates.update(estimator.pairs(range(count), estimator.draw(count, generator)))
    assert sorted(updates) == EVERY
    for (i, j), n in updates.items():
        p = (2 * count - 1) / count**2 if i == j else 2 / count**2
        assert abs(n - steps * p) < 4 * (steps * p * (1 - p)) ** 0.5
    assert ESTIMATORS["full"]().draw(3, generator) is None


AUTO = [
    (solvers.LS, 2, "collapsed"),
    (solvers.LS, 12, "collapsed"),
    (solvers.CAGrad, MOST_IN_FULL, "full"),
    (solvers.MGDA, MOST_IN_FULL + 1, "separable"),
]


@pytest.mark.parametrize("solver, count, chosen", AUTO)
def test_auto(solver, count, chosen):
    turned = choose(static=solver().static, count=count, turned=True).name
    assert choose(static=solver().static, count=count, turned=False).name == chosen and MOST_IN_FULL == 8
    assert turned == ("collapsed" if chosen == "collapsed" else "separable")
    rows = torch.randn(4, count, 5, generator=torch.Generator().manual_seed(0))
    found = []
    normalise = ESTIMATORS[chosen].every_row  # the size of a gradient is then that of this step
    for metric in (PreferenceMetric(rampup=0), PreferenceMetric(chosen, rampup=0, normalise=normalise)):
        param = torch.nn.Parameter(torch.zeros(5))
        opt = MAdam([param], solver=solver(), metric=metric)
        assert opt.metric.used is None
        for g in rows:
            opt.backward([g_i @ param for g_i in g])
            opt.step()
        found.append(param.grad)
        assert opt.state_dict()["multi_objective"]["metric"]["estimator"] == opt.metric.used == chosen
    assert torch.equal(*found)


def test_collapsed_refuses_weights_that_change():
    param = torch.nn.Parameter(torch.zeros(5))
    for solver in ("rlw", "uw", "dwa", "mgda", "cagrad", "preference"):
        with pytest.raises(ValueError, match=r"collapsed.*constant weights"):
            MAdam([param], solver=solvers.get(solver), metric=PreferenceMetric("collapsed"))
    for name, estimator in ESTIMATORS.items():
        estimator().check_solver(static=True)
        if name != "collapsed":
            estimator().check_solver(static=False)


class Neighbours(Estimator):
    """Squares, and the products of neighbours: what a user may add from outside."""

    name = "neighbours"
    every_row = True

    def pairs(self, objectives, drawn):
        return [(i, j) for i in objectives for j in objectives if 0 <= j - i <= 1]


def test_one_of_your_own(feed, brute_force, close):
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(20, 4, 5, generator=generator, dtype=torch.float64)
    weights = torch.rand(20, 4, generator=generator, dtype=torch.float64)
    param = torch.nn.Parameter(torch.zeros(5, dtype=torch.float64))

    def build():
        metric = PreferenceMetric(Neighbours(), beta=0.9, rampup=0)
        return MAdam([param], solver=solvers.Preference(), metric=metric)

    opt = build()
    found = feed(opt, param, rows[:10], weights[:10])
    state = opt.state_dict()
    opt = build()
    opt.load_state_dict(state)
    found = torch.cat([found, feed(opt, param, rows[10:], weights[10:])])
    near = [(i, j) for i in range(4) for j in range(4) if abs(i - j) <= 1]
    close(found, brute_force(rows, weights, lambda t: near, beta=0.9))
    assert opt.metric.used == "neighbours" and repr(opt.metric).startswith("PreferenceMetric(estimator='neighbours'")
    other = MAdam([param], solver=solvers.Preference(), metric=PreferenceMetric("full", beta=0.9, rampup=0))
    with pytest.raises(ValueError, match="neighbours"):
        other.load_state_dict(state)
    assert opt.metric.state_bytes([param], 4) == 7 * 5 * 8
