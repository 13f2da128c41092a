"""Separable averages: exact where their model holds, and elsewhere what a slow version with loops says."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from madamoo import MAdam, MultiObjective, PreferenceMetric, solvers
from madamoo.metric import _preference
from madamoo.metric._separable import SHARE, Groups

SIZE, COUNT = 60, 3  # a vector of two groups of 30: 4 coordinates for each of 6 pairs, evened out
HALVES = (slice(0, 30), slice(30, 60))


def start(dtype=torch.float64):
    return torch.nn.Parameter(torch.linspace(-1.0, 1.0, SIZE, dtype=dtype))


def build(params, estimator, solver=None, **options):
    metric = PreferenceMetric(estimator, **{"rampup": 0, "beta": 0.9, **options})
    params = [params] if isinstance(params, torch.Tensor) else params
    return MAdam(params, lr=1e-2, solver=solver or solvers.Preference(), metric=metric)


def draw(steps, seed=0, separable=False):
    """Rows [steps, C, SIZE] and preferences; with ``separable``, F_ij = S_ij u in each half, with its own S."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(steps, COUNT, SIZE)) * np.exp(rng.normal(size=(COUNT, SIZE))) + rng.normal(size=SIZE)
    if separable:
        u = np.exp(rng.normal(size=SIZE))
        mixed = rng.normal(size=(2, COUNT, COUNT)) @ rng.normal(size=(steps, 2, COUNT, 1))
        rows = np.repeat(mixed[..., 0].transpose(0, 2, 1), 30, axis=2) * u
    return rows, rng.dirichlet(np.ones(COUNT), steps)


def lacking(rows, seed=1):
    """The same with objectives missing from batches, never all of them."""
    rng = np.random.default_rng(seed)
    rows = rows.copy()
    rows[(rng.random(rows.shape[:2]) < 0.4) & (np.arange(COUNT) != rng.integers(COUNT, size=(len(rows), 1)))] = np.nan
    return rows


class Slow:
    """The model in words: each half has a Gram matrix S, and in each half v is the average of d^2."""

    def __init__(self, beta=0.9, bias_correction=True, floor=True, normalise=False, every=1):
        self.beta, self.decay, self.every = beta, beta**every, every
        self.bias_correction, self.floor, self.normalise = bias_correction, floor, normalise
        self.S, self.n = np.zeros((2, COUNT, COUNT)), np.zeros((COUNT, COUNT))
        self.v, self.norm, self.t = np.zeros(SIZE), np.zeros(COUNT), 0

    def step(self, rows, weights, mask=None):
        present = [i for i in range(COUNT) if not np.isnan(rows[i]).any()]
        d = sum(weights[i] * (1.0 if mask is None else mask[i]) * rows[i] for i in present)
        if self.t % self.every == 0:
            for i in present:
                self.norm[i] = np.linalg.norm(rows[i])
            self.take({i: rows[i] / (self.norm[i] if self.normalise else 1.0) for i in present})
        self.v = self.beta * self.v + (1 - self.beta) * d**2
        self.t += 1
        C = np.zeros(SIZE)
        for half, S in zip(HALVES, self.S, strict=True):
            total = self.v[half].sum()
            for i in present:
                for j in present:
                    if self.n[i, j] and total > 0:
                        w = weights[i] * weights[j] * (self.norm[i] * self.norm[j] if self.normalise else 1.0)
                        m = 1.0 if mask is None else mask[i, half] * mask[j, half]
                        bias = 1 - self.decay ** self.n[i, j] if self.bias_correction else 1.0
                        C[half] += w * m * S[i, j] / bias * self.v[half] / total
        C = np.maximum(C, (1 - self.beta) * d * d if self.floor else 0.0)
        return d / np.sqrt(C + 1e-16)

    def take(self, g):
        for half, S in zip(HALVES, self.S, strict=True):
            for i in g:
                for j in g:
                    S[i, j] = self.decay * S[i, j] + (1 - self.decay) * (g[i][half] @ g[j][half])
        for i in g:
            for j in g:
                self.n[i, j] += 1


