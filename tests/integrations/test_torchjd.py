"""TorchJD's methods as solvers, and ours as theirs: the same direction, with state and generator saved."""

from __future__ import annotations

import copy
import doctest
import importlib
import io
import sys

import pytest
import torch

from madamoo import MultiObjective, PreferenceMetric, solvers
from madamoo.testing import check_solver

aggregation = pytest.importorskip("torchjd.aggregation")
bridge = importlib.import_module("madamoo.integrations.torchjd")
TorchJD = bridge.TorchJD

DETERMINISTIC = {
    "AlignedMTL": {},
    "CAGrad": {"c": 0.4},
    "DualProj": {},
    "FairGrad": {"alpha": 1.0},
    "IMTLG": {},
    "Krum": {"n_byzantine": 1, "n_selected": 2},
    "Mean": {},
    "MGDA": {},
    "Sum": {},
    "UPGrad": {},
}
RANDOM = {"PCGrad": {}, "GradVac": {}, "Random": {}}
STATEFUL = {"GradVac": {}, "PCD": {}}


def build(name, options):
    try:
        return getattr(aggregation, name)(**options)
    except ImportError as error:
        pytest.skip(str(error))


def stabilised():
    return aggregation.GramianWeightedAggregator(aggregation.CRMOGMWeighting(aggregation.UPGradWeighting()))


def jacobians(count, rows=5):
    for seed in range(count):
        generator = torch.Generator().manual_seed(seed)
        J = torch.randn(rows, 12, dtype=torch.float64, generator=generator)
        yield J * 10.0 ** torch.empty(rows, 1, dtype=torch.float64).uniform_(-1, 1, generator=generator)


def direction(solver, J):
    return solver.solve(torch.ones(len(J), dtype=J.dtype), J @ J.T) @ J


@pytest.mark.parametrize("name", DETERMINISTIC)
def test_direction_is_the_aggregators(name):
    solver, aggregator = TorchJD(build(name, DETERMINISTIC[name])), build(name, DETERMINISTIC[name])
    for J in jacobians(20):
        torch.testing.assert_close(direction(solver, J), aggregator(J), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", RANDOM)
def test_random_direction_is_the_aggregators_for_the_same_seed(name):
    solver, aggregator = TorchJD(build(name, RANDOM[name]), seed=3), build(name, RANDOM[name])
    found = [direction(solver, J) for J in jacobians(10)]
    torch.manual_seed(3)
    for d, J in zip(found, jacobians(10), strict=True):
        torch.testing.assert_close(d, aggregator(J), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("make", [*(lambda n=n: build(n, STATEFUL[n]) for n in STATEFUL), stabilised])
def test_stateful_direction_is_the_aggregators(make):
    solver, aggregator = TorchJD(make()), make()
    found = [direction(solver, J) for J in jacobians(10)]
    torch.manual_seed(0)
    for d, J in zip(found, jacobians(10), strict=True):
        torch.testing.assert_close(d, aggregator(J), rtol=1e-8, atol=1e-10)


def test_a_weighting_and_its_aggregator_are_the_same():
    K = next(jacobians(1)) @ next(jacobians(1)).T
    pairs = [(aggregation.UPGradWeighting(), aggregation.UPGrad()), (aggregation.MeanWeighting(), aggregation.Mean())]
    for weighting, aggregator in pairs:
        a, b = (TorchJD(x).weights(torch.ones(5), K) for x in (weighting, aggregator))
        assert torch.equal(a, b) and a.dtype == torch.float32
    constant = aggregation.Constant(torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0]))
    assert TorchJD(constant).weights(torch.ones(5), K).tolist() == [1, 2, 3, 4, 5]


def test_agrees_with_the_solvers_here():
    ours, theirs = solvers.MGDA(), TorchJD(aggregation.MGDA(epsilon=1e-12, max_iters=2000))
    for J in jacobians(3, rows=3):
        torch.testing.assert_close(direction(ours, J), direction(theirs, J), rtol=1e-2, atol=1e-3)


