"""The wrapper is a torch optimizer like any other, and without a metric it is the inner one."""

import copy
import pickle
import warnings
from dataclasses import FrozenInstanceError

import pytest
import torch
from torch.optim.lr_scheduler import LambdaLR, OneCycleLR, StepLR
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from helpers import Net, adam, close_params, metric, same, same_params, snapshot, train, wrap
from madamoo import MAdam, MultiObjective, PreferenceMetric, solvers
from optimizer.cover import COVER, KINDS, sgd

INNERS = {
    "Adam": lambda params: torch.optim.Adam(params, lr=1e-2),
    "AdamW": lambda params: torch.optim.AdamW(params, lr=1e-2, weight_decay=0.1),
    "SGD": lambda params: torch.optim.SGD(params, lr=1e-1, momentum=0.9),
    "RAdam": lambda params: torch.optim.RAdam(params, lr=1e-2),
}
SCHEDULERS = {
    "StepLR": lambda opt: StepLR(opt, 2, 0.5),
    "LambdaLR": lambda opt: LambdaLR(opt, lambda t: 1 / (1 + t)),
    "OneCycleLR": lambda opt: OneCycleLR(opt, max_lr=0.1, total_steps=10),
}


def test_groups_state_and_defaults_are_the_inner_optimizers_own():
    net = Net()
    inner = adam(net)
    opt = MultiObjective(inner)
    assert isinstance(opt, torch.optim.Optimizer) and isinstance(MAdam(net.parameters()), torch.optim.Optimizer)
    for _ in range(2):
        train(net, opt, 2)
        assert opt.param_groups is inner.param_groups
        assert opt.state is inner.state
        assert opt.defaults is inner.defaults
        opt.load_state_dict(copy.deepcopy(opt.state_dict()))


@pytest.mark.parametrize("inner", INNERS)
def test_without_a_metric_ls_is_plain_training_on_the_weighted_sum(inner, dtype):
    weights = [0.2, 0.3, 0.5]
    net, plain = Net(dtype=dtype), Net(dtype=dtype)
    opt = MultiObjective(INNERS[inner](net.parameters()), solvers.LS(weights))
    train(net, opt, 10)
    reference = INNERS[inner](plain.parameters())
    for t in range(10):
        reference.zero_grad()
        sum(w * loss for w, loss in zip(weights, plain.losses(t), strict=True)).backward()
        reference.step()
    ulps = 8 * torch.finfo(dtype).eps
    close_params(net, plain, rtol=ulps, atol=ulps)


@pytest.mark.filterwarnings("ignore:a batch lacks objectives")
def test_the_default_device_does_not_matter():
    """A model on the CPU trains the same where tensors are made elsewhere unless told; "meta" has no values."""
    for solver, estimator in COVER:
        found = []
        for device in ("cpu", "meta"):
            net = Net()
            with torch.device(device):
                opt = wrap(net, solver, estimator, inner=sgd)
                vector = [0.2, 0.3, 0.5] if opt.solver.uses_preference else None
                for t in range(3):
                    with torch.device("cpu"):
                        losses = net.losses(t)
                    opt.zero_grad()
                    opt.backward([None, *losses[1:]] if t == 1 else losses, vector)
                    opt.step()
                resumed = wrap(net, solver, estimator, inner=sgd)
                resumed.load_state_dict(opt.state_dict())
                assert same(snapshot(net, resumed), snapshot(net, opt))
            found.append(snapshot(net, opt))
        assert same(*found), (solver, estimator)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_scheduler_on_the_wrapper_equals_scheduler_on_the_inner_optimizer(scheduler):
    nets = [Net(), Net()]
    for on_inner, net in enumerate(nets):
        opt = wrap(net, "uw", "full")
        schedule = SCHEDULERS[scheduler](opt.optimizer if on_inner else opt)
        rates = []
        for t in range(6):
            train(net, opt, 1, start=t)
            rates.append(opt.param_groups[0]["lr"])
            schedule.step()
        assert len(set(rates)) > 2
    assert same_params(*nets)


def test_groups_have_rates_and_betas_of_their_own(dtype):
    """Two groups in one optimizer equal two optimizers: the metric's decay is the group's betas[1]."""

    def start():
        return [torch.linspace(-1, 1, 5, dtype=dtype).requires_grad_(), torch.ones(3, dtype=dtype).requires_grad_()]

    def losses(params):
        return [sum((p - 2).square().sum() for p in params), sum((p + 1).pow(4).sum() for p in params)]

    options = [{"lr": 0.1, "betas": (0.5, 0.7)}, {"lr": 0.01, "betas": (0.9, 0.99)}]
    together, apart = start(), start()
    one = MAdam([{"params": [p], **o} for p, o in zip(together, options, strict=True)], metric=metric("auto"))
    two = [MAdam([p], **o, metric=metric("auto", beta=o["betas"][1])) for p, o in zip(apart, options, strict=True)]
    for _ in range(5):
        one.zero_grad()
        one.backward(losses(together))
        one.step()
        for opt, p in zip(two, apart, strict=True):
            opt.zero_grad()
            opt.backward(losses([p]))
            opt.step()
    assert same(together, apart)


