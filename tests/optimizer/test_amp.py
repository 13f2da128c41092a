"""Mixed precision: a GradScaler changes nothing but what overflows, and what overflows leaves no trace."""

import copy
import re
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import Net, backward, inf_loss, nan_gradient, same, same_params, snapshot, train, wrap
from madamoo import MAdam, MultiObjective, PreferenceMetric, solvers
from optimizer.cover import KINDS, sgd

cases = pytest.mark.parametrize("solver, estimator", KINDS[:6])


def scaled_step(opt, scaler, losses):
    opt.zero_grad()
    opt.backward(losses, scaler=scaler)
    scaler.step(opt)
    scaler.update()


@cases
def test_a_scaler_changes_nothing(solver, estimator):
    for dtype in (torch.float32, torch.float64):
        net, control = Net(dtype=dtype), Net(dtype=dtype)
        opt, scaler = wrap(net, solver, estimator, inner=sgd), torch.amp.GradScaler("cpu", init_scale=2.0**12)
        train(control, wrap(control, solver, estimator, inner=sgd), 5)
        for t in range(5):
            scaled_step(opt, scaler, net.losses(t))
        assert same_params(net, control)  # bit for bit: the scale is a power of two


def test_gradients_can_be_unscaled_and_clipped_before_the_step():
    net, control = Net(), Net()
    opt, reference = wrap(net, "cagrad", "full", inner=sgd), wrap(control, "cagrad", "full", inner=sgd)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)
    for t in range(3):
        opt.zero_grad()
        opt.backward(net.losses(t), scaler=scaler)
        scaler.unscale_(opt)
        norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 0.1)
        scaler.step(opt)
        scaler.update()
        reference.zero_grad()
        reference.backward(control.losses(t))
        assert norm == torch.nn.utils.clip_grad_norm_(control.parameters(), 0.1)
        reference.step()
    assert same_params(net, control)


@cases
def test_an_overflow_leaves_no_trace(solver, estimator):
    net, control = Net(), Net()
    opt, scaler = wrap(net, solver, estimator, inner=sgd), torch.amp.GradScaler("cpu", init_scale=2.0**12)
    train(control, wrap(control, solver, estimator, inner=sgd), 5)
    for t in range(5):
        if t in (0, 3):
            before, scale = snapshot(net, opt), scaler.get_scale()
            scaled_step(opt, scaler, (inf_loss if t else nan_gradient)(net.losses(100)))
            assert same(before, snapshot(net, opt))
            assert scaler.get_scale() == scale / 2
        scaled_step(opt, scaler, net.losses(t))
    assert opt.skipped == 2
    assert same_params(net, control)


def test_after_an_overflow_the_model_may_clear_the_gradients():
    for set_to_none in (True, False):
        net, control = Net(), Net()
        opt, scaler = wrap(net, "uw", "full", inner=sgd), torch.amp.GradScaler("cpu")
        train(control, wrap(control, "uw", "full", inner=sgd), 3)
        for t in (0, None, 1, 2):
            net.zero_grad(set_to_none)
            opt.backward(inf_loss(net.losses(100)) if t is None else net.losses(t), scaler=scaler)
            scaler.step(opt)
            scaler.update()
        assert same_params(net, control)


def test_the_scaler_finds_a_scale_that_fits():
    """The first scales are too large for the gradients of a good batch; it is tried again until one fits."""
    net, control = Net(dtype=torch.float32), Net(dtype=torch.float32)
    large = PreferenceMetric("full", ramp="paper")  # at the start of this ramp-up gradients have the losses' own scale

    def losses(t, of=net):
        return [100.0 * loss for loss in of.losses(t)]

    plain = MultiObjective(sgd(control), solvers.UW(), copy.deepcopy(large))
    for t in range(4):
        plain.zero_grad()
        plain.backward(losses(t, control))
        plain.step()
    opt, scaler = MultiObjective(sgd(net), solvers.UW(), large), torch.amp.GradScaler("cpu", init_scale=2.0**127)
    for t in range(4):
        while opt.metric.steps == t:
            scaled_step(opt, scaler, losses(t))
    assert scaler.get_scale() < 2.0**127
    assert same_params(net, control)


@cases
def test_without_a_scaler_a_bad_step_is_skipped_counted_and_warned_of_once(solver, estimator):
    net = Net()
    opt = wrap(net, solver, estimator)
    train(net, opt, 2)
    before = snapshot(net, opt)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for t in range(4):
            opt.zero_grad()
            opt.backward((inf_loss, nan_gradient)[t % 2](net.losses(t)))
            opt.step()
    assert same(before, snapshot(net, opt))
    assert opt.skipped == 4
    assert [w.filename for w in seen] == [__file__] and "not finite" in str(seen[0].message)


