"""Averages in few bits: right in expectation, never stalled, and as small as they say."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import Net, same, train
from madamoo import MAdam, PreferenceMetric, solvers
from madamoo.diagnostics import state_bytes
from madamoo.metric._rounding import decayed, random_bits, rounded

SMALL = [torch.bfloat16, torch.float8_e5m2]
OTHERS = [torch.float64, torch.bfloat16]
WIDTHS = {None: 4, torch.bfloat16: 2, torch.float8_e5m2: 1}


@pytest.fixture
def noise():
    return torch.Generator().manual_seed(0)


def neighbours(x, dtype):
    """The numbers of ``dtype`` around each x, by looking at all of them."""
    if dtype is torch.bfloat16:
        every = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(dtype).float()
    else:
        every = torch.arange(256, dtype=torch.uint8).view(dtype).float()
    every = every[every.isfinite()].unique()
    above = torch.searchsorted(every, x)
    return every[(above - 1).clamp_min(0)], every[above]


@pytest.mark.parametrize("dtype", SMALL)
def test_rounds_to_a_neighbour_with_the_right_odds(dtype, noise):
    """Over ten thousand draws, for numbers of any size and sign: normal, subnormal, zero."""
    x = torch.cat(
        [torch.randn(300, generator=noise) * 10.0 ** torch.randint(-7, 4, (300,), generator=noise), torch.zeros(1)]
    )
    draws = 10_000
    bits = random_bits(torch.empty(draws * len(x), dtype=dtype), noise)
    found = rounded(x.repeat(draws), dtype, bits).float().view(draws, -1)
    low, high = neighbours(x, dtype)
    assert ((found == low) | (found == high) | (found == x)).all()
    error = (found.double().mean(0) - x.double()) / (high - low).double().clamp_min(1e-30)
    assert error.abs().max() < 5 * 0.5 / draws**0.5


@pytest.mark.parametrize("dtype", SMALL)
def test_numbers_that_fit_stay(dtype, noise):
    """Whatever is drawn, the least and the most too; subnormal ones as well."""
    x = torch.randn(1000, generator=noise) * 10.0 ** torch.randint(-6, 1, (1000,), generator=noise)
    x = x.to(dtype).float()
    for bits in (random_bits(x.to(dtype), noise), torch.zeros(1000).int(), torch.full((1000,), 0xFFFF).int()):
        assert torch.equal(rounded(x, dtype, bits).float(), x)


def average(dtype, noise, steps, old=1.0, new=4.0, size=4000):
    """An average with decay 0.999 that stood at ``old``, after so many steps of ``new``."""
    row, scale, root = torch.full((size,), old).to(dtype), 1.0, torch.full((size,), new**0.5)
    for _ in range(steps):
        scale = decayed(row, scale, 0.999, (root, root, 0.001), random_bits(row, noise))
    return scale * row.float()


@pytest.mark.parametrize("dtype, spread", [(torch.bfloat16, 0.08), (torch.float8_e5m2, 0.5)])
def test_an_average_does_not_stall(dtype, spread, noise):
    found = average(dtype, noise, 1000)
    wanted = 4.0 - 3.0 * 0.999**1000
    assert abs(float(found.mean()) / wanted - 1) < 0.01
    assert 0.01 < float(found.std()) / wanted < spread


POWERS = st.tuples(st.floats(-45, 18), st.floats(-45, 18), st.booleans())


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    dtype=st.sampled_from(SMALL),
    decay=st.sampled_from([0.0, 0.5, 0.999]),
    steps=st.lists(POWERS, min_size=1, max_size=5),
    seed=st.integers(0, 99),
)
def test_products_of_any_size_neither_raise_nor_overflow(dtype, decay, steps, seed):
    """One factor huge, the other denormal; norms of gradients in the factor c."""
    noise = torch.Generator().manual_seed(seed)
    row, scale = torch.zeros(4).to(dtype), 1.0
    largest = 0.0
    for first, second, normalised in steps:
        a, b = ((torch.rand(4, generator=noise).double() * 10**power).float() for power in (first, second))
        norms = float(a.double().norm() * b.double().norm())
        c = (1 - decay) / (norms if normalised and 1e-12 < norms < 1e12 else 1.0)
        largest = max(largest * decay, c * float((a.double() * b.double()).max()))
        scale = decayed(row, scale, decay, (a, b, c), random_bits(row, noise))
        found = scale * row.double()
        assert found.isfinite().all() and 0 < scale < float("inf")
        assert found.max() <= 4 * len(steps) * largest + 1e-30


@pytest.mark.parametrize("dtype", SMALL)
def test_a_plain_one_does(dtype):
    row = torch.ones(10).to(dtype)
    for _ in range(1000):
        row = (0.999 * row.float() + 0.001 * 4.0).to(dtype)  # to the nearest
    assert torch.equal(row.float(), torch.ones(10))


def test_float8_spans_what_gradients_span(noise):
    """Squares over nine decades, at any scale of the losses, and jumps of the scale in the course of a run."""
    for size in (1e-12, 1e-6, 1.0, 1e6, 1e12):
        g = torch.logspace(-4.5, 0, 2000) * size
        row, scale = torch.zeros(2000, dtype=torch.float8_e5m2), 1.0
        for jump in (1.0, 1e3, 1e-3):
            for _ in range(60):
                scale = decayed(row, scale, 0.9, (jump * g, jump * g, 0.1), random_bits(row, noise))
            relative = scale * row.float() / (jump * g).square()
            if jump < 1.0:  # what is left of the large ones
                relative = relative / (1 + 1e12 * 0.9**60)
            for part in relative.chunk(4):  # a decade and more each
                assert abs(float(part.mean()) - 1) < 0.08


# -- in the metric -----------------------------------------------------------------------------------------------------


def built(dtype, estimator="full", solver="uw", seed=0, net=None):
    net = net or Net(dtype=torch.float32)
    metric = PreferenceMetric(estimator, rampup=3, dtype=dtype, seed=seed)
    return net, MAdam(net.parameters(), lr=1e-2, solver=solvers.get(solver), metric=metric)


@pytest.mark.parametrize("estimator", ["full", "pair", "diagonal", "separable", "marginal"])
def test_close_to_the_averages_in_full(estimator):
    images = []
    for kept in (None, *SMALL):
        net, opt = built(kept, estimator)
        state = copy.deepcopy(net.state_dict())
        for t in range(20):
            net.load_state_dict(state)  # the same gradients for all
            opt.zero_grad()
            opt.backward(net.losses(t))
            image = torch.cat([p.grad.flatten() for p in net.parameters()])
            opt.step()
        images.append(image)
    for image, off in zip(images[1:], (0.02, 0.3), strict=True):
        relative = (image - images[0]).abs() / images[0].abs().clamp_min(1e-3)
        assert 0 < float(relative.median()) < off


@pytest.mark.parametrize("dtype, estimator, param", [*zip(SMALL, ("full", "separable"), OTHERS, strict=True)])
def test_parameters_of_any_dtype(dtype, estimator, param):
    net, opt = built(dtype, estimator, net=Net(dtype=param))
    train(net, opt, 3)
    large = [block.tensors()[0] for block in opt.metric.averages]
    assert {t.dtype for t in large} == {dtype}
    assert all(p.isfinite().all() for p in net.parameters())


@pytest.mark.parametrize("dtype, estimator", [*zip((*SMALL, SMALL[1]), ("full", "pair", "separable"), strict=True)])
def test_checkpoints_resume_bit_for_bit(dtype, estimator, tmp_path):
    net, opt = built(dtype, estimator)
    train(net, opt, 4)
    torch.save({"net": net.state_dict(), "opt": opt.state_dict()}, tmp_path / "saved.pt")
    train(net, opt, 4, start=4)
    saved = torch.load(tmp_path / "saved.pt", weights_only=True)
    key = "v" if estimator == "separable" else "F"
    assert {e[key].dtype for e in saved["opt"]["multi_objective"]["metric"]["averages"].values()} == {dtype}
    other, again = built(dtype, estimator, seed=9)
    other.load_state_dict(saved["net"])
    again.load_state_dict(saved["opt"])
    train(other, again, 4, start=4)
    assert same(net.state_dict(), other.state_dict()) and same(opt.state_dict(), again.state_dict())


def test_checkpoints_of_another_dtype_are_refused():
    for there, here in [(torch.bfloat16, None), (None, torch.bfloat16), SMALL]:
        net, opt = built(there)
        train(net, opt, 2)
        state = opt.state_dict()
        del state["multi_objective"]["options"]  # of which dtype is one
        with pytest.raises(ValueError, match=r"dtype=|are in torch.bfloat16"):
            built(here)[1].load_state_dict(state)


def test_a_step_that_is_not_taken_draws_nothing():
    net, opt = built("bfloat16")
    train(net, opt, 2)
    before = opt.metric.noise.get_state()
    opt.backward(net.losses(2))
    opt.zero_grad()
    assert torch.equal(opt.metric.noise.get_state(), before)
    opt.backward(net.losses(2))
    opt.step()
    assert not torch.equal(opt.metric.noise.get_state(), before)


def test_averages_in_few_bits_need_a_generator():
    with pytest.raises(ValueError, match="generator"):
        random_bits(torch.zeros(3, dtype=torch.bfloat16), None)


# -- bytes -------------------------------------------------------------------------------------------------------------


def sizes(net, opt):
    """Bytes of the inner optimizer's moments, and of the averages."""
    train(net, opt, 30 if opt.metric.estimator == "pair" else 2)
    moments = [m for s in opt.state.values() for k, m in s.items() if k != "step"]
    return state_bytes(moments), state_bytes([block.tensors() for block in opt.metric.averages])