@pytest.mark.parametrize("estimator", ["full", "pair", None])
def test_a_group_added_later_equals_one_that_was_frozen_until_then(estimator):
    nets = [Net(), Net()]
    for add, net in zip([True, False], nets, strict=True):
        head = list(net.heads[2].parameters())
        rest = [p for p in net.parameters() if all(p is not q for q in head)]
        group = {"params": head, "lr": 0.5}
        opt = wrap(net, "rlw", estimator, inner=lambda _, g=[rest] if add else [rest, group]: _groups(g))
        net.heads[2].requires_grad_(False)
        train(net, opt, 3)
        assert same(net.heads[2].weight, Net().heads[2].weight)
        net.heads[2].requires_grad_(True)
        if add:
            opt.add_param_group(group)
        train(net, opt, 3, start=3)
        assert opt.param_groups[1]["lr"] == 0.5
    assert same_params(*nets)


def _groups(groups):
    return torch.optim.AdamW([g if isinstance(g, dict) else {"params": g} for g in groups], lr=1e-2)


@pytest.mark.parametrize("solver, estimator", COVER)
def test_a_copy_goes_on_as_the_original(solver, estimator):
    for steps, clone in ((0, copy.deepcopy), (3, copy.deepcopy), (3, lambda x: pickle.loads(pickle.dumps(x)))):
        net = Net()
        opt = wrap(net, solver, estimator, shared=net.trunk)
        train(net, opt, steps)
        net_copy, opt_copy = clone((net, opt))
        train(net, opt, 2, start=steps)
        assert not same_params(net, net_copy)  # the copy is one
        train(net_copy, opt_copy, 2, start=steps)
        assert same(snapshot(net, opt), snapshot(net_copy, opt_copy))


def test_a_copy_has_no_gradients_and_no_pending_step():
    """A copy of a parameter has no .grad: what made it is left behind too."""
    net = Net()
    opt = wrap(net, "rlw", "pair")
    train(net, opt, 2)
    opt.backward(net.losses(9))
    net_copy, opt_copy = copy.deepcopy((net, opt))
    opt.zero_grad()
    for n, o in [(net, opt), (net_copy, opt_copy)]:
        o.backward(n.losses(2))
        o.step()
    assert same(snapshot(net, opt), snapshot(net_copy, opt_copy))


@pytest.mark.parametrize("solver, estimator", KINDS)
def test_the_state_before_the_first_step_can_be_saved_and_loaded(solver, estimator):
    net, fresh = Net(), Net()
    train(net, wrap(net, solver, estimator), 2)
    opt = wrap(fresh, solver, estimator)
    opt.load_state_dict(wrap(Net(), solver, estimator).state_dict())
    train(fresh, opt, 2)
    assert same_params(net, fresh)


@pytest.mark.filterwarnings("ignore:step\\(\\) without opt.backward")
@pytest.mark.parametrize("estimator", [None, "collapsed"])
def test_step_without_backward_is_the_inner_optimizers_step(estimator):
    net, plain = Net(), Net()
    opt, reference = wrap(net, "ls", estimator), adam(plain)
    before = snapshot(net, opt)["opt"]["multi_objective"]
    for _ in range(3):
        for p, q in zip(net.parameters(), plain.parameters(), strict=True):
            p.grad, q.grad = torch.sin(p.detach()), torch.sin(q.detach())
        opt.step()
        reference.step()
    assert same_params(net, plain)
    assert same(before, snapshot(net, opt)["opt"]["multi_objective"])


def test_state_dict_hooks_are_called():
    net = Net()
    opt = wrap(net)
    calls = []
    opt.register_state_dict_pre_hook(lambda _: calls.append("saving"))
    opt.register_state_dict_post_hook(lambda _, state: {**state, "note": 1})
    opt.register_load_state_dict_pre_hook(lambda _, state: {k: v for k, v in state.items() if k != "note"})
    opt.register_load_state_dict_post_hook(lambda _: calls.append("loaded"))
    train(net, opt, 1)
    state = opt.state_dict()
    assert state["note"] == 1
    opt.load_state_dict(state)
    assert calls == ["saving", "loaded"]


