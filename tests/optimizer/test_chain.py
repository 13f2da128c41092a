"""Several inner optimizers: together they are what each would be alone, and together one torch optimizer."""

import copy
import pickle

import pytest
import torch
from torch.optim.lr_scheduler import LambdaLR, OneCycleLR, StepLR
from torch.optim.optimizer import register_optimizer_step_pre_hook

from helpers import Net, inf_loss, metric, same, same_params, snapshot, train
from madamoo import MultiObjective, PreferenceMetric, diagnostics, solvers
from madamoo.optimizer import Chain

pytestmark = pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="torch has Muon since 2.9")


def parts(net):
    """The matrices, and the rest."""
    return [[p for p in net.parameters() if (p.ndim == 2) == matrices] for matrices in (True, False)]


def inners(net):
    matrices, rest = parts(net)
    groups = [{"params": rest[:1], "lr": 0.03}, {"params": rest[1:]}]
    return [torch.optim.Muon(matrices, lr=1e-2), torch.optim.AdamW(groups, lr=1e-2, betas=(0.8, 0.95))]


def wrapped(net, solver="uw", estimator="full"):
    return MultiObjective(inners(net), solvers.get(solver), metric(estimator))


@pytest.mark.parametrize("wrap", (Chain, MultiObjective))
def test_it_equals_the_optimizers_one_by_one(wrap):
    net, plain = Net(), Net()
    opt, apart = wrap(inners(net)), inners(plain)
    for t in range(5):
        opt.zero_grad()
        if wrap is Chain:
            (sum(net.losses(t)) / 3).backward()
        else:
            opt.backward(net.losses(t))
        for p, q in zip(net.parameters(), plain.parameters(), strict=True):
            q.grad = p.grad.clone()
        opt.step()
        for inner in apart:
            inner.step()
        assert same_params(net, plain)
    assert not same_params(net, Net())


def test_with_a_metric_adam_in_two_pieces_equals_adam():
    for estimator in (None, "full", "pair", "separable"):
        net, control = Net(), Net()
        one = torch.optim.AdamW([{"params": params} for params in parts(control)], lr=1e-2)
        two = [torch.optim.AdamW(params, lr=1e-2) for params in parts(net)]
        opts = [MultiObjective(inner, solvers.get("rlw"), metric(estimator)) for inner in (one, two)]
        train(control, opts[0], 5)
        train(net, opts[1], 5)
        assert same(snapshot(net, opts[1]), snapshot(control, opts[0])), "parameters, averages and state dicts"


def test_the_metrics_decay_is_that_of_each_optimizer():
    """Whose group has no betas, as Muon's, has Adam's usual one."""
    net = Net()
    opt = wrapped(net)
    seen = set()

    class Spy(type(opt.metric)):
        def precondition(self, x, beta, measurement):
            seen.add((tuple(p.ndim for p in x.block.params), beta))
            return super().precondition(x, beta, measurement)

    opt.metric.__class__ = Spy
    train(net, opt, 1)
    assert {beta for dims, beta in seen if 2 in dims} == {0.999}
    assert {beta for dims, beta in seen if 2 not in dims} == {0.95}


def test_a_group_that_is_added_leaves_the_others_their_decay():
    """Added to the first optimizer, it comes before those of the second."""
    w, b, new = (torch.nn.Parameter(torch.ones(2, dtype=torch.float64)) for _ in range(3))
    sgd, adamw = torch.optim.SGD([w], lr=0.1), torch.optim.AdamW([b], lr=0.1, betas=(0.9, 0.75))
    opt = MultiObjective([sgd, adamw], "ls", PreferenceMetric(rampup=0))
    opt.backward([1e-4 * (w + b).sum()])
    opt.step()
    sgd.add_param_group({"params": [new]})
    opt.zero_grad()
    opt.backward([(w + b + new).sum()])
    C = 0.25 / (1 - 0.75**2)  # of b
    torch.testing.assert_close(b.grad, torch.full_like(b, C**-0.5), rtol=1e-5, atol=0)


def test_groups_are_the_inner_ones_and_the_rest_is_joined():
    net = Net()
    muon, adamw = inners(net)
    opt = Chain([muon, adamw])
    for _ in range(2):
        assert [id(g) for g in opt.param_groups] == [id(g) for g in (*muon.param_groups, *adamw.param_groups)]
        (sum(net.losses(0))).backward()
        opt.step()
        assert {id(s) for s in opt.state.values()} == {id(s) for o in (muon, adamw) for s in o.state.values()}
        opt.load_state_dict(copy.deepcopy(opt.state_dict()))
    assert opt.state[torch.zeros(1)] == {} and len(opt.state) == len(list(net.parameters()))
    assert {"lr", "weight_decay", "eps"} <= opt.defaults.keys() and "betas" not in opt.defaults
    assert repr(opt).startswith("Chain(Muon (") and "AdamW (" in repr(opt)


