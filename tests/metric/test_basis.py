"""The eigenbasis: a dense version with Kronecker products, SOAP, and what a rotation leaves alone as oracles."""

import copy
import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from helpers import Net, assert_leaves_no_trace, close_params, metric, same, same_params, train
from madamoo import MAdam, MultiObjective, PreferenceMetric, solvers
from madamoo.metric import EigenBasis

STATIC = {"collapsed"}


def matrices(steps, count, shape, seed=0):
    """Gradients [steps, count, *shape] whose directions turn, so that columns of the basis change places."""
    rng = np.random.default_rng(seed)
    sizes = np.exp(rng.normal(size=(steps, 1, shape[0], 1)) + rng.normal(size=(steps, 1, 1, shape[1])))
    return rng.normal(size=(steps, count, *shape)) * sizes


def feed(opt, param, rows, weights):
    """What the inner optimizer sees, [T, m, n]; the losses are linear, so that the gradients are the given rows."""
    seen = []
    for g, w in zip(torch.as_tensor(rows, dtype=param.dtype), weights, strict=True):
        opt.zero_grad()
        opt.backward([(g_i * param).sum() for g_i in g], preference=w)
        seen.append(param.grad.clone())
        opt.step()
    return torch.stack(seen)


class Dense:
    """The eigenbasis of one matrix by its definition: vectors of m n entries, and Q a Kronecker product."""

    def __init__(self, shape, every, beta):
        self.shape, self.every, self.beta = shape, every, beta
        self.L, self.R = np.zeros((shape[0],) * 2), np.zeros((shape[1],) * 2)
        self.QL = self.QR = None
        self.t = 0

    def start(self, D):
        if self.QL is None:
            self.QL, self.QR = np.linalg.eigh(D @ D.T)[1][:, ::-1], np.linalg.eigh(D.T @ D)[1][:, ::-1]

    @property
    def Q(self):
        return np.kron(self.QL, self.QR)

    def end(self, D):
        """Returns where each coordinate of the new basis was in the old one."""
        self.t += 1
        self.L = self.beta * self.L + (1 - self.beta) * D @ D.T
        self.R = self.beta * self.R + (1 - self.beta) * D.T @ D
        if self.t % self.every:
            return np.arange(D.size)
        self.QL, rows = self.power(self.L, self.QL)
        self.QR, columns = self.power(self.R, self.QR)
        return np.arange(D.size).reshape(self.shape)[rows][:, columns].ravel()

    @staticmethod
    def power(A, Q):
        order = np.argsort(-np.diag(Q.T @ A @ Q), kind="stable")
        return np.linalg.qr(A @ Q[:, order])[0], order


def by_definition(rows, weights, pairs, of_direction, every, beta, basis_beta, eps=1e-16, momentum=0.0):
    """d / M step by step, in float64; with momentum, m / M at the average of the weights."""
    dense, F, n = Dense(rows.shape[2:], every, basis_beta), {}, {}
    m, preference = 0.0, 0.0
    out = []
    for t, (G, w) in enumerate(zip(rows, weights, strict=True)):
        D = np.einsum("i,imn->mn", w, G)
        m, preference = momentum * m + (1 - momentum) * D, momentum * preference + (1 - momentum) * w
        age = 1 - momentum ** (t + 1)
        w = preference / age
        dense.start(D)
        if of_direction:
            G, w = D[None], [1.0]
        g = [dense.Q.T @ row.ravel() for row in G]
        d = dense.Q.T @ (m / age).ravel()
        for i, j in pairs(t, len(g)):
            F[i, j] = beta * F.get((i, j), 0.0) + (1 - beta) * g[i] * g[j]
            n[i, j] = n.get((i, j), 0) + 1
        C = sum((1 + (i != j)) * w[i] * w[j] * F[i, j] / (1 - beta ** n[i, j]) for i, j in F)
        C = np.maximum(C, (1 - beta) * d * d)
        M = np.sqrt(C + eps) if t else np.sqrt(C + eps).max()  # in its own basis, the first direction is only scaled
        out.append((dense.Q @ (d / M)).reshape(D.shape))
        order = dense.end(D)
        F = {pair: entry[order] for pair, entry in F.items()}
    return np.stack(out)


def all_pairs(_, count):
    return list(itertools.combinations_with_replacement(range(count), 2))