@pytest.mark.filterwarnings("ignore:.*is not finite")
def test_one_bad_micro_batch_spoils_its_step_and_no_other():
    for bad in range(3):
        net, control = Net(), Net()
        opt, reference = wrap(net, "uw", "full"), wrap(control, "uw", "full")
        for t in range(3):
            if t == 1:
                opt.zero_grad()
                for part in range(3):
                    losses = net.losses(50, part, 3)
                    opt.backward(nan_gradient(losses) if part == bad else losses)
                opt.step()
            train(net, opt, 1, start=t)
            train(control, reference, 1, start=t)
        assert opt.skipped == 1
        assert same(snapshot(net, opt), snapshot(control, reference))


SCALED = {
    "list": lambda losses, scale: [scale(loss) for loss in losses],
    "stack": lambda losses, scale: torch.stack([scale(loss) for loss in losses]),
    "vector": lambda losses, scale: scale(torch.stack(losses)),
    "dict": lambda losses, scale: {str(i): scale(loss) for i, loss in enumerate(losses)},
}


@given(power=st.integers(4, 24), form=st.sampled_from(list(SCALED.values())))
@settings(max_examples=20, deadline=None, derandomize=True, database=None)
def test_scaled_losses_without_the_scaler_are_refused_without_a_trace(power, form):
    """Averages of scaled gradients would be wrong by the square of a scale that moves."""
    net = Net(dtype=torch.float32)
    opt, scaler = wrap(net, "uw", "full"), torch.amp.GradScaler("cpu", init_scale=2.0**power)
    before = snapshot(net, opt)
    with pytest.raises(ValueError, match=rf"by {re.escape(f'{2.0**power:g}')}: .*scaler=scaler"):
        opt.backward(form(net.losses(0), scaler.scale))
    assert same(before, snapshot(net, opt)) and all(p.grad is None for p in net.parameters())
    opt.backward(net.losses(0), scaler=scaler)
    scaler.step(opt)
    assert opt.metric.steps == 1


def test_losses_with_factors_of_their_own_are_not_taken_for_scaled():
    """A weight of 1000, or of 16, on a loss is no GradScaler."""
    for factors in ([1000.0, 1000.0, 1000.0], [16.0, 32.0, 64.0], [16.0, 16.0, 16.0]):
        net = Net()
        opt = wrap(net, "uw", "full")
        own = [torch.tensor(factor, dtype=torch.float64) for factor in factors]
        opt.backward([loss * factor for loss, factor in zip(net.losses(0), own, strict=True)])
        opt.zero_grad()
        opt.backward([loss * factor for loss, factor in zip(net.losses(0), factors, strict=True)])
        opt.step()
        assert opt.metric.steps == 1


def test_the_scaler_divides_by_the_scale_not_the_inner_optimizer():
    net = Net(dtype=torch.float32)
    opt = MAdam(net.parameters())
    assert not opt._step_supports_amp_scaling
    control = Net(dtype=torch.float32)
    train(control, MAdam(control.parameters()), 3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    for t in range(3):
        scaled_step(opt, scaler, net.losses(t))
    assert same_params(net, control)


def test_a_scaler_that_is_off_is_none():
    net, control = Net(), Net()
    train(control, wrap(control, "cagrad", "full"), 3)
    opt, scaler = wrap(net, "cagrad", "full"), torch.amp.GradScaler("cpu", enabled=False)
    for t in range(3):
        scaled_step(opt, scaler, net.losses(t))
    assert same_params(net, control)


@pytest.mark.parametrize("solver", ["ls", "cagrad"])
def test_autocast_to_bfloat16_trains(solver):
    net = Net(dtype=torch.float32)
    opt = MAdam(net.parameters(), lr=0.03, solver=solver)
    history = []
    for _ in range(60):
        opt.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            losses = net.losses(0)
        opt.backward(losses)
        assert all(p.grad.dtype == torch.float32 for p in net.parameters())
        opt.step()
        history.append(sum(losses).item())
    assert history[-1] < 0.3 * history[0]


def test_bfloat16_parameters_have_bfloat16_gradients_and_float32_averages():
    net = Net(dtype=torch.bfloat16)
    opt = wrap(net, "cagrad", "full")
    backward(net, opt, 0)
    assert all(p.grad.dtype == torch.bfloat16 for p in net.parameters())
    opt.step()
    assert {a.F.dtype for a in opt.metric.averages} == {torch.float32}


@pytest.mark.parametrize("solver, estimator", [*KINDS[:6], ("mgda", None)])
def test_backward_inside_an_autocast_region(solver, estimator):
    """Where the region ends is a matter of taste: the products of gradients are made in full precision anyway."""
    inside, outside = (Net(dtype=torch.float32) for _ in range(2))
    for net in (inside, outside):
        opt = wrap(net, solver, estimator)
        for t in range(5):
            opt.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                losses = [loss.float() for loss in net.losses(t)]
                if net is inside:
                    opt.backward(losses)
                    opt.step()
            if net is outside:
                opt.backward(losses)
                opt.step()
    assert same_params(inside, outside)
