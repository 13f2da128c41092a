"""What cannot be trained on is refused with a reason or skipped, and the run goes on as if it had not been tried."""

import copy
import gc
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import COVER, Net, backward, inf_loss, nan_gradient, same, snapshot, train, wrap
from madamoo import MAdam, PreferenceMetric, solvers

NAMES = ["a", "b", "c"]


def _named(losses):
    return dict(zip(NAMES, losses, strict=True))


# what is wrong: (losses, error, message)
BAD_LOSSES = {
    "none, a list": (lambda _: [], ValueError, "at least one objective"),
    "none, a dict": (lambda _: {}, ValueError, "at least one objective|dict|sequence|3 objectives"),
    "none, a tensor": (lambda _: torch.empty(0, requires_grad=True), ValueError, "at least one objective"),
    "all missing": (lambda _: [None] * 3, ValueError, "at least one objective"),
    "one not a scalar": (lambda x: [x[0], torch.stack(x[:2]), x[2]], ValueError, "loss 1 must be a scalar.*2"),
    "a matrix": (lambda x: torch.stack(x)[None], ValueError, r"1-D.*\(1, 3\)"),
    "one without a graph": (lambda x: [x[0], x[1].detach(), x[2]], ValueError, "loss 1 has no graph"),
    "a tensor without a graph": (lambda x: torch.stack(x).detach(), ValueError, "no graph"),
    "a number": (lambda x: [x[0], 1.0, x[2]], TypeError, "loss 1 must be a tensor, got float"),
    "whole numbers": (lambda x: [x[0], torch.tensor(1), x[2]], TypeError, "loss 1 must be .*int64"),
    "a string": (lambda _: "abc", TypeError, "losses must be"),
    "fewer than before": (lambda x: x[:2], ValueError, "3 objectives, as before, got 2"),
    "more than before": (lambda x: [*x, x[0] + x[1]], ValueError, "3 objectives, as before, got 4"),
}
BAD_NAMED_LOSSES = {
    "an unknown name": (lambda x: {**_named(x), "d": x[0] + x[1]}, ValueError, "unknown objective.*d"),
    "no names": (lambda x: x, TypeError, "a dict with the names"),
    "nothing": (lambda _: {}, ValueError, "at least one objective"),
}
BAD_PREFERENCES = {
    "negative": ([0.5, -0.1, 0.6], "preference must be finite and not negative"),
    "too short": ([0.5, 0.5], "preference must have 3 entries"),
    "a matrix": ([[0.5, 0.5, 0.5]], "preference must be a vector"),
    "zero": ([0.0, 0.0, 0.0], "preference must not sum to zero"),
    "NaN": ([0.5, torch.nan, 0.5], "preference must be finite"),
    "infinite": ([0.5, torch.inf, 0.5], "preference must be finite"),
    "names that the losses lack": ({"a": 1.0, "b": 1.0, "c": 1.0}, "preference must name"),
}


def _goes_on(solver, estimator, attempt, form=list, objectives=None):
    """Run with a bad ``attempt`` between two steps, and another between two micro-batches of one step."""
    nets = [Net(), Net()]
    opts = [wrap(net, solver, estimator, objectives=objectives) for net in nets]
    for net, opt in zip(nets, opts, strict=True):
        for t in range(3):
            opt.zero_grad()
            opt.backward(form(net.losses(t, 0, 2)))
            if opt is opts[0] and t == 2:
                attempt(net, opt)
            opt.backward(form(net.losses(t, 1, 2)))
            opt.step()
            if opt is opts[0]:
                before, weights = snapshot(net, opt), opt.weights
                attempt(net, opt)
                assert opt.weights is weights
                assert same(before, snapshot(net, opt))
    assert same(*map(snapshot, nets, opts))
    assert opts[0].skipped == 0


@pytest.mark.parametrize("solver, estimator", [("rlw", "pair"), ("uw", "full"), ("cagrad", "full"), ("ls", None)])
@pytest.mark.parametrize("what", BAD_LOSSES)
def test_bad_losses_are_refused_without_a_trace(what, solver, estimator):
    make, error, match = BAD_LOSSES[what]

    def attempt(net, opt):
        with pytest.raises(error, match=match):
            opt.backward(make(net.losses(9)))

    _goes_on(solver, estimator, attempt)