@pytest.mark.parametrize("momentum", [None, 0.7])
def test_against_its_definition(drawn, momentum):
    steps, count, shape, beta = 12, 3, (4, 3), 0.9
    rows = matrices(steps, count, shape)
    moving = np.random.default_rng(1).dirichlet(np.ones(count), steps)
    drawn_pairs = drawn(5, count, steps)
    for estimator in ("full", "diagonal", "pair", "collapsed", "marginal"):
        pairs = {
            "diagonal": lambda _, count: [(i, i) for i in range(count)],
            "pair": lambda t, _: sorted({(i, j) for i in drawn_pairs[t] for j in drawn_pairs[t] if i <= j}),
        }.get(estimator, all_pairs)
        weights = np.full_like(moving, 1 / count) if estimator in STATIC else moving
        solver = solvers.LS() if estimator in STATIC else solvers.Preference()
        param = nn.Parameter(torch.zeros(shape, dtype=torch.float64))
        chosen = PreferenceMetric(
            estimator, beta=beta, rampup=0, seed=5, basis=EigenBasis(every=3, beta=0.8), momentum=momentum
        )
        opt = MultiObjective(torch.optim.SGD([param], lr=0.0), solver, chosen, rows="all")
        given = [None] * steps if estimator in STATIC else list(torch.tensor(weights))
        found = feed(opt, param, rows, given)
        of_direction = estimator in ("collapsed", "marginal")
        wanted = by_definition(rows, weights, pairs, of_direction, 3, beta, 0.8, momentum=momentum or 0.0)
        torch.testing.assert_close(found, torch.tensor(wanted), rtol=1e-6, atol=1e-7, msg=estimator)


def soap(param, gradients, lr, betas, basis_beta, every, eps):
    """SOAP (Vyas et al., 2024) on one matrix; the first gradient, of its own basis, is only scaled."""
    dense, m, v = Dense(param.shape, every, basis_beta), 0.0, 0.0
    beta1, beta2 = betas
    for t, G in enumerate(gradients, start=1):
        dense.start(G)
        g = dense.QL.T @ G @ dense.QR
        m, v = beta1 * m + (1 - beta1) * G, beta2 * v + (1 - beta2) * g * g
        M = np.sqrt(v / (1 - beta2**t) + eps)
        turned = dense.QL.T @ m @ dense.QR / (1 - beta1**t)
        param = param - lr * dense.QL @ (turned / (M if t > 1 else M.max())) @ dense.QR.T
        v = v.ravel()[dense.end(G)].reshape(v.shape)
    return param


@pytest.mark.parametrize("momentum", [None, 0.8])
def test_constant_weights_are_soap(momentum):
    shape, rows = (5, 4), matrices(15, 2, (5, 4), seed=3)
    param = nn.Parameter(torch.ones(shape, dtype=torch.float64))
    chosen = PreferenceMetric(beta=0.9, eps=1e-12, rampup=0, basis=EigenBasis(every=4, beta=0.9), momentum=momentum)
    opt = MultiObjective(torch.optim.SGD([param], lr=0.1), solvers.LS(), chosen)
    feed(opt, param, rows, [None] * 15)
    wanted = soap(np.ones(shape), rows.mean(1), 0.1, (momentum or 0.0, 0.9), 0.9, 4, 1e-12)
    torch.testing.assert_close(param.detach(), torch.tensor(wanted), rtol=1e-6, atol=1e-7)