def test_the_comparison_rejects_another_method():
    solver, other = TorchJD(aggregation.MGDA()), aggregation.UPGrad()
    J = next(jacobians(1))
    assert not torch.allclose(direction(solver, J), other(J), rtol=1e-3)


@pytest.mark.parametrize("name", ["UPGrad", "Mean", "Random"])
def test_keeps_the_promises_of_solvers(name):
    check_solver(lambda: TorchJD(build(name, {})), claims=["loss_scale"])


@pytest.mark.parametrize("name", RANDOM)
def test_draws_leave_the_global_generator_alone(name):
    K = next(jacobians(1)) @ next(jacobians(1)).T
    before = torch.get_rng_state()
    a, b, c = (TorchJD(build(name, RANDOM[name]), seed=seed) for seed in (1, 1, 2))
    first = [[s.solve(torch.ones(5), K) for _ in range(4)] for s in (a, b, c)]
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(x, y) for x, y in zip(first[0], first[1], strict=True))
    assert any(not torch.equal(x, y) for x, y in zip(first[0], first[2], strict=True))


@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        ("GradDrop", {}, "without weights"),
        ("TrimmedMean", {"trim_number": 1}, "without weights"),
        ("ConFIG", {}, "without weights"),
        ("NashMTL", {"n_tasks": 3}, "from the Jacobian"),
        ("ExcessMTL", {}, "from the Jacobian"),
        ("ExcessMTLWeighting", {}, "from the Jacobian"),
        ("MoDoWeighting", {"gamma": 0.1}, "two independent batches"),
        ("SDMGradWeighting", {}, "two independent batches"),
    ],
)
def test_refuses_methods_that_need_more_than_the_gram_matrix(name, options, reason):
    method = build(name, options)
    with pytest.raises(ValueError, match=f"TorchJD's {name} cannot be a solver: .*{reason}"):
        TorchJD(method)


def test_refuses_what_takes_no_gram_matrix():
    with pytest.raises(ValueError, match="from the Jacobian"):
        TorchJD(aggregation.UPGradWeighting() << (lambda J: J @ J.T))
    with pytest.raises(ValueError, match="from the Jacobian"):
        TorchJD(aggregation.WeightedAggregator(aggregation.ExcessMTLWeighting()))
    with pytest.raises(ValueError, match="from the Jacobian"):
        TorchJD(aggregation.WeightedAggregator(aggregation.UPGradWeighting() << (lambda J: J @ J.T)))
    with pytest.raises(ValueError, match="two independent batches"):
        TorchJD(aggregation.CRMOGMWeighting(aggregation.SDMGradWeighting()))
    with pytest.raises(TypeError, match=r"did you mean UPGrad\(\)\?"):
        TorchJD(aggregation.UPGrad)
    with pytest.raises(TypeError, match="aggregator or a weighting"):
        TorchJD("upgrad")


def test_import_without_torchjd_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchjd", None)
    monkeypatch.delitem(sys.modules, "madamoo.integrations.torchjd")
    with pytest.raises(ImportError, match=r"pip install 'madamoo\[torchjd\]'"):
        importlib.import_module("madamoo.integrations.torchjd")


# -- in the optimizer --------------------------------------------------------------------------------------------------


class Quadratics(torch.nn.Module):
    """Convex quadratics on one shared vector, the two of the first and last objective far apart in size."""

    def __init__(self, count):
        super().__init__()
        generator = torch.Generator().manual_seed(count)
        root = torch.randn(count, 6, 6, dtype=torch.float64, generator=generator)
        self.A = root @ root.mT / 6 + torch.eye(6, dtype=torch.float64)
        self.c = torch.randn(count, 6, dtype=torch.float64, generator=generator)
        self.x = torch.nn.Parameter(torch.full((6,), 1.5, dtype=torch.float64))

    def losses(self):
        d = self.x - self.c
        return list((0.5 * (d.unsqueeze(1) @ self.A @ d.unsqueeze(2)).flatten()).unbind())

    def jacobian(self):
        return torch.stack([torch.autograd.grad(loss, self.x, retain_graph=True)[0] for loss in self.losses()])

    def stationarity(self):
        """The smallest norm in the hull of the gradients, over the largest gradient."""
        G = self.jacobian()
        w = solvers.MGDA().weights(torch.ones(len(G), dtype=G.dtype), G @ G.T)
        return float((w @ G).norm() / G.norm(dim=1).max())


