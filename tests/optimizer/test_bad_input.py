"""What cannot be trained on is refused with a reason or skipped, and the run goes on as if it had not been tried."""

import copy
import gc
import pickle
import warnings
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import Net, backward, inf_loss, nan_gradient, same, snapshot, train, wrap
from madamoo import MAdam, PreferenceMetric, solvers
from optimizer.cover import COVER, KINDS

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


@pytest.mark.parametrize("solver, estimator", KINDS[:5])
def test_bad_losses_are_refused_without_a_trace(solver, estimator):
    def attempt(net, opt):
        for make, error, match in BAD_LOSSES.values():
            with pytest.raises(error, match=match):
                opt.backward(make(net.losses(9)))

    _goes_on(solver, estimator, attempt)


@pytest.mark.parametrize("objectives", [NAMES, None], ids=["named ahead", "learned"])
def test_bad_named_losses_are_refused_without_a_trace(objectives):
    def attempt(net, opt):
        for make, error, match in BAD_NAMED_LOSSES.values():
            with pytest.raises(error, match=match):
                opt.backward(make(net.losses(9)))

    _goes_on("uw", "full", attempt, form=_named, objectives=objectives)


BAD_EXTRAS = {
    "a number": (lambda _: 0.1, TypeError, "extra must be a scalar tensor, got 0.1"),
    "a vector": (lambda x: torch.stack(x), TypeError, "extra must be a scalar tensor"),
    "without a graph": (lambda x: x[0].detach(), ValueError, "extra has no graph"),
    "whole numbers": (lambda _: torch.tensor(1), TypeError, "extra must be a real.*int64"),
}


def test_a_bad_extra_term_is_refused_without_a_trace():
    def attempt(net, opt):
        for make, error, match in BAD_EXTRAS.values():
            with pytest.raises(error, match=match):
                opt.backward(net.losses(9), extra=make(net.losses(9)))

    _goes_on("cagrad", "full", attempt)


def test_losses_one_by_one_are_refused_with_the_right_call():
    def attempt(net, opt):
        a, b, _ = net.losses(9)
        with pytest.raises(TypeError, match=r"backward\(\[loss_1, loss_2\]\), not backward\(l1, l2\)"):
            opt.backward(a, b)

    for solver, estimator in KINDS[:5]:
        _goes_on(solver, estimator, attempt)


def test_features_without_their_option_are_refused_without_a_trace():
    def attempt(net, opt):
        with pytest.raises(ValueError, match="features are for an optimizer built with gram='features'"):
            opt.backward(net.losses(9), features=net.trunk(torch.zeros(1, 4, dtype=torch.float64)))

    _goes_on("mgda", None, attempt)


def test_bad_preferences_are_refused_without_a_trace():
    def attempt(net, opt):
        for vector, match in BAD_PREFERENCES.values():
            with pytest.raises(ValueError, match=match):
                opt.backward(net.losses(9), vector)

    _goes_on("preference", "pair", attempt)


def test_a_preference_for_a_solver_that_takes_none_is_refused_without_a_trace():
    def attempt(net, opt):
        with pytest.raises(ValueError, match="takes no preference"):
            opt.backward(net.losses(9), [0.2, 0.3, 0.5])

    for solver, estimator in KINDS[:6]:
        _goes_on(solver, estimator, attempt)


def test_bad_options_are_refused():
    for options, error, match in [
        ({"objectives": ["a", "a"]}, ValueError, "'a' twice"),
        ({"objectives": ["a", 1]}, TypeError, "strings, got 1"),
        ({"head_weights": "one"}, ValueError, "head_weights"),
        ({"rows": "some"}, ValueError, "rows"),
        ({"gram": "heads"}, ValueError, "gram"),
        ({"max_norm": 0.0}, ValueError, "max_norm must be positive"),
        ({"max_norm": -1.0}, ValueError, "max_norm must be positive"),
        ({"max_norm": float("nan")}, ValueError, "max_norm must be positive"),
        ({"max_norm": "1"}, ValueError, "max_norm must be positive.*'1'"),
        ({"objectives": "ab"}, TypeError, "a sequence of names, got the one name 'ab'"),
        ({"objectives": []}, ValueError, "objectives must hold at least one name"),
        ({"clip": 1.0}, TypeError, "no option 'clip'; there are .*max_norm"),
    ]:
        with pytest.raises(error, match=match):
            wrap(Net(), **options)
        with pytest.raises(error, match=match):
            MAdam(Net().parameters(), **options)


