"""The metric that only scales: nothing under constant weights, and else what a slow version with loops says."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from madamoo import MultiObjective, PreferenceMetric, solvers
from madamoo.relatives import SOAP

SIZE, COUNT = 60, 3  # a vector of two groups of 30: 4 coordinates for each of 6 pairs, evened out
HALVES = (slice(0, 30), slice(30, 60))


def draw(steps, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(steps, COUNT, SIZE)) * np.exp(rng.normal(size=(COUNT, SIZE))) + rng.normal(size=SIZE)
    return rows, rng.dirichlet(np.ones(COUNT), steps)


def start(dtype=torch.float64):
    return torch.nn.Parameter(torch.linspace(-1.0, 1.0, SIZE, dtype=dtype))


def build(param, solver=None, **options):
    inner = torch.optim.SGD([param], lr=1e-2)
    return MultiObjective(inner, solver or solvers.Preference(), PreferenceMetric("relative", beta=0.9, **options))


def by_hand(rows, weights, beta=0.9, bias_correction=True):
    """d / sqrt(lambda' S lambda / T) in each half, where S averages the Gram matrix and T the square of d."""
    S, T, n, found = np.zeros((2, COUNT, COUNT)), np.zeros(2), np.zeros((COUNT, COUNT)), []
    for g, w in zip(rows, weights, strict=True):
        present = [i for i in range(COUNT) if not np.isnan(g[i]).any()]
        d = sum(w[i] * g[i] for i in present)
        both = np.zeros((COUNT, COUNT))
        both[np.ix_(present, present)] = 1
        n += both
        out = np.empty(SIZE)
        for k, half in enumerate(HALVES):
            gram = np.nan_to_num(g[:, half]) @ np.nan_to_num(g[:, half]).T
            S[k] += both * (1 - beta) * (gram - S[k])
            T[k] += (1 - beta) * (d[half] @ d[half] - T[k])
            bias = 1 - beta ** np.maximum(n, 1) if bias_correction else np.ones_like(n)
            u = np.where(np.isin(np.arange(COUNT), present), w, 0.0)
            factor = u @ (S[k] / bias) @ u / T[k] * ((1 - beta ** n.max()) if bias_correction else 1.0)
            out[half] = d[half] / np.sqrt(max(factor, (1 - beta) * (d[half] @ d[half]) / T[k]))
        found.append(out)
    return np.stack(found)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 2**32 - 1), lack=st.booleans(), bias_correction=st.booleans(), large=st.sampled_from([1, 1e6])
)
def test_equals_the_slow_version(seed, lack, bias_correction, large, feed, close):
    rows, weights = draw(12, seed)
    if lack:
        rng = np.random.default_rng(seed)
        rows[(rng.random(rows.shape[:2]) < 0.4) & (np.arange(COUNT) != 0)] = np.nan
    param = start()
    found = feed(build(param, bias_correction=bias_correction), param, rows, large * weights)
    close(found, by_hand(rows, large * weights, bias_correction=bias_correction))


@pytest.mark.parametrize("weights", [[1.0, 1.0, 1.0], [0.2, 3.0, 1.0]])
def test_constant_weights_leave_the_direction_as_it_is(weights, feed, close):
    """Bit for bit and without rows where the solver says that they are constant; up to rounding where they just are."""
    rows, _ = draw(20)
    d = np.einsum("i,tin->tn", weights, rows)
    param = start()
    opt = build(param, solvers.LS(weights))
    assert opt.metric.state_bytes([param], COUNT, static=True) == 0
    close(feed(opt, param, rows), d)
    assert opt.metric.used == "still" and not any(a.tensors() for a in opt.metric.averages)
    param = start()
    close(feed(build(param), param, rows, [weights] * 20), d, rtol=1e-9)


def test_before_soap_under_constant_weights_it_is_soap():
    found = []
    for metric in (None, PreferenceMetric("relative")):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        opt = MultiObjective(SOAP(model.parameters(), lr=1e-2), solvers.LS(), metric)
        for _ in range(25):
            y = model(torch.randn(16, 5))
            opt.zero_grad()
            opt.backward([y[:, 0].square().mean(), (y[:, 1] - 1).square().mean()])
            opt.step()
        found.append([p.detach().clone() for p in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_steps_of_all_preferences_are_of_one_size(feed):
    """Objective 0 is a thousand times larger: the size of d follows its weight, the scaled one's hardly."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(200, COUNT, SIZE)) * np.array([1000.0, 1.0, 1.0])[:, None]
    weights = np.where(np.arange(200)[:, None] % 2, [0.9, 0.05, 0.05], [0.0, 0.5, 0.5])
    param = start()
    sizes = feed(build(param), param, rows, weights).norm(dim=1)[100:]
    plain = np.linalg.norm(np.einsum("ti,tin->tn", weights, rows), axis=1)[100:]
    assert plain[1::2].mean() / plain[::2].mean() > 1000
    assert 0.5 < float(sizes[1::2].mean() / sizes[::2].mean()) < 2


def test_a_group_never_exceeds_its_bound(feed):
    """Where lambda' S lambda cancels, the floor of whole groups holds."""
    rows, _ = draw(30)
    rows[:, 1] = -rows[:, 0] + 1e-6 * rows[:, 1]
    weights = np.tile([1.0, 1.0, 0.0], (30, 1))
    weights[-1] = [1.0, 0.0, 0.0]
    param = start()
    found = feed(build(param), param, rows, weights)
    d = np.einsum("ti,tin->tn", weights, rows)
    for half in HALVES:
        T = 0.0
        for t in range(30):
            T += 0.1 * (d[t, half] @ d[t, half] - T)
            assert float(found[t, half].square().sum()) <= T / 0.1 * (1 + 1e-6)


def test_it_has_no_basis():
    with pytest.raises(ValueError, match="basis"):
        PreferenceMetric("relative", basis="eigen")
