"""Several backward, one step: sums, one draw, and nothing kept before the step is taken."""

import copy

import pytest
import torch

from helpers import Net, backward, close_params, same, snapshot, train, wrap
from optimizer.cover import BY_LOSS, COVER, KINDS


def _options(solver):
    """Weights made of the step's losses are known with its last micro-batch only: until then, every row is kept."""
    return {"rows": "all"} if solver in BY_LOSS else {}


@pytest.mark.parametrize("solver, estimator", COVER)
def test_micro_batches_equal_one_batch(solver, estimator):
    whole, split = Net(), Net()
    train(whole, wrap(whole, solver, estimator, **_options(solver)), 5)
    train(split, wrap(split, solver, estimator, **_options(solver)), 5, parts=4)
    close_params(split, whole, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("solver, estimator", [("uw", "full"), ("dwa", None), ("ls", "collapsed")])
def test_a_micro_batch_with_gradients_of_zero_counts(solver, estimator):
    """Its losses are part of the step, though nothing of it can be seen in .grad."""
    nets = [Net(), Net()]
    opts = [wrap(net, solver, estimator) for net in nets]
    for net, opt in zip(nets, opts, strict=True):
        train(net, opt, 1)
        opt.zero_grad()
        flat = [0.0 * loss + 5.0 for loss in net.losses(1)]
        if opt is opts[0]:
            opt.backward(flat)
            opt.backward(net.losses(2))
        else:
            opt.backward([a + b for a, b in zip(flat, net.losses(2), strict=True)])
        opt.step()
        train(net, opt, 2, start=3)
    close_params(*nets, rtol=1e-9, atol=1e-11)
    states = [opt.solver.state_dict() for opt in opts]
    names = [state.pop("_extra_state")["n_objectives"] for state in states]
    assert names == [3, 3]
    torch.testing.assert_close(*states, equal_nan=True)


def test_objectives_of_different_micro_batches_are_one_step():
    """Labels for one objective in one micro-batch, for the others in the next."""
    nets = [Net(), Net()]
    for apart, net in enumerate(nets):
        opt = wrap(net, "cagrad", "full", objectives=["a", "b", "c"])
        for t in range(4):
            a, b, c = net.losses(t)
            opt.zero_grad()
            if apart:
                opt.backward({"b": b}, retain_graph=True)
                opt.backward({"a": a, "c": c})
            else:
                opt.backward({"a": a, "b": b, "c": c})
            opt.step()
    close_params(*nets, rtol=1e-9, atol=1e-11)


CLEAR = {
    "opt": lambda net, opt: opt.zero_grad(),
    "opt to zero": lambda net, opt: opt.zero_grad(set_to_none=False),
    "model": lambda net, opt: net.zero_grad(),
    "model to zero": lambda net, opt: net.zero_grad(set_to_none=False),
}


@pytest.mark.parametrize("clear", CLEAR)
@pytest.mark.parametrize("solver, estimator", KINDS[:5])
def test_clearing_the_gradients_discards_what_is_pending(solver, estimator, clear):
    net, control = Net(), Net()
    opt, reference = wrap(net, solver, estimator), wrap(control, solver, estimator)
    for t in range(4):
        train(control, reference, 1, start=t)
        backward(net, opt, 100 + t, parts=2)  # never stepped on
        CLEAR[clear](net, opt)
        backward(net, opt, t)
        opt.step()
        CLEAR[clear](net, opt)
    assert same(snapshot(control, reference), snapshot(net, opt))


@pytest.mark.parametrize("set_to_none", [True, False])
def test_gradients_cleared_before_the_step_leave_no_trace(set_to_none):
    net = Net()
    opt = wrap(net, "rlw", "full")
    opt.backward(net.losses(0))
    net.zero_grad(set_to_none=set_to_none)
    opt.step()
    assert opt.metric.steps == 0 and opt.run.count is None and opt.run.pending is None


def test_backward_without_step_leaves_no_trace():
    for solver, estimator in COVER:
        net = Net()
        opt = wrap(net, solver, estimator, **_options(solver))
        train(net, opt, 2)
        before, global_generator = snapshot(net, opt), torch.get_rng_state()
        backward(net, opt, 2, parts=2)
        assert same(before, snapshot(net, opt)), (solver, estimator)
        opt.step()
        assert torch.equal(global_generator, torch.get_rng_state()), (solver, estimator)


def test_one_draw_per_step():
    for parts in (1, 3):
        net = Net(count=7)
        opt = wrap(net, "rlw", "pair")
        weights, pairs = copy.deepcopy(opt.solver.generator), copy.deepcopy(opt.metric.generator)
        for t in range(5):
            opt.zero_grad()
            for part in range(parts):
                opt.backward(net.losses(t, part, parts))
                seen = opt.weights
                opt.backward(net.losses(t, part, parts))
                assert torch.equal(seen, opt.weights)
            opt.step()
            expected = torch.randn(7, generator=weights, dtype=torch.float64).softmax(0)
            torch.randint(7, (2,), generator=pairs)
            assert torch.equal(opt.weights, expected)
            assert same(opt.solver.generator.get_state(), weights.get_state())
            assert same(opt.metric.generator.get_state(), pairs.get_state())


def test_micro_batches_must_agree_on_the_preference():
    net, control = Net(), Net()
    opt, reference = wrap(net, "preference"), wrap(control, "preference")
    opt.backward(net.losses(0, 0, 2), [1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="preference must be the same"):
        opt.backward(net.losses(0, 1, 2), [1.0, 2.0, 4.0])
    opt.backward(net.losses(0, 1, 2), [1.0, 2.0, 3.0])
    opt.step()
    reference.backward(control.losses(0), [1.0, 2.0, 3.0])
    reference.step()
    close_params(net, control, rtol=1e-12)


@pytest.mark.parametrize("solver", BY_LOSS)
def test_weights_that_change_between_micro_batches_are_refused(solver):
    """What was differentiated with the old weights cannot be weighed again."""
    net = Net()
    opt = wrap(net, solver)
    train(net, opt, 2)
    opt.backward(net.losses(2, 0, 2))
    before, gradients = snapshot(net, opt), [p.grad.clone() for p in net.parameters()]
    with pytest.raises(ValueError, match=r"micro-batch.*rows='all'"):
        opt.backward(net.losses(2, 1, 2))
    assert same(before, snapshot(net, opt))
    assert same(gradients, [p.grad for p in net.parameters()])