# -- exact where the model holds ---------------------------------------------------------------------------------------


def test_separable_gradients_give_the_exact_curvature(feed, close):
    rows, weights = draw(50, separable=True)
    for k, (bias_correction, normalise) in enumerate([(True, False), (False, True), (True, True)]):
        rows, found = lacking(rows) if k == 2 else rows, []
        for estimator in ("full", "separable"):
            param = start()
            opt = build(param, estimator, bias_correction=bias_correction, normalise=normalise)
            found.append(feed(opt, param, rows, weights))
        close(*found, rtol=1e-6)


def test_constant_weights_give_the_exact_curvature_of_any_gradients(feed, close):
    rows, _ = draw(50)
    found = []
    for estimator in ("full", "separable"):
        param = start()
        found.append(feed(build(param, estimator, solvers.LS([0.5, 1.0, 2.0])), param, rows))
    close(*found, rtol=1e-6)


def test_other_gradients_do_not(feed):
    rows, weights = draw(50)
    found = []
    for estimator in ("full", "separable"):
        param = start()
        found.append(feed(build(param, estimator), param, rows, weights))
    assert not torch.allclose(*found, rtol=0.1)


def test_what_comes_to_life_between_two_measurements_takes_no_leap():
    """An adapter behind zeros: its curvature at a preference is not known yet. Large weights are shrunk on the way."""
    found = []
    for size in (1.0, 64.0):
        param, other = (torch.nn.Parameter(torch.ones(3, 2)) for _ in range(2))
        options = {"rampup": 0, "beta": 0.95, "momentum": 0.9, "every": 7}
        metric = PreferenceMetric("separable", **options)
        opt = MultiObjective(torch.optim.SGD([param, other], 1e-6), "preference", metric)
        seen = []
        for t in range(20):  # measured are the first ten, and 16
            both = param + (1.0 if t >= 10 else 0.0) * other
            losses = [both.square().sum(), (both[0] - 1).square().sum() + param.square().sum()]
            opt.zero_grad()
            opt.backward(losses, preference=torch.full((2,), size / 2))
            seen.append(other.grad.clone())
            opt.step()
        found.append(torch.stack(seen))
    assert 0.5 < found[0].abs().max() < 2.0
    torch.testing.assert_close(*found)


def test_what_has_no_s_yet_has_its_bias_corrected_all_the_same(feed):
    """Young averages of d^2 are small, whatever divides them: by itself, a first one is (1 - beta) d^2."""
    rows, weights = draw(7)
    rows[:6] = 0.0
    for every, n in ((1, 7), (5, 2)):  # after 0 and 5, the step number 6 is not measured
        param = start()
        found = feed(build(param, "separable", beta=0.999, every=every), param, rows, weights)[6].abs()
        wanted = ((1 - 0.999 ** (every * n)) / (1 - 0.999)) ** 0.5
        torch.testing.assert_close(found, torch.full_like(found, wanted))


# -- the slow version --------------------------------------------------------------------------------------------------

OPTIONS = {
    "beta": st.sampled_from([0.0, 0.5, 0.9, 0.999]),
    "bias_correction": st.booleans(),
    "floor": st.just(True),
    "normalise": st.booleans(),
    "every": st.integers(1, 3),
}


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    options=st.fixed_dictionaries(OPTIONS),
    seed=st.integers(0, 2**32 - 1),
    lack=st.booleans(),
    large=st.sampled_from([1.0, 1e6]),
)
def test_equals_the_slow_version(options, seed, lack, large, feed, close):
    """Large weights too, which are shrunk on the way."""
    rows, weights = draw(10, seed)
    rows, weights = lacking(rows, seed) if lack else rows, large * weights
    param, slow = start(), Slow(**options)
    found = feed(build(param, "separable", **options), param, rows, weights)
    close(found, np.stack([slow.step(g, w) for g, w in zip(rows, weights, strict=True)]), rtol=1e-6)


def test_in_float32(feed, close):
    rows, weights = draw(60)
    param, slow = start(torch.float32), Slow()
    found = feed(build(param, "separable"), param, rows, weights)
    close(found, np.stack([slow.step(g, w) for g, w in zip(rows, weights, strict=True)]), torch.float32)