def optimizer(model, method, metric=True, lr=0.05):
    adam = torch.optim.Adam(model.parameters(), lr=lr)
    return MultiObjective(adam, TorchJD(method), PreferenceMetric(rampup=0) if metric else None)


def train(model, opt, steps):
    for _ in range(steps):
        opt.zero_grad()
        opt.backward(model.losses())
        opt.step()
    return model.x.detach().clone()


@pytest.mark.parametrize("name, count, metric", [("UPGrad", 5, True), ("GradVac", 2, False)])
def test_ends_near_the_pareto_set(name, count, metric):
    model = Quadratics(count)
    opt = optimizer(model, build(name, {}), metric, lr=0.1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 200)
    for _ in range(200):
        train(model, opt, 1)
        schedule.step()
    assert model.stationarity() < 2e-2


def test_the_first_step_follows_the_aggregator():
    model = Quadratics(3)
    G = model.jacobian()
    opt = MultiObjective(torch.optim.SGD(model.parameters(), lr=1.0), TorchJD(aggregation.UPGrad()))
    opt.backward(model.losses())
    torch.testing.assert_close(model.x.grad, aggregation.UPGrad()(G), rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(opt.weights, aggregation.UPGradWeighting()(G @ G.T), rtol=1e-8, atol=1e-10)


METHODS = {
    "upgrad": lambda: aggregation.UPGrad(),
    "pcgrad": lambda: aggregation.PCGrad(),
    "gradvac": lambda: aggregation.GradVac(),
    "pcd": lambda: aggregation.PCD(),
    "stabilised": stabilised,
    "both": lambda: aggregation.CRMOGMWeighting(aggregation.GradVacWeighting()),
}


@pytest.mark.parametrize("make", METHODS.values(), ids=METHODS.keys())
def test_resumes_bit_for_bit(make):
    model = Quadratics(4)
    opt = optimizer(model, make())
    train(model, opt, 5)
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "opt": opt.state_dict()}, file)
    expected = train(model, opt, 5)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    other = Quadratics(4)
    other.load_state_dict(saved["model"])
    fresh = optimizer(other, make())
    fresh.load_state_dict(saved["opt"])
    assert torch.equal(train(other, fresh, 5), expected)
    # Into an object that has run already, and back to the beginning.
    start = optimizer(Quadratics(4), make()).state_dict()
    other.load_state_dict(Quadratics(4).state_dict())
    fresh.load_state_dict(start)
    again = Quadratics(4)
    assert torch.equal(train(other, fresh, 3), train(again, optimizer(again, make()), 3))


@pytest.mark.parametrize("make", METHODS.values(), ids=METHODS.keys())
def test_a_backward_without_a_step_leaves_no_trace(make):
    first, second = Quadratics(4), Quadratics(4)
    a, b = optimizer(first, make()), optimizer(second, make())
    for _ in range(4):
        b.backward(second.losses())
        b.zero_grad()
        train(first, a, 1)
        train(second, b, 1)
    assert torch.equal(first.x, second.x)
    twin, twin_opt = copy.deepcopy((first, a))
    assert torch.equal(train(twin, twin_opt, 3), train(first, a, 3))


def test_missing_objectives():
    model = Quadratics(4)
    opt = optimizer(model, aggregation.UPGrad())
    losses = model.losses()
    opt.backward([losses[0], None, losses[2], losses[3]])
    assert opt.weights[1] == 0 and bool((opt.weights[[0, 2, 3]] > 0).all())
    losses = model.losses()
    with pytest.raises(ValueError, match=r"GradVacWeighting keeps state .* 3 of 4"):
        optimizer(model, aggregation.GradVac()).backward([losses[0], None, losses[2], losses[3]])