SCHEDULERS = {"StepLR": lambda opt: StepLR(opt, 2, 0.5), "LambdaLR": lambda opt: LambdaLR(opt, lambda t: 1 / (1 + t))}


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_a_scheduler_on_all_equals_one_scheduler_on_each(scheduler):
    nets = [Net(), Net()]
    for together, net in enumerate(nets):
        opt = wrapped(net)
        on = [opt] if together else opt.optimizer.optimizers
        schedules = [SCHEDULERS[scheduler](each) for each in on]
        for t in range(6):
            train(net, opt, 1, start=t)
            for schedule in schedules:
                schedule.step()
        assert [g["initial_lr"] for g in opt.param_groups] == [1e-2, 0.03, 1e-2]
        assert opt.param_groups[0]["lr"] < 1e-2 and opt.param_groups[1]["lr"] < 0.03
    assert same_params(*nets)


def test_a_scheduler_of_momentum_says_that_not_all_have_it():
    opt = wrapped(Net())
    with pytest.raises(ValueError, match="momentum or beta1"):
        OneCycleLR(opt, max_lr=0.1, total_steps=10)
    OneCycleLR(opt, max_lr=0.1, total_steps=10, cycle_momentum=False)


@pytest.mark.parametrize("moved", [None, torch.float32, torch.bfloat16])
def test_resumed_from_a_file_the_next_steps_are_the_same(tmp_path, moved):
    dtype = moved or torch.float64
    net = Net(dtype=dtype)
    opt = wrapped(net)
    train(net, opt, 3)
    torch.save({"net": net.state_dict(), "opt": opt.state_dict()}, tmp_path / "file.pt")
    train(net, opt, 3, start=3)
    saved = torch.load(tmp_path / "file.pt", weights_only=True)
    fresh = Net(dtype=dtype)
    again = wrapped(fresh)
    again.param_groups[0]["lr"] = 5.0  # what the checkpoint has counts
    fresh.load_state_dict(saved["net"])
    again.load_state_dict(saved["opt"])
    train(fresh, again, 3, start=3)
    assert same(snapshot(net, opt), snapshot(fresh, again))


def test_a_distributed_checkpoint_carries_it():
    """It names parameters instead of numbering them."""
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict

    net = Net()
    opt = wrapped(net)
    train(net, opt, 3)
    saved, weights = copy.deepcopy((get_optimizer_state_dict(net, opt), net.state_dict()))
    train(net, opt, 2, start=3)
    fresh = Net()
    fresh.load_state_dict(weights)
    again = wrapped(fresh)
    set_optimizer_state_dict(fresh, again, saved)
    train(fresh, again, 2, start=3)
    assert same_params(net, fresh)


class Counting(torch.optim.SGD):
    """Keeps something of its own, in its state dict and under a name in its state."""

    count = 0

    def step(self, closure=None):
        self.count += 1
        self.state["all"] = {"count": self.count}
        return super().step(closure)

    def state_dict(self):
        return {**super().state_dict(), "count": self.count}

    def load_state_dict(self, state):
        self.count = state["count"]
        super().load_state_dict({key: value for key, value in state.items() if key != "count"})


def test_what_an_optimizer_keeps_besides_is_kept():
    net = Net()
    matrices, rest = parts(net)
    opt = Chain([torch.optim.Adam(matrices), Counting(rest, lr=0.1)])
    for _ in range(3):
        opt.step()
    saved = copy.deepcopy(opt.state_dict())
    fresh = Chain([torch.optim.Adam(matrices), Counting(rest, lr=0.2)])
    fresh.load_state_dict(saved)
    assert fresh.optimizers[1].count == 3 and fresh.optimizers[1].state["all"] == {"count": 3}
    assert fresh.param_groups[1]["lr"] == 0.1 and "count" not in fresh.optimizers[0].state_dict()
    with pytest.raises(ValueError, match=r"groups hold \[4, 4\] parameters, those of the optimizers \[8\]"):
        Chain([torch.optim.Adam(net.parameters())]).load_state_dict(saved)


def test_a_checkpoint_that_does_not_fit_changes_nothing():
    net = Net()
    opt = wrapped(net)
    train(net, opt, 2)
    before, state = snapshot(net, opt), copy.deepcopy(opt.state_dict())
    state["param_groups"][-1]["params"].append(99)
    with pytest.raises(ValueError, match=r"groups hold \[4, 1, 4\] parameters, the optimizer's \[4, 1, 3\]"):
        opt.load_state_dict(state)
    assert same(before, snapshot(net, opt))


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
@pytest.mark.parametrize("steps", [0, 3])
def test_a_copy_goes_on_as_the_original(clone, steps):
    net = Net()
    opt = wrapped(net)
    train(net, opt, steps)
    net_copy, opt_copy = clone((net, opt))
    train(net, opt, 2, start=steps)
    assert not same_params(net, net_copy)
    train(net_copy, opt_copy, 2, start=steps)
    assert same(snapshot(net, opt), snapshot(net_copy, opt_copy))


