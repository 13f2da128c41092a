"""What MTAdam and AdaTask have in common: losses in any form, accumulation, skipped steps, checkpoints."""

from __future__ import annotations

import copy
import io
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict
from torch.utils.checkpoint import checkpoint

from madamoo.relatives import AdaTask, MTAdam

both = pytest.mark.parametrize("optimizer", [AdaTask, MTAdam])


class Model(nn.Module):
    def __init__(self, dtype=torch.float32):
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Linear(4, 5, dtype=dtype)
        self.heads = nn.ModuleList(nn.Linear(5, 1, dtype=dtype) for _ in range(3))

    def losses(self, step):
        x = torch.randn(8, 4, generator=torch.Generator().manual_seed(step)).to(self.body.weight)
        y = torch.tanh(self.body(x))
        return [10.0 ** (2 * i) * (head(y) - i).square().mean() for i, head in enumerate(self.heads)]

    def flat(self):
        return torch.cat([p.detach().flatten() for p in self.parameters()])


def train(model, opt, steps, form=list):
    for step in steps:
        opt.zero_grad()
        opt.backward(form(model.losses(step)))
        opt.step()
    return model.flat()


def named(losses):
    return dict(zip("abc", losses, strict=True))


def reversed_names(losses):
    return dict(reversed(named(losses).items()))


@both
def test_is_adam_for_one_objective(optimizer):
    torch.manual_seed(0)
    a, x0 = torch.rand(4, 3, dtype=torch.float64), torch.randn(4, 3, dtype=torch.float64)
    ours, theirs = x0.clone().requires_grad_(), x0.clone().requires_grad_()
    opt = optimizer([ours], lr=0.02, weight_decay=0.1)
    adam = torch.optim.AdamW([theirs], lr=0.02, weight_decay=0.1)
    for _ in range(100):
        noise = torch.randn_like(x0)
        opt.backward((a * (ours - noise).square()).sum())
        opt.step()
        adam.zero_grad()
        (a * (theirs - noise).square()).sum().backward()
        adam.step()
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-13)


@both
def test_every_form_of_losses_gives_the_same_steps(optimizer):
    first = Model(torch.float64)
    a = train(first, optimizer(first.parameters(), lr=0.01), range(5))
    for form in (torch.stack, tuple, named, lambda losses: torch.stack(losses) * 1.0):
        second = Model(torch.float64)
        b = train(second, optimizer(second.parameters(), lr=0.01), range(5), form)
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-13)


@both
def test_objectives_are_matched_by_name(optimizer):
    first, second = Model(), Model()
    a = train(first, optimizer(first.parameters()), range(4), named)
    opt = optimizer(second.parameters(), objectives=["a", "b", "c"])
    b = train(second, opt, range(4), reversed_names)
    assert torch.equal(a, b)
    assert opt.objectives == ("a", "b", "c")
    assert opt.weights is None
    with pytest.raises(ValueError, match="unknown objective"):
        opt.backward({"d": second.losses(0)[0]})
    with pytest.raises(TypeError, match="dict with the names"):
        opt.backward(second.losses(0))


@both
def test_a_head_has_moments_of_its_own_objective_only(optimizer):
    model = Model()
    opt = optimizer(model.parameters())
    train(model, opt, range(2))
    assert opt.state[model.body.weight]["first_moment"].shape == (3, 5, 4)
    assert opt.state[model.heads[1].weight]["objectives"] == [1]
    assert opt.state[model.heads[1].weight]["second_moment"].shape == (1, 1, 5)


@both
def test_accumulation_sums_until_the_step(optimizer):
    first, second = Model(torch.float64), Model(torch.float64)
    one, two = optimizer(first.parameters(), lr=0.01), optimizer(second.parameters(), lr=0.01)
    for step in range(5):
        one.zero_grad()
        one.backward([a + b for a, b in zip(first.losses(2 * step), first.losses(2 * step + 1), strict=True)])
        one.step()
        two.zero_grad()
        two.backward(second.losses(99))
        two.zero_grad()  # discards
        two.backward([*second.losses(2 * step)[:2], None])
        two.backward(second.losses(2 * step + 1))
        two.backward([None, None, second.losses(2 * step)[2]])
        two.step()
    torch.testing.assert_close(first.flat(), second.flat(), rtol=1e-12, atol=1e-13)