def test_marginal_is_soap_whatever_the_weights_do():
    shape, rows = (5, 4), matrices(15, 2, (5, 4), seed=4)
    weights = np.random.default_rng(5).dirichlet(np.ones(2), 15)
    param = nn.Parameter(torch.ones(shape, dtype=torch.float64))
    basis = EigenBasis(every=4, beta=0.9)
    chosen = PreferenceMetric("marginal", beta=0.9, eps=1e-12, basis=basis, momentum=0.8)
    opt = MultiObjective(torch.optim.SGD([param], lr=0.1), solvers.Preference(), chosen)
    feed(opt, param, rows, torch.tensor(weights))
    d = np.einsum("ti,timn->tmn", weights, rows)
    wanted = soap(np.ones(shape), d, 0.1, (0.8, 0.9), 0.9, 4, 1e-12)
    torch.testing.assert_close(param.detach(), torch.tensor(wanted), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("solver", ["ls", "uw", "mgda"])
def test_rotated_inputs_and_first_layer_train_alike(solver):
    """The same network seen from a rotated input space takes the same steps; with a diagonal metric it does not."""

    def ends(basis, U):
        net = Net()
        with torch.no_grad():
            net.trunk[0].weight.copy_(net.trunk[0].weight @ U.T)
        inner = torch.optim.SGD(net.parameters(), lr=1e-2, momentum=0.9)
        opt = MultiObjective(
            inner, solvers.get(solver), PreferenceMetric(rampup=0, basis=basis), shared=net.trunk.parameters()
        )
        for t in range(20):
            generator = torch.Generator().manual_seed(t)
            x = torch.randn(16, 4, generator=generator, dtype=torch.float64)
            y = torch.randn(16, 3, generator=generator, dtype=torch.float64)
            opt.zero_grad()
            opt.backward([(out - y[:, i]).square().mean() for i, out in enumerate(net(x @ U.T))])
            opt.step()
        return net.trunk[0].weight.detach() @ U

    U = torch.linalg.qr(torch.randn(4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))).Q
    one = torch.eye(4, dtype=torch.float64)
    eigen = EigenBasis(every=8)  # by then the factors have full rank
    torch.testing.assert_close(ends(eigen, U), ends(eigen, one), rtol=1e-7, atol=1e-9)
    assert not torch.allclose(ends("identity", U), ends("identity", one), rtol=1e-3)


@pytest.mark.parametrize("estimator", ["full", "pair", "diagonal", "separable", "marginal"])
def test_measured_now_and_then_it_starts_no_faster(estimator):
    """The first direction is diagonal in the basis it makes: by its averages alone, the rest is divided by zero."""
    rng = np.random.default_rng(0)
    rows, weights = rng.normal(size=(60, 3, 12, 10)), rng.dirichlet(np.ones(3), size=60)
    largest = {}
    for every in (1, 8):
        param = nn.Parameter(torch.zeros(12, 10, dtype=torch.float64))
        options = {"basis": "eigen", "momentum": 0.9, "every": every}
        opt = MultiObjective(torch.optim.SGD([param], 1e-3), "preference", PreferenceMetric(estimator, **options))
        largest[every] = float(feed(opt, param, rows, weights).square().mean((1, 2)).sqrt().max())
    assert largest[8] < 1.5 * largest[1]


def test_identity_is_the_default():
    a, b = Net(), Net()
    train(a, MAdam(a.parameters(), solver="uw", metric=PreferenceMetric(basis="identity")), 5)
    train(b, MAdam(b.parameters(), solver="uw", metric=PreferenceMetric()), 5)
    assert same_params(a, b)


@pytest.mark.parametrize(
    ("shape", "options", "turned"),
    [
        ((4, 3), {}, (True, True)),
        ((4, 3), {"longest": 3}, (False, True)),
        ((4, 3), {"longest": 2}, (False, False)),
        ((4, 3), {"sides": "shorter"}, (False, True)),
        ((3, 4), {"sides": "shorter"}, (True, False)),
        ((3, 3), {"sides": "shorter"}, (False, True)),
        ((1, 3), {}, (False, True)),
        ((1, 3), {"sides": "shorter"}, (False, False)),
        ((40, 2), {}, (True, True)),
        ((129, 8), {}, (True, True)),
        ((1, 1025), {}, (False, False)),
        ((2, 1025), {}, (True, False)),
        ((2, 1025), {"sides": "shorter"}, (True, False)),
        ((4, 2, 3, 3), {"longest": 17}, (True, False)),
        ((7,), {}, (False, False)),
        ((), {}, (False, False)),
    ],
)
def test_which_sides_are_rotated(shape, options, turned):
    assert EigenBasis(**options).turned(shape) == turned
    param = nn.Parameter(torch.randn(shape))
    chosen = PreferenceMetric(basis=EigenBasis(**options))
    opt = MAdam([param], solver="rlw", metric=chosen)
    for _ in range(3):
        opt.backward([(param * torch.randn(shape)).sum(), (param * torch.randn(shape)).sum()])
        opt.step()
    saved = opt.state_dict()["multi_objective"]["metric"]["bases"]
    assert {key.split("_")[0] for key in saved.get(0, {}).keys() - {"step"}} == {
        n for n, t in zip(("left", "right"), turned, strict=True) if t
    }