def test_the_closure_runs_once_and_hooks_as_often_as_they_should():
    net, control = Net(), Net()
    opt, reference = wrapped(net), wrapped(control)
    calls = []
    opt.register_step_pre_hook(lambda *_: calls.append("own"))
    opt.optimizer.register_step_post_hook(lambda *_: calls.append("chain"))
    opt.optimizer.optimizers[1].register_step_pre_hook(lambda *_: calls.append("second"))
    handle = register_optimizer_step_pre_hook(lambda inner, *_: calls.append(type(inner).__name__))

    def closure():
        calls.append("closure")
        opt.zero_grad()
        losses = net.losses(0)
        opt.backward(losses)
        return sum(losses)

    try:
        with torch.no_grad():
            result = opt.step(closure)
    finally:
        handle.remove()
    assert calls == ["own", "closure", "Muon", "AdamW", "second", "chain"] and result.requires_grad
    train(control, reference, 1)
    assert same_params(net, control)
    bare = Chain(inners(net))
    bare.register_load_state_dict_post_hook(lambda _: calls.append("loaded"))
    bare.register_state_dict_post_hook(lambda _, state: {**state, "note": 1})
    bare.load_state_dict(bare.state_dict())
    assert calls[-1] == "loaded" and bare.state_dict()["note"] == 1
    assert bare.step(lambda: 7) == 7


def test_a_grad_scaler_skips_all_or_none():
    net, control = Net(dtype=torch.float32), Net(dtype=torch.float32)
    fused = [torch.optim.AdamW(params, lr=1e-2, fused=True) for params in parts(net)]  # they could unscale themselves
    opt, scaler = MultiObjective(fused, solvers.UW(), metric("full")), torch.amp.GradScaler("cpu", init_scale=2.0**12)
    plain = [torch.optim.AdamW(params, lr=1e-2, fused=True) for params in parts(control)]
    train(control, MultiObjective(plain, solvers.UW(), metric("full")), 4)
    for t in (0, 1, None, 2, 3):
        before = snapshot(net, opt)
        opt.zero_grad()
        opt.backward(inf_loss(net.losses(9)) if t is None else net.losses(t), scaler=scaler)
        scaler.step(opt)
        scaler.update()
        assert same(before, snapshot(net, opt)) == (t is None)
    assert same_params(net, control)


def test_a_probe_watches_it():
    net, control = Net(), Net()
    opt = wrapped(net)
    with diagnostics.attach(opt, every=2) as probe:
        train(net, opt, 4)
    assert [row["step"] for row in probe.rows] == [0, 2]
    train(control, wrapped(control), 4)
    assert same_params(net, control)


def test_a_group_is_added_to_one_of_them():
    net = Net()
    matrices, rest = parts(net)
    opt = MultiObjective([torch.optim.Muon(matrices), torch.optim.AdamW(rest[:-1])], metric=metric("collapsed"))
    with pytest.raises(ValueError, match=r"one of the optimizers \(Muon, AdamW\): chain.optimizers\[0\].add_param"):
        opt.add_param_group({"params": rest[-1:]})
    opt.optimizer.optimizers[1].add_param_group({"params": rest[-1:], "lr": 0.5})
    assert [g["lr"] for g in opt.param_groups] == [1e-3, 1e-3, 0.5]
    before = rest[-1].clone()
    train(net, opt, 1)
    assert not torch.equal(before, rest[-1])
    opt.optimizer.optimizers[1].add_param_group({"params": matrices[:1]})  # the other one has it
    before = [p.clone() for p in net.parameters()]
    with pytest.raises(ValueError, match="is in two of the optimizers, Muon"):
        train(net, opt, 1)
    assert all(map(torch.equal, before, net.parameters()))


def test_what_cannot_be_meant_is_refused():
    net = Net()
    matrices, rest = parts(net)
    with pytest.raises(
        ValueError, match=r"shape \(6, 4\) is in two of the optimizers, Muon \(number 0\) and SGD \(num"
    ):
        MultiObjective([torch.optim.Muon(matrices), torch.optim.SGD(net.parameters())])
    with pytest.raises(ValueError, match="at least one torch optimizer, got none"):
        MultiObjective([])
    for wrong, name in ((rest[0], "Parameter"), (MultiObjective(torch.optim.SGD(rest)), "MultiObjective")):
        with pytest.raises(TypeError, match=f"optimizers must be plain torch optimizers, number 1 is a {name}"):
            MultiObjective([torch.optim.Muon(matrices), wrong])
    with pytest.raises(ValueError, match="LBFGS, number 1 of the optimizers, evaluates its closure several times"):
        MultiObjective([torch.optim.Muon(matrices), torch.optim.LBFGS(rest)])
    coupled = [torch.optim.Muon(matrices), torch.optim.SGD(rest, momentum=0.9, weight_decay=0.1)]
    with pytest.warns(UserWarning, match="SGD adds weight_decay=0.1"):
        MultiObjective(coupled, metric=metric("collapsed"))