@both
def test_a_missing_objective_rests(optimizer):
    model = Model()
    opt = optimizer(model.parameters(), lr=0.01, weight_decay=0.1)
    train(model, opt, range(3))
    before, head = copy.deepcopy(opt.state[model.body.weight]), model.heads[1].weight.detach().clone()
    losses = model.losses(3)
    opt.backward([losses[0], None, losses[2]])
    opt.step()
    after = opt.state[model.body.weight]
    for name in ("first_moment", "second_moment", *(["norms"] if optimizer is MTAdam else [])):
        same = [bool(torch.equal(a, b)) for a, b in zip(before[name], after[name], strict=True)]
        assert same == [False, True, False]
    assert after["updates"] == [4, 3, 4]
    assert torch.equal(model.heads[1].weight, head)


@both
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_resumes_bit_for_bit(optimizer, dtype):
    def build():
        model = Model(dtype)
        groups = [{"params": model.body.parameters()}, {"params": model.heads.parameters(), "lr": 0.02}]
        return model, optimizer(groups, lr=0.01, weight_decay=0.01, objectives=["a", "b", "c"])

    def late(losses):  # the first batches lack an objective
        return {name: loss for name, loss in named(losses).items() if name != "b"}

    model, opt = build()
    train(model, opt, range(3), late)
    train(model, opt, range(3, 6), named)
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "opt": opt.state_dict()}, file)
    expected = train(model, opt, range(6, 12), named)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    other, fresh = build()
    other.load_state_dict(saved["model"])
    fresh.load_state_dict(saved["opt"])
    assert fresh.objectives == ("a", "b", "c")
    assert fresh.state[other.body.weight]["first_moment"].dtype == torch.promote_types(dtype, torch.float32)
    assert torch.equal(train(other, fresh, range(6, 12), named), expected)


@both
def test_a_loaded_state_is_the_saved_one(optimizer):
    """Also before the first step, and for a parameter that has none."""
    model = Model()
    opt = optimizer(model.parameters())
    again = optimizer(Model().parameters())
    again.load_state_dict(opt.state_dict())
    assert again.state_dict() == opt.state_dict()


@both
def test_a_loaded_state_is_a_copy(optimizer):
    first, second = Model(), Model()
    a, b = optimizer(first.parameters()), optimizer(second.parameters())
    b.load_state_dict(a.state_dict())  # before the first step
    train(first, a, range(3))
    b.load_state_dict(a.state_dict())
    moment = b.state[second.body.weight]["first_moment"].clone()
    train(first, a, range(3, 6))
    assert torch.equal(moment, b.state[second.body.weight]["first_moment"])
    assert b.state[second.body.weight]["updates"] == [3, 3, 3]


@both
def test_refuses_a_checkpoint_that_does_not_fit(optimizer):
    model = Model()
    opt = optimizer(model.parameters())
    train(model, opt, range(1), named)
    state = opt.state_dict()
    with pytest.raises(ValueError, match="lacks 'per_objective'"):
        opt.load_state_dict(torch.optim.Adam(model.parameters()).state_dict())
    with pytest.raises(ValueError, match="3 objectives, the optimizer has 2"):
        optimizer(model.parameters(), objectives=["a", "b"]).load_state_dict(state)
    with pytest.raises(ValueError, match="objectives are"):
        optimizer(model.parameters(), objectives=["a", "b", "d"]).load_state_dict(state)
    with pytest.raises(ValueError, match="group"):
        optimizer(model.body.parameters()).load_state_dict(state)


@both
def test_deepcopy_goes_on_alone(optimizer):
    model = Model()
    opt = optimizer(model.parameters(), lr=0.01)
    train(model, opt, range(3), named)
    twin, twin_opt = copy.deepcopy((model, opt))
    expected = train(twin, twin_opt, range(3, 6), named)
    assert twin_opt.objectives == ("a", "b", "c")
    assert not torch.equal(model.flat(), expected)
    assert torch.equal(train(model, opt, range(3, 6), named), expected)