def test_bytes_are_known_beforehand():
    for estimator in ("full", "separable", "marginal"):
        net = Net(dtype=torch.float32)
        chosen = PreferenceMetric(estimator, basis="eigen")
        said = chosen.state_bytes(net.trunk, 3, net.heads)
        opt = MAdam(net.parameters(), solver="uw", metric=chosen)
        train(net, opt, 2)
        held = sum(t.numel() * t.element_size() for a in chosen.averages for t in a.tensors())
        bases = opt.state_dict()["multi_objective"]["metric"]["bases"]
        held += sum(t.nbytes for entry in bases.values() for key, t in entry.items() if key != "step")
        assert said == held


def test_heads_of_objectives_that_take_turns_are_refreshed():
    """Each head is reached in every second step: in those that are due, the first one never is."""
    net, moved = Net(count=2), set()
    opt = MultiObjective(torch.optim.SGD(net.parameters(), 1e-2), "uw", PreferenceMetric("full", **OPTIONS))
    before = {}
    for t in range(8):
        losses = net.losses(t)
        opt.zero_grad()
        opt.backward([losses[0], None] if t % 2 == 0 else [None, losses[1]])
        opt.step()
        bases = opt.state_dict()["multi_objective"]["metric"]["bases"]
        moved |= {i for i in bases.keys() & before.keys() if not torch.equal(bases[i]["right_Q"], before[i]["right_Q"])}
        before = bases
        other = copy.deepcopy(opt)
        other.load_state_dict(opt.state_dict())
        assert same(other.state_dict(), opt.state_dict())
    assert moved == {0, 2, 4}


OPTIONS = {"basis": EigenBasis(every=2), "rampup": 3}


@pytest.mark.parametrize("estimator", ["full", "pair", "diagonal", "separable", "collapsed", "marginal"])
def test_resumes_bit_for_bit_and_leaves_no_trace(estimator):
    solver = "ls" if estimator in STATIC else "uw"
    for extra in ({}, {"dtype": "bfloat16"}, {"dtype": "float8_e5m2"}, {"every": 3}, {"normalise": True}):
        net = Net(dtype=torch.float32)
        chosen = {**OPTIONS, **extra}
        opt = MAdam(net.parameters(), lr=1e-2, solver=solver, metric=PreferenceMetric(estimator, **chosen))
        train(net, opt, 5)
        other = copy.deepcopy(net)
        again = MAdam(other.parameters(), lr=1e-2, solver=solver, metric=PreferenceMetric(estimator, **chosen))
        again.load_state_dict(copy.deepcopy(opt.state_dict()))
        assert_leaves_no_trace(net, opt)
        train(net, opt, 4, start=5)
        train(other, again, 4, start=5)
        assert same_params(net, other), (estimator, extra)
        assert all(bool(p.isfinite().all()) for p in net.parameters())


@pytest.mark.parametrize("momentum", [None, 0.9])
def test_a_run_goes_on_in_another_precision(momentum):
    ends = []
    for first in (torch.float32, torch.float64):
        net, after = Net(dtype=first), Net(dtype=torch.float64)
        opts = [
            MultiObjective(torch.optim.SGD(n.parameters(), 1e-2), "uw", metric("full", **OPTIONS, momentum=momentum))
            for n in (net, after)
        ]
        train(net, opts[0], 4)
        after.load_state_dict(net.state_dict())
        opts[1].load_state_dict(opts[0].state_dict())
        train(after, opts[1], 3, start=4)
        state = opts[1].state_dict()["multi_objective"]["metric"]
        kept = [t for part in ("bases", "momentum") for entry in state.get(part, {}).values() for t in entry.values()]
        assert {t.dtype for t in kept if isinstance(t, torch.Tensor)} == {torch.float64}
        ends.append(after)
    close_params(*ends, rtol=0.0, atol=2e-3)


def test_accumulation_is_one_batch():
    one, two = Net(), Net()
    for net, parts in ((one, 1), (two, 2)):
        opt = MAdam(net.parameters(), lr=1e-2, solver="mgda", metric=metric("full", basis=EigenBasis(every=2)))
        train(net, opt, 6, parts=parts)
    close_params(one, two, rtol=1e-7, atol=1e-9)