@pytest.mark.parametrize("closure", [False, True])
@pytest.mark.parametrize("inner", [adam, sgd, lambda net: torch.optim.LBFGS(net.parameters(), max_iter=2)])
def test_each_step_hook_fires_once(inner, closure):
    """Those of all optimizers, of the wrapper and of the inner optimizer, in that order of nesting."""
    net = Net()
    opt = MultiObjective(inner(net))
    calls = []
    handles = [
        register_optimizer_step_pre_hook(lambda o, *_: calls.append(("any", "before", type(o).__name__))),
        register_optimizer_step_post_hook(lambda o, *_: calls.append(("any", "after", type(o).__name__))),
    ]
    opt.register_step_pre_hook(lambda o, args, kwargs: calls.append(("own", "before", o is opt)))
    opt.register_step_post_hook(lambda o, args, kwargs: calls.append(("own", "after", o is opt)))
    opt.optimizer.register_step_pre_hook(lambda o, *_: calls.append(("inner", "before", o is opt.optimizer)))
    opt.optimizer.register_step_post_hook(lambda o, *_: calls.append(("inner", "after", o is opt.optimizer)))

    def evaluate():
        opt.zero_grad()
        losses = net.losses(0)
        opt.backward(losses)
        return sum(losses)

    name = type(opt.optimizer).__name__
    once = [("own", "before", True), ("any", "before", name), ("inner", "before", True)]
    once += [("inner", "after", True), ("any", "after", name), ("own", "after", True)]
    try:
        for _ in range(2):
            if closure or name == "LBFGS":
                opt.step(evaluate)
            else:
                evaluate()
                opt.step()
    finally:
        for handle in handles:
            handle.remove()
    assert sorted(calls) == sorted(once * 2)
    assert calls[0] == ("own", "before", True) and calls[5] == ("own", "after", True)


def test_a_scheduler_or_a_profiler_around_the_wrapper_counts_one_step():
    """Schedulers wrap step() of what they are given; their count is that of the steps."""
    net = Net()
    opt = wrap(net, "uw", "full")
    schedule = StepLR(opt, 2, 0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for t in range(4):
            train(net, opt, 1, start=t)
            schedule.step()
    assert opt.param_groups[0]["lr"] == 1e-2 * 0.25 and opt.metric.steps == 4


@pytest.mark.parametrize("arguments", [{"optimizer": torch.zeros(1)}, {"solver": torch.nn.Linear(1, 1)}, {"metric": 3}])
def test_a_piece_of_the_wrong_type_is_refused(arguments):
    with pytest.raises(TypeError, match=f"{next(iter(arguments))} must be"):
        MultiObjective(**{"optimizer": adam(Net()), **arguments})


def test_a_wrapper_is_not_wrapped_again():
    with pytest.raises(TypeError, match="must be a torch optimizer"):
        MultiObjective(wrap(Net()))


def test_madam_is_the_wrapper_around_adamw():
    """With a metric by default, and None is the baseline, as in MultiObjective."""
    assert isinstance(MAdam(Net().parameters()).metric, PreferenceMetric)
    for given, same_metric in (("default", PreferenceMetric), (None, lambda: None)):
        net, control = Net(), Net()
        opt = MAdam(net.parameters(), lr=1e-2, weight_decay=0.1, solver="uw", metric=given)
        inner = torch.optim.AdamW(control.parameters(), lr=1e-2, weight_decay=0.1, fused=True)
        reference = MultiObjective(inner, solvers.UW(), same_metric())
        train(net, opt, 3)
        train(control, reference, 3)
        assert same(snapshot(net, opt), snapshot(control, reference))


def test_options_are_read_by_name():
    net = Net()
    opt = MAdam(net.parameters(), max_norm=2.0, objectives=["a", "b"], shared=net.trunk)
    assert opt.max_norm == opt.options.max_norm == 2.0
    assert (opt.rows, opt.gram, opt.head_weights) == ("needed", "parameters", "auto")
    assert opt.objectives == ("a", "b") and len(opt.shared) == 2
    with pytest.raises(AttributeError, match="'MAdam' has no attribute 'clip'"):
        opt.clip  # noqa: B018
    with pytest.raises(FrozenInstanceError):
        opt.options.max_norm = 1.0
    with pytest.raises(
        AttributeError, match=r"max_norm is chosen when the optimizer is built: MAdam\(\.\.\., max_norm="
    ):
        opt.max_norm = 1.0


def test_the_inner_adam_is_fused_where_torch_can():
    net = Net()
    groups = [{"params": net.trunk.parameters(), "lr": 1e-2}, {"params": net.heads.parameters()}]
    opt = MAdam(groups, lr=1e-3)
    assert [(g["lr"], g["fused"]) for g in opt.param_groups] == [(1e-2, True), (1e-3, True)]
    elsewhere = MAdam([torch.nn.Parameter(torch.empty(2, device="meta"))])
    assert not elsewhere.param_groups[0]["fused"] and not elsewhere.defaults["fused"]