@both
def test_a_step_that_is_not_finite_leaves_no_trace(optimizer):
    for bad in (float("nan"), float("inf"), 1e30):
        _spoil(optimizer, bad)


def _spoil(optimizer, bad):
    model = Model()
    opt = optimizer(model.parameters(), lr=0.01)
    train(model, opt, range(3))
    before, moments = model.flat(), copy.deepcopy(opt.state[model.body.weight])
    losses = model.losses(3)
    opt.backward(model.losses(4))
    with pytest.warns(UserWarning, match="not finite") as seen:
        opt.backward([losses[0], bad * losses[1], losses[2]])
    assert [w.filename for w in seen] == [__file__]
    opt.backward(model.losses(5))  # the whole step is lost
    opt.step()
    assert opt.skipped == 1
    assert torch.equal(before, model.flat())
    assert torch.equal(moments["second_moment"], opt.state[model.body.weight]["second_moment"])
    expected = Model()
    other = optimizer(expected.parameters(), lr=0.01)
    train(expected, other, range(3))
    assert torch.equal(train(model, opt, range(6, 9)), train(expected, other, range(6, 9)))
    assert opt.state_dict()["per_objective"]["skipped"] == 1


@both
def test_works_as_a_torch_optimizer(optimizer):
    model, other = Model(), Model()
    opt = optimizer([{"params": model.body.parameters()}], lr=torch.tensor(0.01))
    opt.add_param_group({"params": model.heads.parameters(), "lr": 0.0})
    heads = [p.detach().clone() for p in model.heads.parameters()]
    schedule = torch.optim.lr_scheduler.ExponentialLR(opt, 0.5)

    def closure():
        losses = model.losses(0)
        opt.backward(losses)
        return sum(losses).item()

    first = opt.step(closure)
    schedule.step()
    assert opt.step(closure) < first
    assert opt.param_groups[0]["lr"] == 0.005
    assert all(torch.equal(a, b) for a, b in zip(heads, model.heads.parameters(), strict=True))
    opt.zero_grad()
    opt.step()  # nothing to do
    untouched = optimizer(other.parameters())
    sum(other.losses(0)).backward()
    with pytest.raises(RuntimeError, match=r"call opt\.backward\(losses\) before step\(\)"):
        untouched.step()


@both
def test_frozen_and_unreached_parameters_stay(optimizer):
    model = Model()
    model.body.bias.requires_grad_(False)
    lonely = nn.Parameter(torch.ones(2))
    opt = optimizer([*model.parameters(), lonely], lr=0.01, weight_decay=0.1)
    bias = model.body.bias.clone()
    train(model, opt, range(3))
    assert torch.equal(model.body.bias, bias) and torch.equal(lonely, torch.ones(2))


@both
def test_the_graph_is_kept_on_request(optimizer):
    model = Model()
    opt = optimizer(model.parameters())
    losses = model.losses(0)
    opt.backward(losses, retain_graph=True)
    opt.backward(losses)
    with pytest.raises(RuntimeError, match="second time"):
        opt.backward(losses)
    opt.step()  # the two that succeeded


@both
def test_grad_shows_the_plain_sum(optimizer):
    """Nothing reads it but who looks at it; what a step takes is kept by objective."""
    model, control = Model(torch.float64), Model(torch.float64)
    opt, reference = optimizer(model.parameters(), lr=0.01), optimizer(control.parameters(), lr=0.01)
    for step in range(3):
        opt.zero_grad()
        opt.backward(model.losses(step))
        opt.backward(model.losses(10 + step))
        wanted = torch.autograd.grad(sum(model.losses(step)) + sum(model.losses(10 + step)), list(model.parameters()))
        torch.testing.assert_close([p.grad for p in model.parameters()], list(wanted), rtol=1e-10, atol=1e-10)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
        opt.step()
        reference.zero_grad()
        reference.backward(control.losses(step))
        reference.backward(control.losses(10 + step))
        reference.step()
    assert torch.equal(model.flat(), control.flat())


