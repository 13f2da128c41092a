"""What a newcomer gets wrong speaks, once, and points at the line; what is right is silent."""

import inspect
import warnings

import pytest
import torch
from torch import nn

from helpers import Net, adam, backward, same, same_params, train, wrap
from madamoo import MAdam, MultiObjective, PreferenceMetric, solvers
from optimizer.cover import KINDS


def spoken(act):
    """The warnings of ``act``, all of which point into this file."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        act()
    assert {w.filename for w in seen} <= {__file__}
    return [str(w.message) for w in seen]


@pytest.mark.parametrize("solver, estimator", KINDS)
def test_a_loop_as_it_should_be_is_silent(solver, estimator):
    """Also with micro-batches, gradients that are looked at, clipped, or cleared by the model."""
    net = Net()
    opt = wrap(net, solver, estimator)

    def act():
        train(net, opt, 2)
        train(net, opt, 2, start=2, parts=2)
        for clear in (net.zero_grad, opt.zero_grad):
            for set_to_none in (True, False):
                clear(set_to_none)
                backward(net, opt, 5)
                torch.nn.utils.clip_grad_norm_(net.parameters(), 0.1)
                opt.step()
        backward(net, opt, 6)  # without zero_grad: .grad is ours, from the last step
        opt.step()

    assert spoken(act) == []


@pytest.mark.parametrize("metric", [None, "default"])
def test_a_plain_backward_warns_once_with_the_line_to_change(metric):
    net, plain = Net(), Net()
    opt, reference = MAdam(net.parameters(), metric=metric), torch.optim.AdamW(plain.parameters(), 1e-3, weight_decay=0)

    def act():
        for t in range(3):
            for n, o in ((net, opt), (plain, reference)):
                o.zero_grad()
                sum(n.losses(t)).backward()
                o.step()

    (message,) = spoken(act)
    assert "plain AdamW" in message and "Replace `loss.backward()` by `opt.backward([loss_1, loss_2, ...])`" in message
    torch.testing.assert_close(list(net.parameters()), list(plain.parameters()))


def test_a_closure_with_a_plain_backward_warns_too():
    """As in automatic optimization of a trainer, which calls step(closure)."""
    net = Net()
    opt = MAdam(net.parameters())

    def closure():
        opt.zero_grad()
        sum(net.losses(0)).backward()

    (message,) = spoken(lambda: [opt.step(closure) for _ in range(2)])
    assert "plain AdamW" in message


def test_a_plain_backward_between_steps_of_ours_warns_too():
    net = Net()
    opt = wrap(net, "uw", "full")
    train(net, opt, 2)

    def act():
        opt.zero_grad()
        sum(net.losses(3)).backward()
        opt.step()

    (message,) = spoken(act)
    assert "plain AdamW" in message


@pytest.mark.parametrize("set_to_none", [True, False])
def test_gradients_added_to_cleared_ones_are_not_lost_in_silence(set_to_none):
    """Zeros that are ours do not hide what was added to them."""
    net = Net()
    opt = wrap(net, "uw", "full")
    train(net, opt, 1)
    net.zero_grad(set_to_none)
    net.trunk[0].weight.square().sum().backward()
    (message,) = spoken(lambda: opt.backward(net.losses(1)))
    assert "overwritten" in message


def test_one_number_may_be_a_sum_of_objectives():
    net = Net()
    opt = wrap(net, "cagrad")
    (message,) = spoken(lambda: [opt.backward(sum(net.losses(0))) for _ in range(2)])
    assert "opt.backward([loss_1, loss_2, ...])" in message and "opt.backward([loss])" in message
    assert spoken(lambda: wrap(net, "cagrad").backward([net.losses(0)[0]])) == []


@pytest.mark.parametrize("solver, estimator", KINDS[:5])
def test_gradients_from_elsewhere_are_not_lost_in_silence(solver, estimator):
    """Before the first backward, or between micro-batches: overwritten, and said once."""
    for between in (False, True):
        net, control = Net(), Net()
        opt, reference = wrap(net, solver, estimator), wrap(control, solver, estimator)

        def act(net=net, opt=opt, between=between):
            for t in range(3):
                opt.zero_grad()
                if between:
                    opt.backward(net.losses(t, 0, 2))
                sum(p.square().sum() for p in net.parameters()).backward()
                opt.backward(net.losses(t, 1, 2) if between else net.losses(t))
                opt.step()

        (message,) = spoken(act)
        assert "overwritten" in message and "extra=penalty" in message and "one more objective" in message
        train(control, reference, 3, parts=1 + between)
        assert same_params(net, control)


def test_coupled_decay_under_a_metric_warns():
    coupled = {
        "Adam": lambda p: torch.optim.Adam(p, weight_decay=0.1),
        "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1),
        "RMSprop": lambda p: torch.optim.RMSprop(p, weight_decay=0.1),
        "NAdam": lambda p: torch.optim.NAdam(p, weight_decay=0.1),
        "a group": lambda p: torch.optim.Adam([{"params": p, "weight_decay": 0.1}]),
    }
    fine = {
        "AdamW": lambda p: torch.optim.AdamW(p, weight_decay=0.1),
        "Adam without": torch.optim.Adam,
        "NAdam decoupled": lambda p: torch.optim.NAdam(p, weight_decay=0.1, decoupled_weight_decay=True),
        "RAdam decoupled": lambda p: torch.optim.RAdam(p, weight_decay=0.1, decoupled_weight_decay=True),
        "Adafactor": lambda p: torch.optim.Adafactor(p, weight_decay=0.1),
        "SGD without momentum": lambda p: torch.optim.SGD(p, weight_decay=0.1),
    }
    if "decoupled_weight_decay" in inspect.signature(torch.optim.Adam).parameters:  # since torch 2.7
        fine["Adam decoupled"] = lambda p: torch.optim.Adam(p, weight_decay=0.1, decoupled_weight_decay=True)
    for name, make in coupled.items():
        (message,) = spoken(lambda make=make: MultiObjective(make(Net().parameters()), metric=PreferenceMetric()))
        assert "weight_decay=0.1" in message and "decoupled" in message, name
        assert spoken(lambda make=make: MultiObjective(make(Net().parameters()))) == [], name
    for name, make in fine.items():
        assert spoken(lambda make=make: MultiObjective(make(Net().parameters()), metric=PreferenceMetric())) == [], name


def test_many_losses_without_names_may_be_those_of_single_samples():
    p = nn.Parameter(torch.ones(40))

    def losses(form, count):
        return lambda: MAdam([p]).backward(form(p[:count].square()))

    (message,) = spoken(losses(lambda v: v, 32))
    assert "shape (32,)" in message and "32 objectives" in message and "mean" in message
    assert spoken(losses(lambda v: v, 16)) == []
    assert spoken(losses(lambda v: {str(i): x for i, x in enumerate(v)}, 32)) == []  # who names them means them
    opt = MAdam([p])
    assert len(spoken(lambda: [(opt.backward(p.square()), opt.step(), opt.zero_grad()) for _ in range(3)])) == 1


def test_a_loss_that_reaches_nothing_is_named():
    net = Net()
    opt = wrap(net, "mgda")
    losses = dict(zip("abc", net.losses(0), strict=True))
    nowhere = torch.ones((), dtype=torch.float64, requires_grad=True) * 2
    (message,) = spoken(lambda: opt.backward({**losses, "d": nowhere}))
    assert "'d' reaches no parameter" in message


def test_each_optimizer_says_it_once():
    for _ in range(2):
        net = Net()
        opt = MultiObjective(adam(net), solvers.UW())

        def act(net=net, opt=opt):
            opt.backward([*net.losses(0)[:2], torch.nan * net.losses(0)[2]])
            opt.step()

        (message,) = spoken(act)
        assert "not finite" in message
        before = [p.clone() for p in net.parameters()]
        assert spoken(act) == [] and opt.skipped == 2 and same(before, list(net.parameters()))
