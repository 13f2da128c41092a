"""A step is taken whole or not at all: what can fail fails in backward, and leaves everything as it was."""

import warnings
from contextlib import suppress

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.overrides import TorchFunctionMode

from helpers import Net, adam, backward, same, snapshot, train, wrap
from madamoo import MultiObjective, PreferenceMetric, solvers
from madamoo.metric import ESTIMATORS
from madamoo.metric._separable import SeparableAverages
from optimizer.cover import KINDS


class FailAt(TorchFunctionMode):
    """Lets so many calls of torch that give a tensor pass, and then fails as if there were no memory."""

    def __init__(self, number=None):
        super().__init__()
        self.number, self.seen = number, 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor | tuple):  # not what switches gradients or autocast on and off
            self.seen += 1
            if self.seen - 1 == self.number:
                raise MemoryError
        return result


def _calls(net, opt, t):
    """How many calls of torch a backward takes."""
    losses = net.losses(t)
    with FailAt() as mode:
        opt.backward(losses)
    opt.zero_grad()
    return mode.seen


@pytest.mark.parametrize("solver, estimator", KINDS[:6])
def test_a_backward_that_fails_anywhere_leaves_no_trace(solver, estimator):
    """At many of its calls of torch, in a first, a later and an accumulated backward; then the run goes on."""
    net, control = Net(), Net()
    opt, reference = wrap(net, solver, estimator), wrap(control, solver, estimator)
    for t in range(3):
        number = _calls(net, opt, t)
        for k in range(t, number, 1 + number // 25):
            before = snapshot(net, opt)
            if t == 2:
                opt.backward(net.losses(t, 0, 2))
            losses = net.losses(t, 1, 2) if t == 2 else net.losses(t)
            with FailAt(k) as mode, suppress(MemoryError):
                opt.backward(losses)
            assert mode.seen > k or k > number // 2  # it takes a few calls less the second time
            assert same(before, snapshot(net, opt)), k
            if t == 2 and mode.seen > k:  # the micro-batch before still stands
                opt.backward(net.losses(t, 1, 2))
                last = [p.grad.clone() for p in net.parameters()]
            opt.zero_grad()
        train(net, opt, 1, start=t, parts=1 + (t == 2))
        train(control, reference, 1, start=t, parts=1 + (t == 2))
        assert t < 2 or solver == "graddrop" or same(last, [p.grad for p in control.parameters()])
    assert same(snapshot(net, opt), snapshot(control, reference))


@pytest.mark.parametrize("solver, estimator", KINDS)
def test_an_inner_step_that_fails_can_be_taken_again(solver, estimator):
    net, control = Net(), Net()
    opt, reference = wrap(net, solver, estimator), wrap(control, solver, estimator)

    def fail(*_):
        raise MemoryError

    for t in range(3):
        opt.zero_grad()
        backward(net, opt, t)
        before = snapshot(net, opt)
        handle = opt.optimizer.register_step_pre_hook(fail)
        with pytest.raises(MemoryError):
            opt.step()
        handle.remove()
        assert same(before, snapshot(net, opt))
        opt.step()
        train(control, reference, 1, start=t)
    assert same(snapshot(net, opt), snapshot(control, reference))


def _large(averages):
    """What is as large as the parameters: the separable averages also keep a few products."""
    return _storages([a.v if isinstance(a, SeparableAverages) else a.F for a in averages])


def _storages(thing, seen=None):
    """Where the tensors that can be reached from a thing have their memory."""
    seen = {} if seen is None else seen
    if id(thing) in seen:
        return set()
    seen[id(thing)] = thing  # kept, so that no other gets its number
    if isinstance(thing, torch.Tensor):
        return {thing.untyped_storage().data_ptr()}
    if isinstance(thing, dict):
        parts = [*thing.keys(), *thing.values()]
    elif isinstance(thing, list | tuple | set | frozenset):
        parts = list(thing)
    else:
        parts = [*getattr(thing, "__dict__", {}).values()]
    return set().union(*(_storages(part, seen) for part in parts))


@pytest.mark.parametrize("dtype", [None, "bfloat16"])
@pytest.mark.parametrize("estimator", list(ESTIMATORS))
def test_what_a_step_keeps_was_allocated_in_backward(estimator, dtype):
    """Where memory runs out, it does before the parameters have moved; also for new pairs and divided blocks."""
    net = Net()
    metric = PreferenceMetric(estimator, rampup=0, dtype=dtype)
    solver = "ls" if ESTIMATORS[estimator].needs_static else "uw"
    opt = MultiObjective(adam(net), solvers.get(solver), metric)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # batches lack objectives
        for t, present in enumerate([(0,), (0, 1), (1, 2), (0, 1, 2), (2,), (0, 1, 2)]):
            opt.zero_grad()
            opt.backward([loss if i in present else None for i, loss in enumerate(net.losses(t))])
            before = _storages(opt.run.pending.measurement)
            opt.step()
            assert _large(metric.averages) <= before


SIZES = st.sampled_from([0.0, 1e-45, 1e-40, 1e-30, 1e-21, 1e-12, 1e-4, 1.0, 1e4, 1e9, 1e12, 1e15, 1e18, 3e19, 1e30])
METRICS = st.fixed_dictionaries(
    {
        "estimator": st.sampled_from(["auto", "full", "pair", "diagonal", "separable", "marginal"]),
        "rampup": st.sampled_from([0, 2]),
        "ramp": st.sampled_from(["largest", "paper"]),
        "normalise": st.booleans(),
        "every": st.sampled_from([1, 2]),
        "floor": st.booleans(),
        "dtype": st.sampled_from([None, "bfloat16"]),
        "beta": st.sampled_from([None, 0.0, 0.9]),
    }
)


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(
    solver=st.sampled_from(solvers.available()),
    metric=st.none() | METRICS,
    steps=st.lists(st.tuples(SIZES, SIZES, SIZES), min_size=1, max_size=5),
    missing=st.sampled_from([None, 0, 2]),
    max_norm=st.sampled_from([None, 1e-3]),
)
def test_no_step_raises_whatever_the_gradients(solver, metric, steps, missing, max_norm):
    """From zero to what no square can hold, in turn: backward skips it or step takes it, and parameters stay finite."""
    net = Net(dtype=torch.float32)
    chosen = None if metric is None else PreferenceMetric(**metric)
    opt = MultiObjective(adam(net, 1e-3), solvers.get(solver), chosen, max_norm=max_norm)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for t, sizes in enumerate(steps):
            losses = [s * loss for s, loss in zip(sizes, net.losses(t), strict=True)]
            if t % 2 and missing is not None:
                losses[missing] = None
            opt.zero_grad()
            opt.backward(losses, [0.2, 0.3, 0.5] if opt.solver.uses_preference else None)
            opt.step()
            assert all(torch.isfinite(p).all() for p in net.parameters())
            assert chosen is None or chosen.steps == t + 1 - opt.skipped