# -- our solvers there -------------------------------------------------------------------------------------------------

OURS = ["alignedmtl", "cagrad", "dualproj", "gradvac", "imtlg", "ls", "mgda", "nashmtl", "pcgrad", "rotograd", "upgrad"]


@pytest.mark.parametrize("name", OURS)
def test_a_solver_is_an_aggregator(name):
    solver, aggregator, weighting = solvers.get(name), bridge.SolverAggregator(name), bridge.SolverWeighting(name)
    for J in jacobians(6):
        d = direction(solver, J)
        torch.testing.assert_close(aggregator(J), d, rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(weighting(J @ J.T) @ J, d, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", sorted(set(solvers.available()) - set(OURS)))
def test_a_solver_that_needs_more_is_refused(name):
    """At once; IMTL, whose state learns from the losses, when that state comes into play."""

    def act():
        aggregator = bridge.SolverAggregator(name)
        assert name == "imtl"
        for J in jacobians(2):
            aggregator(J)

    with pytest.raises(ValueError, match=f"{type(solvers.get(name)).__name__} cannot be a weighting of TorchJD: it "):
        act()


@pytest.mark.parametrize("solver, theirs", [("upgrad", "UPGrad"), ("dualproj", "DualProj"), ("imtlg", "IMTLG")])
def test_torchjds_loop_runs_with_ours_as_with_its_own(solver, theirs):
    """Its own aggregator is the oracle, and so is our optimizer; with their Jacobian, and with their Gramian."""
    autojac = importlib.import_module("torchjd.autojac")
    ends = []
    for aggregator in (bridge.SolverAggregator(solver), build(theirs, {})):
        for shortcut in (False, True):
            model = Quadratics(3)
            sgd = torch.optim.SGD(model.parameters(), lr=0.02)
            for _ in range(10):
                autojac.backward(model.losses())
                autojac.jac_to_grad(model.parameters(), aggregator, optimize_gramian_computation=shortcut)
                sgd.step()
                sgd.zero_grad()
            ends.append(model.x.detach())
    model = Quadratics(3)
    ends.append(train(model, MultiObjective(torch.optim.SGD(model.parameters(), lr=0.02), solver), 10))
    for end in ends[1:]:
        torch.testing.assert_close(end, ends[0], rtol=1e-7, atol=1e-9)
    assert not torch.allclose(ends[0], Quadratics(3).x)


@pytest.mark.parametrize("name", ["pcgrad", "gradvac", "rotograd"])
def test_state_of_a_weighting_is_saved_and_reset(name):
    grams = [J @ J.T for J in jacobians(6)]
    weighting, fresh = bridge.SolverWeighting(name), bridge.SolverWeighting(name)
    first = [weighting(K) for K in grams[:3]]
    fresh.load_state_dict(copy.deepcopy(weighting.state_dict()))
    expected = [weighting(K) for K in grams[3:]]
    assert all(torch.equal(fresh(K), w) for K, w in zip(grams[3:], expected, strict=True))
    weighting.reset()
    assert all(torch.equal(weighting(K), w) for K, w in zip(grams[:3], first, strict=True))
    assert any(not torch.equal(bridge.SolverWeighting(name)(K), w) for K, w in zip(grams[3:], expected, strict=True))


def test_what_is_no_solver_is_refused():
    with pytest.raises(TypeError, match=r"must be a madamoo\.solvers\.Solver or its name, got MGDA"):
        bridge.SolverWeighting(aggregation.MGDA())
    assert repr(bridge.SolverAggregator("cagrad:c=0.2")) == "SolverAggregator(CAGrad(c=0.2))"
    wrapped = TorchJD(bridge.SolverAggregator("mgda"))  # there and back
    J = next(jacobians(1))
    torch.testing.assert_close(direction(wrapped, J), direction(solvers.MGDA(), J))


def test_example():
    assert doctest.testmod(bridge).failed == 0