CLEAR = {
    "opt": lambda model, opt: opt.zero_grad(),
    "opt to zero": lambda model, opt: opt.zero_grad(set_to_none=False),
    "model": lambda model, opt: model.zero_grad(),
    "model to zero": lambda model, opt: model.zero_grad(set_to_none=False),
    "by hand": lambda model, opt: [setattr(p, "grad", None) for p in model.parameters()],
}


@settings(max_examples=40, deadline=None, derandomize=True, database=None)
@given(
    optimizer=st.sampled_from([AdaTask, MTAdam]),
    events=st.lists(st.sampled_from(["step", "micro", "step without", *CLEAR]), min_size=1, max_size=8),
)
def test_whoever_clears_the_gradients_discards_the_backward(optimizer, events):
    """A backward that was discarded is in no later step; the run equals that of the steps that were taken."""
    model, control = Model(), Model()
    opt, reference = (optimizer(m.parameters(), lr=0.01) for m in (model, control))
    for step, event in enumerate(events):
        pairs = [(model, opt), (control, reference)]
        if event in ("step", "micro"):
            for m, o in pairs:
                for part in range(1 + (event == "micro")):
                    o.backward(m.losses(step + 20 * part))
                o.step()
                m.zero_grad()
        else:
            opt.backward(model.losses(100 + step))
            CLEAR.get(event, CLEAR["model"])(model, opt)
            if event == "step without":
                opt.step()
    assert torch.equal(model.flat(), control.flat())
    assert _moments(model, opt) == _moments(control, reference)


def _moments(model, opt):
    """In plain numbers."""
    return [
        {k: v.tolist() if isinstance(v, torch.Tensor) else v for k, v in opt.state[p].items()}
        for p in model.parameters()
    ]


@both
def test_a_reentrant_checkpoint_is_refused_in_any_step(optimizer):
    model = Model()
    opt = optimizer(model.parameters())
    for later in range(2):
        x = torch.ones(2, 4, requires_grad=True)
        y = torch.tanh(checkpoint(model.body, x, use_reentrant=True))
        with pytest.raises(RuntimeError, match="use_reentrant=False"):
            opt.backward([head(y).sum() for head in model.heads])
        train(model, opt, range(later, later + 1))


@both
def test_scaled_losses_and_gradients_from_elsewhere_are_not_taken_in_silence(optimizer):
    model = Model()
    opt, scaler = optimizer(model.parameters()), torch.amp.GradScaler("cpu")
    with pytest.raises(ValueError, match="scaled by a GradScaler"):
        opt.backward([scaler.scale(loss) for loss in model.losses(0)])
    with pytest.raises(ValueError, match="neither a preference nor a scaler"):
        opt.backward(model.losses(0), scaler=scaler)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for step in range(2):
            opt.zero_grad()
            model.body.weight.square().sum().backward()
            opt.backward(model.losses(step))
            opt.step()
    assert [w.filename for w in seen] == [__file__] and "overwritten" in str(seen[0].message)


@both
def test_a_distributed_checkpoint_holds_everything(optimizer):
    model, other = Model(), Model()
    opt = optimizer(model.parameters(), lr=0.01)
    train(model, opt, range(3), named)
    state = copy.deepcopy(get_optimizer_state_dict(model, opt))
    other.load_state_dict(model.state_dict())
    fresh = optimizer(other.parameters(), lr=0.5)
    set_optimizer_state_dict(other, fresh, state)
    assert fresh.objectives == ("a", "b", "c") and "per_objective" not in fresh.param_groups[0]
    assert fresh.param_groups[0]["lr"] == 0.01  # restored, as torch does
    assert torch.equal(train(model, opt, range(3, 6), named), train(other, fresh, range(3, 6), named))


@both
def test_refuses_wrong_options(optimizer):
    for options, message in [
        ({"lr": -1.0}, "lr must be zero or positive"),
        ({"eps": 0.0}, "eps must be positive"),
        ({"weight_decay": -0.1}, "weight_decay must be zero or positive"),
        ({"betas": (0.9, 1.0)}, r"betas\[1\] must be at least 0 and below 1"),
        ({"objectives": ["a", "a"]}, "different names"),
    ]:
        with pytest.raises(ValueError, match=message):
            optimizer([torch.zeros(2, requires_grad=True)], **options)