@pytest.mark.parametrize("objectives", [NAMES, None], ids=["named ahead", "learned"])
@pytest.mark.parametrize("what", BAD_NAMED_LOSSES)
def test_bad_named_losses_are_refused_without_a_trace(what, objectives):
    make, error, match = BAD_NAMED_LOSSES[what]

    def attempt(net, opt):
        with pytest.raises(error, match=match):
            opt.backward(make(net.losses(9)))

    _goes_on("uw", "full", attempt, form=_named, objectives=objectives)


@pytest.mark.parametrize("what", BAD_PREFERENCES)
def test_bad_preferences_are_refused_without_a_trace(what):
    vector, match = BAD_PREFERENCES[what]

    def attempt(net, opt):
        with pytest.raises(ValueError, match=match):
            opt.backward(net.losses(9), vector)

    _goes_on("preference", "pair", attempt)


@pytest.mark.parametrize("solver", [s for s in solvers.available() if not solvers.get(s).uses_preference])
def test_a_preference_for_a_solver_that_takes_none_is_refused_without_a_trace(solver):
    def attempt(net, opt):
        with pytest.raises(ValueError, match="takes no preference"):
            opt.backward(net.losses(9), [0.2, 0.3, 0.5])

    _goes_on(solver, "full", attempt)


@pytest.mark.parametrize(
    "objectives, error, match",
    [(["a", "a"], ValueError, "'a' twice"), (["a", 1], TypeError, "strings, got 1")],
)
def test_bad_names_are_refused(objectives, error, match):
    with pytest.raises(error, match=match):
        wrap(Net(), objectives=objectives)


def test_weights_for_another_number_of_objectives_are_refused():
    net = Net()
    opt = MAdam(net.parameters(), solver=solvers.LS([0.5, 0.5]))
    with pytest.raises(ValueError, match="2 objectives, got 3"):
        opt.backward(net.losses(0))
    assert same(list(net.parameters()), list(Net().parameters()))


def _nan_loss(losses):
    return [losses[0], losses[1] * torch.nan, *losses[2:]]


def _minus_inf_loss(losses):
    return [losses[0], losses[1] * -torch.inf, *losses[2:]]


def _nan_stack(losses):
    return torch.stack(_nan_loss(losses))


@pytest.mark.filterwarnings("ignore:.*is not finite")
@pytest.mark.parametrize("spoil", [_nan_loss, inf_loss, _minus_inf_loss, nan_gradient, _nan_stack])
@pytest.mark.parametrize("solver, estimator", COVER)
def test_what_is_not_finite_is_skipped_without_a_trace(spoil, solver, estimator):
    net, control = Net(), Net()
    opt, reference = wrap(net, solver, estimator), wrap(control, solver, estimator)
    for t in range(3):
        opt.zero_grad()
        opt.backward(spoil(net.losses(9)))
        opt.step()
        train(net, opt, 1, start=t)
        train(control, reference, 1, start=t)
    assert opt.skipped == 3
    assert same(snapshot(net, opt), snapshot(control, reference))


SCALES = {
    "zero": [0.0, 0.0, 0.0],
    "one zero": [0.0, 1.0, 1.0],
    "tiny": [1e-30, 1e-30, 1e-30],
    "huge": [1e30, 1e30, 1e30],
    "mixed": [1e-15, 1.0, 1e15],
}
BOUNDED = ("ls", "rlw", "uw", "mgda", "cagrad")  # others' weights may grow as gradients vanish