@pytest.mark.parametrize("dtype, width", [*WIDTHS.items()])
def test_how_many_buffers_there_are(dtype, width):
    """Constant weights take one more than Adam; else heads take one, and the trunk one per pair or, separable, one."""
    for estimator, buffers in {"full": 6, "pair": 6, "diagonal": 3}.items():
        net, opt = built(dtype, estimator)
        trunk, heads = (sum(p.numel() for p in part.parameters()) for part in (net.trunk, net.heads))
        assert sizes(net, opt) == (2 * 4 * (trunk + heads), width * (buffers * trunk + heads))
    net, opt = built(dtype, "auto", "ls")
    assert sizes(net, opt)[1] == width * (trunk + heads)
    net, opt = built(dtype, "separable")
    matrices = 2 * (6 + 1) + 3 * 2 * (1 + 1)  # S and T: weight and bias of the trunk, undivided, and of each head
    assert sizes(net, opt)[1] == width * (trunk + heads) + 4 * matrices


@pytest.mark.parametrize("decay", [0.9, 0.0])
def test_float8_survives_a_long_silence_and_a_jump(decay, noise):
    g, row, scale = torch.ones(100), torch.zeros(100, dtype=torch.float8_e5m2), 1.0
    sizes = [*[1e-14] * 20, 1e6, *[1.0] * 150, *[0.0] * 800, *[1.0] * 150]
    for size in sizes:
        scale = decayed(row, scale, decay, (size * g, size * g, 1 - decay), random_bits(row, noise))
        assert bool(row.float().isfinite().all()) and 0 < scale < float("inf")
    assert float((scale * row.float()).mean()) == pytest.approx(1.0, rel=0.1)