def test_a_matrix_without_entries_has_no_basis():
    chosen, empty = PreferenceMetric(basis="eigen"), torch.nn.Parameter(torch.zeros(0, 3))
    assert EigenBasis().turned(empty.shape) == (False, False) and chosen.state_bytes([empty], 2) == 0


def test_checkpoints_that_do_not_fit_are_refused():
    def built(basis):
        net = Net()
        return net, MAdam(net.parameters(), solver="uw", metric=PreferenceMetric(basis=basis))

    net, opt = built("eigen")
    train(net, opt, 2)
    for basis in ("identity", EigenBasis(every=3), EigenBasis(beta=0.5)):
        with pytest.raises(ValueError, match="basis"):
            built(basis)[1].load_state_dict(opt.state_dict())
    for damage in ({"left_Q": torch.eye(2)}, {"right_average": None}):
        state = copy.deepcopy(opt.state_dict())
        state["multi_objective"]["metric"]["bases"][0].update(damage)
        with pytest.raises(ValueError, match="basis of parameter 0"):
            built("eigen")[1].load_state_dict(state)


def test_what_is_not_given_follows_the_basis():
    """Its memory, and no ramp-up; what is given stays."""
    plain, turned = PreferenceMetric(), PreferenceMetric(basis=EigenBasis(beta=0.8))
    assert (plain.beta, plain.rampup) == (None, 300) and (turned.beta, turned.rampup) == (0.8, 0)
    given = PreferenceMetric(beta=0.99, rampup=7, basis="eigen")
    assert (given.beta, given.rampup) == (0.99, 7)


def test_weights_per_coordinate_keep_the_parameters_own_basis():
    ends = []
    for basis in ("identity", "eigen"):
        param = nn.Parameter(torch.ones(4, 3))
        opt = MAdam([param], solver="graddrop", metric=PreferenceMetric("full", beta=0.9, rampup=0, basis=basis))
        feed(opt, param, matrices(5, 2, (4, 3)), [None] * 5)
        ends.append(param.detach())
    assert torch.equal(*ends)


@pytest.mark.parametrize("estimator", ["full", "marginal"])
def test_matrices_in_one_block_are_rotated_as_if_alone(estimator):
    """Also where the columns of both change places in one step."""
    given = [matrices(12, 2, shape, seed) for seed, shape in enumerate([(4, 3), (3, 5)])]
    weights = torch.tensor(np.random.default_rng(2).dirichlet(np.ones(2), 12))
    found = []
    for together in (True, False):
        params = [nn.Parameter(torch.zeros(rows.shape[2:], dtype=torch.float64)) for rows in given]
        seen = [[] for _ in params]
        for chosen in [(0, 1)] if together else [(0,), (1,)]:
            own = PreferenceMetric(estimator, basis=EigenBasis(every=3, beta=0.8), momentum=0.7)
            opt = MultiObjective(torch.optim.SGD([params[k] for k in chosen], lr=0.0), "preference", own)
            for t, w in enumerate(weights):
                opt.zero_grad()
                each = [[(torch.tensor(given[k][t, i]) * params[k]).sum() for k in chosen] for i in range(2)]
                opt.backward([sum(terms) for terms in each], preference=w)
                for k in chosen:
                    seen[k].append(params[k].grad.clone())
                opt.step()
            assert len([*own.averages]) == 1
        found.append([torch.stack(each) for each in seen])
    torch.testing.assert_close(*found, rtol=1e-7, atol=1e-9)


def test_gradients_that_cancel_make_a_basis():
    """Their averages are of its coordinates: they cannot be those of another one that comes later."""
    param = nn.Parameter(torch.ones(3, 2, dtype=torch.float64))
    opt = MultiObjective(torch.optim.SGD([param], lr=0.0), "preference", PreferenceMetric("full", basis="eigen"))
    opt.backward([param.sum(), -param.sum()], preference=[0.5, 0.5])
    opt.step()
    assert 0 in opt.state_dict()["multi_objective"]["metric"]["bases"]