@pytest.mark.filterwarnings("ignore:.*is not finite")
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize(
    "solver, estimator, dtype",
    [(*case, torch.float32) for case in COVER] + [(*case, torch.float64) for case in COVER if case[0] in BOUNDED],
)
def test_gradients_of_any_size_leave_finite_parameters(scale, solver, estimator, dtype):
    net = Net(dtype=dtype)
    opt = wrap(net, solver, estimator)
    train(net, opt, 1)
    for t in range(1, 4):
        opt.zero_grad()
        opt.backward([s * loss for s, loss in zip(SCALES[scale], net.losses(t), strict=True)])
        assert torch.isfinite(opt.weights).all()
        opt.step()
    if solver in BOUNDED:
        too_large_to_square = scale == "huge" and estimator is not None and dtype == torch.float32
        assert opt.skipped == (3 if too_large_to_square else 0)
    train(net, opt, 2, start=4)
    assert all(torch.isfinite(p).all() for p in net.parameters())


def test_zero_gradients_do_not_move_the_parameters(dtype):
    for solver, estimator in COVER:
        net = Net(dtype=dtype)
        opt = wrap(net, solver, estimator, inner=lambda net: torch.optim.SGD(net.parameters(), lr=0.1))
        opt.backward([0.0 * loss for loss in net.losses(0)])
        opt.step()
        assert same(list(net.parameters()), list(Net(dtype=dtype).parameters())), (solver, estimator)


SKIPPED = {"nan loss": _nan_loss, "inf loss": inf_loss, "nan gradient": nan_gradient}
REFUSED = ["none, a list", "one without a graph", "one not a scalar", "a number"]


@settings(max_examples=40, deadline=None, derandomize=True, database=None)
@given(
    case=st.sampled_from(COVER),
    events=st.lists(st.sampled_from(["good", "zero", "micro", "discarded", *SKIPPED, *REFUSED]), max_size=8),
)
def test_any_sequence_of_good_and_bad_batches_equals_its_good_ones(case, events):
    net, control = Net(), Net()
    opt, reference = wrap(net, *case), wrap(control, *case)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for t, event in enumerate(events):
            opt.zero_grad()
            if event in ("good", "micro"):
                for n, o in [(net, opt), (control, reference)]:
                    train(n, o, 1, start=t, parts=1 if event == "good" else 2)
            elif event == "zero":
                for n, o in [(net, opt), (control, reference)]:
                    o.zero_grad()
                    o.backward([0.0 * loss for loss in n.losses(t)])
                    o.step()
            elif event == "discarded":
                backward(net, opt, t)
            elif event in SKIPPED:
                opt.backward(SKIPPED[event](net.losses(t)))
                opt.step()
            else:
                make, error, match = BAD_LOSSES[event]
                with pytest.raises(error, match=match):
                    opt.backward(make(net.losses(t)))
    assert same(snapshot(net, opt), snapshot(control, reference))
    assert opt.skipped == sum(event in SKIPPED for event in events)
    assert all(torch.isfinite(p).all() for p in net.parameters())


def test_complex_parameters_are_refused():
    p = torch.nn.Parameter(torch.zeros(3, dtype=torch.complex64))
    with pytest.raises(TypeError, match="complex"):
        MAdam([p]).backward([(p - 1).abs().square().sum()])


def test_a_metric_belongs_to_one_optimizer():
    metric = PreferenceMetric()
    first, second = (MAdam(Net().parameters(), metric=metric) for _ in range(2))
    net = Net()
    third = MAdam(net.parameters(), metric=copy.deepcopy(metric))
    train(net, third, 2)
    p = first.param_groups[0]["params"][0]
    first.backward([p.sum()])
    p = second.param_groups[0]["params"][0]
    with pytest.raises(ValueError, match="another optimizer"):
        second.backward([p.sum()])
    copied = copy.deepcopy(first)
    copied.backward([copied.param_groups[0]["params"][0].sum()])
    del first
    gc.collect()
    second.backward([p.sum()])


def test_names_do_not_come_later():
    """Which entry of a dict is the first of an earlier list, nobody knows."""
    net = Net()
    opt = MAdam(net.parameters())
    train(net, opt, 1)
    before = snapshot(net, opt)
    with pytest.raises(TypeError, match="dict"):
        opt.backward(_named(net.losses(1)))
    assert same(snapshot(net, opt), before)