def test_weights_for_another_number_of_objectives_are_refused():
    net = Net()
    opt = MAdam(net.parameters(), solver=solvers.LS([0.5, 0.5]))
    with pytest.raises(ValueError, match="3 entries"):
        opt.backward(net.losses(0))
    assert same(list(net.parameters()), list(Net().parameters()))


def _nan_loss(losses):
    return [losses[0], losses[1] * torch.nan, *losses[2:]]


def _minus_inf_loss(losses):
    return [losses[0], losses[1] * -torch.inf, *losses[2:]]


def _nan_stack(losses):
    return torch.stack(_nan_loss(losses))


@pytest.mark.filterwarnings("ignore:.*is not finite")
@pytest.mark.parametrize("solver, estimator", COVER)
def test_what_is_not_finite_is_skipped_without_a_trace(solver, estimator):
    net, control = Net(), Net()
    opt, reference = wrap(net, solver, estimator), wrap(control, solver, estimator)
    for t, spoil in enumerate([_nan_loss, inf_loss, _minus_inf_loss, nan_gradient, _nan_stack]):
        opt.zero_grad()
        opt.backward(spoil(net.losses(9)))
        opt.step()
        train(net, opt, 1, start=t)
        train(control, reference, 1, start=t)
    assert opt.skipped == 5
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
@pytest.mark.parametrize("solver, estimator", COVER)
def test_gradients_of_any_size_leave_finite_parameters(solver, estimator):
    for scale, dtype in product(SCALES, [torch.float32, torch.float64] if solver in BOUNDED else [torch.float32]):
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


@pytest.mark.parametrize("piece", ["solver", "metric"])
def test_a_solver_or_a_metric_belongs_to_one_optimizer(piece):
    """In two, each would have half of the steps, and the other's; a copy is free, and so is what was let go."""

    def build(thing, net=None):
        pieces = {"solver": solvers.UW(), "metric": PreferenceMetric("full"), piece: thing}
        return MAdam((Net() if net is None else net).parameters(), **pieces)

    def losses(opt):
        p = opt.param_groups[0]["params"][0]
        return [p.sum(), p.square().sum()]

    thing = {"solver": solvers.UW, "metric": lambda: PreferenceMetric("full")}[piece]()
    first, second, net = build(thing), build(thing), Net()
    train(net, build(copy.deepcopy(thing), net), 2)
    first.backward(losses(first))
    first.step()
    before = copy.deepcopy(first.state_dict())
    with pytest.raises(ValueError, match=f"this {type(thing).__name__} is in use by another optimizer"):
        second.backward(losses(second))
    assert same(before, first.state_dict())
    for copied in (copy.deepcopy(first), pickle.loads(pickle.dumps(first))):
        copied.backward(losses(copied))
        copied.step()
    first.zero_grad()
    first.backward(losses(first))
    del first, copied
    gc.collect()
    second.backward(losses(second))
    third = build(thing)
    with pytest.raises(ValueError, match="in use by another optimizer"):  # it is the second's now
        third.backward(losses(third))


def test_names_do_not_come_later():
    """Which entry of a dict is the first of an earlier list, nobody knows."""
    net = Net()
    opt = MAdam(net.parameters())
    train(net, opt, 1)
    before = snapshot(net, opt)
    with pytest.raises(TypeError, match="dict"):
        opt.backward(_named(net.losses(1)))
    assert same(snapshot(net, opt), before)