def test_weights_of_each_coordinate(feed, close):
    """GradDrop: its masks, as it drew them, in the place of the weights."""

    class Recorder(solvers.GradDrop):
        drawn = ()

        def masks(self, stack, keys):
            result = super().masks(stack, keys)
            Recorder.drawn = (*Recorder.drawn, result.double().numpy().copy())
            return result

    rows, _ = draw(20)
    param, slow = start(), Slow()
    opt = build(param, "separable", Recorder())
    for g in rows:
        found = feed(opt, param, g[None])[0]
        close(found, slow.step(g, opt.weights.tolist(), mask=Recorder.drawn[-1]), rtol=1e-6)
    assert any((m != m[:, :1]).any() for m in Recorder.drawn)


def test_in_pieces(feed, monkeypatch):
    rows, weights = draw(10)
    found = []
    for piece in (1 << 17, 7):
        monkeypatch.setattr(_preference, "PIECE", piece)
        param = start()
        found.append(feed(build(param, "separable"), param, lacking(rows), weights))
    assert torch.equal(*found)


def test_huge_gradients_and_zeros(feed):
    """The sum of squares of a group overflows where no single square does."""
    rows, weights = draw(12)
    rows /= np.abs(rows).max()
    rows[:2] = 0.0
    rows[4, :2] = 0.0
    rows[6:8] *= 2e18
    rows[9] *= 1e-30
    param = start(torch.float32)
    opt = build(param, "separable", beta=0.99)
    found = feed(opt, param, rows, weights)
    assert opt.skipped == 0 and found.isfinite().all() and found.abs().max() <= 10 * (1 + 1e-5)
    assert all(t.isfinite().all() for block in opt.metric.averages for t in block.tensors())


# -- what v and S are --------------------------------------------------------------------------------------------------


def test_v_adds_up_to_t(feed):
    rows, weights = draw(80)
    param = start()
    opt = build(param, "separable")
    feed(opt, param, lacking(rows), weights)
    (kept,) = opt.metric.averages
    torch.testing.assert_close((kept.scale * kept.v).view(2, 30).sum(1), kept.T)


GROUPS = [  # shape, objectives, sizes of the groups
    ((8, 300), 7, [300] * 8),  # a row has more than the 112 coordinates that S needs
    ((64, 3, 5, 5), 7, [150] * 32),  # filters of 75, two and two
    ((13, 21), 7, [147, 126]),  # six rows would do; evened out, seven and six
    ((7, 30), 7, [210]),
    ((300,), 7, [150, 150]),
    ((256, 256), 40, [14 * 256] * 18 + [4 * 256]),
    ((5,), 7, [5]),
    ((), 7, [1]),
    ((0, 4), 7, []),
    ((4, 0), 7, []),
    ((2, 6), 1, [6, 6]),
]


def test_groups_are_rows_or_several():
    for shape, count, sizes in GROUPS:
        groups = Groups([torch.empty(shape)], count)
        assert groups.total == len(sizes)
        G = torch.randn(2, sum(sizes), dtype=torch.float64)
        parts = G.split(sizes, dim=1) if sizes else []
        wanted = torch.stack([part @ part.T for part in parts]) if parts else torch.zeros(0, 2, 2, dtype=torch.float64)
        torch.testing.assert_close(groups.gram(G), wanted)
        values = torch.arange(len(sizes)).double()
        assert groups.spread(values).tolist() == [float(k) for k, size in enumerate(sizes) for _ in range(size)]


@settings(max_examples=50, deadline=None, derandomize=True)
@given(shape=st.lists(st.integers(1, 60), min_size=1, max_size=3), count=st.integers(1, 20))
def test_s_is_at_most_a_quarter_of_v(shape, count):
    param = torch.empty(shape)
    groups, pairs = Groups([param], count), count * (count + 1) // 2
    assert groups.total * pairs <= max(param.numel() / SHARE, pairs)


