"""What averages will take, against what they take; and the refusal to take what is not there."""

import pytest
import torch

from helpers import Net, snapshot, train
from madamoo import MAdam, MultiObjective, PreferenceMetric, solvers
from madamoo.metric import ESTIMATORS, _memory
from madamoo.metric._memory import bytes_of, free_memory, readable

CASES = [("ls" if e in ("auto", "collapsed") else "uw", e) for e in ("auto", *ESTIMATORS)]
KINDS = [(torch.float32, None), (torch.float32, "bfloat16"), (torch.float64, None), (torch.bfloat16, "float8_e5m2")]


def taken(opt):
    return bytes_of(t for block in opt.metric.averages for t in block.tensors())


@pytest.mark.parametrize("k, solver, estimator", [(k, *case) for k, case in enumerate(CASES)])
def test_the_estimate_is_what_is_then_allocated(k, solver, estimator):
    param, dtype = KINDS[k % len(KINDS)]
    net = Net(5, dtype=param)
    opt = MAdam(net.parameters(), solver=solvers.get(solver), metric=PreferenceMetric(estimator, dtype=dtype))
    static = solver == "ls"
    estimate = opt.metric.state_bytes(net.trunk, 5, net.heads, static=static)
    assert estimate == opt.metric.state_bytes(net.trunk.parameters(), 5, list(net.heads.parameters()), static=static)
    assert taken(opt) == 0
    steps = 0
    while taken(opt) < estimate and steps < 120:  # until the last pair was drawn
        train(net, opt, 1, start=steps)
        steps += 1
    train(net, opt, 3)
    assert taken(opt) == estimate
    assert steps == 1 or estimator == "pair"


def test_frozen_parameters_have_no_averages():
    net = Net()
    whole = PreferenceMetric("full").state_bytes(net.trunk, 3)
    net.trunk[0].bias.requires_grad_(False)
    assert whole - PreferenceMetric("full").state_bytes(net.trunk, 3) == 8 * 6 * 6


def test_forty_objectives_without_a_byte():
    """A model of a billion parameters, on a device that has no memory."""
    with torch.device("meta"):
        layers = torch.nn.ModuleList(torch.nn.Linear(8192, 8192) for _ in range(15))
    total = sum(p.numel() for p in layers.parameters())
    assert PreferenceMetric("full").state_bytes(layers, 40) == 820 * 4 * total
    assert 4 * total < PreferenceMetric("separable").state_bytes(layers, 40) < 1.25 * 4 * total
    assert PreferenceMetric("separable", dtype="bfloat16").state_bytes(layers, 40) < 0.75 * 4 * total


# -- the refusal -------------------------------------------------------------------------------------------------------


@pytest.fixture
def free(monkeypatch):
    """Tell how much memory there is."""

    def say(size):
        monkeypatch.setattr(_memory, "free_memory", lambda device: size)

    return say


def build(net, estimator="full", **options):
    return MultiObjective(torch.optim.Adam(net.parameters()), solvers.UW(), PreferenceMetric(estimator, **options))


def test_averages_that_do_not_fit_are_refused_with_advice(free):
    net = Net(5)
    opt = build(net)
    before = snapshot(net, opt)
    needed = opt.metric.state_bytes(net.trunk, 5, net.heads)
    free(needed - 1)
    with pytest.raises(MemoryError, match=r"estimator='full' for 5 objectives need .* on cpu.* would fit: ") as error:
        opt.backward(net.losses(0))
    for name in ("estimator='full', dtype=torch.bfloat16", "estimator='separable'"):
        assert name in str(error.value)
    assert "estimator='full' (" not in str(error.value)
    for p in net.parameters():
        p.grad = None
    assert str(snapshot(net, opt)) == str(before)
    free(needed)
    train(net, opt, 2)
    free(0)  # all is there
    train(net, opt, 2)


def test_where_nothing_fits(free):
    net = Net(5)
    free(1)
    with pytest.raises(MemoryError, match=r"where 1 bytes are free; no other estimator or dtype would fit either"):
        build(net, "separable").backward(net.losses(0))


def test_advice_names_what_fits_only(free):
    for estimator in ("separable", "marginal"):
        net = Net(5, dtype=torch.float32)
        opt = build(net, estimator)
        free(opt.metric.state_bytes(net.trunk, 5, net.heads) - 1)
        with pytest.raises(MemoryError, match=f"would fit: estimator='{estimator}', dtype=torch.bfloat16 ") as error:
            opt.backward(net.losses(0))
        assert f"estimator='{estimator}' (" not in str(error.value)


def test_pairs_are_checked_as_they_are_drawn(free):
    net = Net(5)
    opt = build(net, "pair")
    train(net, opt, 2)
    free(0)
    with pytest.raises(MemoryError, match="estimator='pair'"):
        train(net, opt, 60, start=2)


def test_unknown_memory_is_not_checked(free):
    free(None)
    net = Net()
    train(net, build(net), 1)


def test_the_memory_that_is_free(tmp_path, monkeypatch):
    file = tmp_path / "meminfo"
    file.write_text("MemTotal:       16000 kB\nMemFree:   100 kB\nMemAvailable:    8000 kB\n")
    monkeypatch.setattr(_memory, "MEMINFO", file)
    assert free_memory(torch.device("cpu")) == 8000 * 1024
    assert free_memory(torch.device("meta")) is None
    monkeypatch.setattr(_memory, "MEMINFO", tmp_path / "none")
    assert free_memory(torch.device("cpu")) is None


def test_readable():
    sizes = {
        17: "17 bytes",
        1023: "1023 bytes",
        2048: "2 KiB",
        3.5 * 2**20: "3.5 MiB",
        2**30: "1 GiB",
        2**41: "2.05e+03 GiB",
    }
    assert {size: readable(size) for size in sizes} == sizes