def test_a_parameter_without_gradient_has_no_basis_yet():
    """As the first factor of a low-rank adapter whose second is zero."""
    param = nn.Parameter(torch.zeros(3, 2, dtype=torch.float64))
    opt = MAdam([param], solver="rlw", metric=PreferenceMetric(basis="eigen"))
    for scale, known in ((0.0, False), (1.0, True)):
        opt.backward([(scale * param * torch.randn(3, 2)).sum() for _ in range(2)])
        opt.step()
        assert (0 in opt.state_dict()["multi_objective"]["metric"]["bases"]) is known


def test_separable_averages_scale_the_tensors_curvature(feed_separable):
    """C = (lambda' S lambda / T) v, with S and T over the whole tensor and v in the basis, against its definition."""
    rows, weights, found = feed_separable
    steps, count, beta = len(rows), rows.shape[1], 0.9
    dense, v, S, T = Dense(rows.shape[2:], 3, 0.8), 0.0, np.zeros((count, count)), 0.0
    for t, (G, w) in enumerate(zip(rows, weights, strict=True)):
        D = np.einsum("i,imn->mn", w, G)
        dense.start(D)
        d = dense.Q.T @ D.ravel()
        v = beta * v + (1 - beta) * d * d
        S = beta * S + (1 - beta) * np.einsum("imn,jmn->ij", G, G)
        T = beta * T + (1 - beta) * (D * D).sum()
        C = np.maximum(w @ S @ w / (1 - beta ** (t + 1)) / T * v, (1 - beta) * d * d)
        M = np.sqrt(C + 1e-16) if t else np.sqrt(C + 1e-16).max()
        wanted = (dense.Q @ (d / M)).reshape(D.shape)
        torch.testing.assert_close(found[t], torch.tensor(wanted), rtol=1e-6, atol=1e-7)
        v = v[dense.end(D)]
    assert steps > dense.every


@pytest.fixture
def feed_separable():
    rows, weights = matrices(12, 3, (4, 3)), np.random.default_rng(1).dirichlet(np.ones(3), 12)
    param = nn.Parameter(torch.zeros(4, 3, dtype=torch.float64))
    chosen = PreferenceMetric("separable", beta=0.9, rampup=0, basis=EigenBasis(every=3, beta=0.8))
    opt = MultiObjective(torch.optim.SGD([param], lr=0.0), solvers.Preference(), chosen)
    return rows, weights, feed(opt, param, rows, list(torch.tensor(weights)))


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    exponents=st.lists(st.integers(-30, 17), min_size=4, max_size=8),
    estimator=st.sampled_from(["full", "pair", "separable", "marginal"]),
    seed=st.integers(0, 99),
)
def test_whatever_the_size_of_gradients_the_basis_is_orthonormal(exponents, estimator, seed):
    generator = torch.Generator().manual_seed(seed)
    param = nn.Parameter(torch.ones(4, 6))
    chosen = PreferenceMetric(estimator, rampup=0, basis=EigenBasis(every=2))
    opt = MAdam([param], solver="rlw", metric=chosen)
    bound = (24 / (1 - 0.999)) ** 0.5
    for exponent in exponents:
        rows = torch.randn(2, 4, 6, generator=generator) * 10.0**exponent
        opt.zero_grad()
        opt.backward([(g * param).sum() for g in rows])
        assert param.grad.norm() <= bound * (1 + 1e-4)
        opt.step()
    assert bool(param.isfinite().all()) and opt.skipped == 0
    for entry in opt.state_dict()["multi_objective"]["metric"]["bases"].values():
        for key in ("left_Q", "right_Q"):
            Q = entry[key]
            torch.testing.assert_close(Q.T @ Q, torch.eye(len(Q)), rtol=0, atol=1e-5)
            assert bool(entry[key.replace("Q", "average")].isfinite().all())


@pytest.mark.parametrize(
    "options",
    [
        {"every": 0},
        {"every": 1.5},
        {"every": True},
        {"beta": 1.0},
        {"beta": -0.1},
        {"beta": "0.9"},
        {"longest": 0},
        {"sides": "left"},
    ],
)
def test_wrong_options(options):
    with pytest.raises(ValueError, match=f"^{next(iter(options))} must be"):
        EigenBasis(**options)


def test_wrong_basis():
    with pytest.raises(ValueError, match="basis must be"):
        PreferenceMetric(basis="svd")