def test_gram_matrices_of_neighbours_are_those_of_each_tensor():
    shapes = [(), (0,), (1,), (3,), (6,), (2, 3), (3, 2), (5, 2), (2, 9), (1, 6), (7, 1)]
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        params = [torch.empty(shapes[k]) for k in torch.randint(len(shapes), (12,), generator=generator)]
        G = torch.randn(2, sum(p.numel() for p in params), generator=generator, dtype=torch.float64)
        parts = G.split([p.numel() for p in params], dim=1)
        for count in (1, 2, 3):
            each = [Groups([p], count).gram(part) for p, part in zip(params, parts, strict=True)]
            groups = Groups(params, count)
            torch.testing.assert_close(groups.gram(G), torch.cat(each))
            of_each = groups.of_each([float(k) for k in range(12)], G).tolist()
            assert of_each == [float(k) for k, e in enumerate(each) for _ in range(len(e))]


# -- heads, blocks, checkpoints ----------------------------------------------------------------------------------------


def test_heads_keep_their_own_entry_only():
    trunk = torch.nn.Parameter(torch.randn(6, 20))
    heads = [torch.nn.Parameter(torch.randn(6)) for _ in range(COUNT)]
    opt = build([trunk, *heads], "separable", solvers.UW())
    for t in range(30):
        opt.zero_grad()
        x = torch.randn(20, generator=torch.Generator().manual_seed(t))
        opt.backward([(head @ (trunk @ x) - 1).square() for head in heads])
        opt.step()
    assert len(opt.metric.averages[trunk].pairs) == 6
    for i, head in enumerate(heads):
        kept = opt.metric.averages[head]
        assert kept.pairs == [(i, i)] and kept.v.shape == (6,) and kept.S.shape == (1, 1)


def test_checkpoints_of_another_estimator_are_refused(feed):
    rows, weights = draw(4)
    param = start()
    opt = build(param, "separable")
    feed(opt, param, rows, weights)
    with pytest.raises(ValueError, match=r"estimator='separable' \(here 'full'\)"):
        build(param, "full").load_state_dict(opt.state_dict())


DAMAGE = [
    (lambda e: e.pop("v"), "lack 'v'"),
    (lambda e: e.update(v=e["v"][:5]), r"shape \(5,\); the parameter has shape \(60,\)"),
    (lambda e: e.update(S=e["S"][:, :1]), r"S of shape \(6, 1\) for 6 pairs and 2 groups"),
    (lambda e: e.update(T=e["T"][:1]), r"T of shape \(1,\) for 2 groups"),
    (lambda e: e.update(n=e["n"][:1]), r"S of shape \(6, 2\) for 6 pairs"),
    (lambda e: e.update(pairs=[[-2, -2], *e["pairs"][1:]]), r"have the pair \[-2, -2\]"),
    (lambda e: e.update(v=e["v"].bfloat16()), "in torch.bfloat16"),
]


def test_checkpoints_that_do_not_fit_are_refused(feed):
    rows, weights = draw(4)
    param = start()
    opt = build(param, "separable")
    feed(opt, param, rows, weights)
    for damage, match in DAMAGE:
        state = copy.deepcopy(opt.state_dict())
        damage(state["multi_objective"]["metric"]["averages"][0])
        with pytest.raises(ValueError, match=f"averages of parameter 0.*{match}"):
            build(param, "separable").load_state_dict(state)


def test_the_floor_holds_in_heads():
    """A head's first gradient, just as its weight falls: v is new, and S / T is that of the old weight."""
    heads = [torch.nn.Parameter(torch.zeros(2, 2)) for _ in range(2)]
    opt = MAdam(heads, solver=solvers.Preference(), metric=PreferenceMetric("separable", beta=0.99, rampup=0))
    for step in range(230):
        x = torch.zeros(2, 2)
        x[int(step >= 200)] = 1.0
        opt.zero_grad()
        opt.backward([(head * x).sum() for head in heads], [0.001, 0.999] if step >= 200 else [0.999, 0.001])
        assert heads[0].grad.abs().max() <= 1.001 / (1 - 0.99) ** 0.5
        opt.step()
