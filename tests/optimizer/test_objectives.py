"""Which objective is which: names, batches that lack some, and heads."""

import math
import warnings
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from helpers import Net, adam, close_params, metric, same, same_params, snapshot, train, wrap
from madamoo import MAdam, MultiObjective, PreferenceMetric, solvers

NAMES = ("a", "b", "c")
FORMS = {
    "list": list,
    "tuple": tuple,
    "stack": torch.stack,
    "opaque tensor": lambda losses: torch.stack(losses) * 1.0,
    "dict": lambda losses: dict(zip(NAMES, losses, strict=True)),
}


def _run(net, opt, batches):
    for losses in batches:
        opt.zero_grad()
        opt.backward(losses)
        opt.step()


@pytest.mark.parametrize("form", FORMS)
def test_the_form_of_the_losses_does_not_matter(form):
    for (solver, estimator), dtype in product(
        [("cagrad", "full"), ("uw", "pair"), ("ls", "collapsed")], [torch.float32, torch.float64]
    ):
        net, control = Net(dtype=dtype), Net(dtype=dtype)
        train(control, wrap(control, solver, estimator), 4)
        opt = wrap(net, solver, estimator)
        _run(net, opt, (FORMS[form](net.losses(t)) for t in range(4)))
        ulps = 64 * torch.finfo(dtype).eps
        close_params(net, control, rtol=ulps, atol=ulps)
        assert opt.objectives == (NAMES if form == "dict" else None)


def _named(losses, order=(0, 1, 2)):
    return {NAMES[i]: losses[i] for i in order}


def test_named_losses_are_matched_by_name():
    net, control = Net(), Net()
    opts = [MultiObjective(adam(n), solvers.UW(), metric("full")) for n in (net, control)]
    _run(control, opts[1], (_named(control.losses(t)) for t in range(4)))
    _run(net, opts[0], (_named(net.losses(t), (2, 1, 0) if t else (0, 1, 2)) for t in range(4)))
    assert same(snapshot(net, opts[0]), snapshot(control, opts[1]))
    assert opts[0].objectives == NAMES


BY_NAME = {
    "ls": ("weights", [0.1, 0.2, 0.7]),
    "upgrad": ("weights", [0.1, 0.2, 0.7]),
    "alignedmtl": ("weights", [0.1, 0.2, 0.7]),
    "preference": ("default", [0.1, 0.2, 0.7]),
    "tchebycheff": ("ideal", [0.0, 0.1, 0.05]),
    "famo": ("min_losses", [0.0, 0.1, 0.05]),
    "graddrop": ("leak", [0.1, 0.2, 0.7]),
}


@settings(max_examples=30, deadline=None, derandomize=True, database=None)
@given(
    solver=st.sampled_from(sorted(BY_NAME)),
    orders=st.lists(st.permutations(range(3)), min_size=4, max_size=4),
    given=st.permutations(range(3)),
    ahead=st.booleans(),
)
def test_options_by_name_hold_in_whatever_order_the_losses_come(solver, orders, given, ahead):
    """By position they would follow the order of the first dict: that is refused, unless the order is fixed."""
    option, values = BY_NAME[solver]
    by_name = {NAMES[i]: values[i] for i in given}
    names = NAMES if ahead else None
    net, control, third = Net(), Net(), Net()
    opt = MultiObjective(adam(net), solvers.get(solver, **{option: by_name}), metric("full"), objectives=names)
    in_order = solvers.get(solver, **{option: values})
    reference = MultiObjective(adam(control), in_order, metric("full"), objectives=NAMES)
    _run(net, opt, (_named(net.losses(t), order) for t, order in enumerate(orders)))
    _run(control, reference, (_named(control.losses(t), order) for t, order in enumerate(orders)))
    torch.testing.assert_close(
        [opt.weights_by_name[n] for n in NAMES], [reference.weights_by_name[n] for n in NAMES], rtol=1e-9, atol=0
    )
    if solver != "graddrop":  # it draws in the order of the objectives
        close_params(net, control, rtol=1e-8, atol=1e-10)
    refused = MultiObjective(adam(third), solvers.get(solver, **{option: values}))
    with pytest.raises(ValueError, match=rf"{option} is given by position.*objectives="):
        refused.backward(_named(third.losses(0), orders[0]))
    assert all(p.grad is None for p in third.parameters())


def test_weights_by_name_of_other_objectives_are_refused():
    net = Net()
    for weights, match in [
        ({"a": 1.0, "b": 1.0}, "missing 'c'"),
        ({"a": 1.0, "b": 1.0, "c": 1.0, "d": 1.0}, "unknown 'd'"),
    ]:
        opt = MAdam(net.parameters(), solver=solvers.LS(weights))
        with pytest.raises(ValueError, match=match):
            opt.backward(_named(net.losses(0)))
    opt = MAdam(net.parameters(), solver=solvers.LS({"a": 1.0, "b": 1.0, "c": 1.0}))
    with pytest.raises(ValueError, match="the losses have no names"):
        opt.backward(net.losses(0))


def test_weights_and_losses_are_read_by_name():
    net = Net()
    opt = wrap(net, "uw", "full", objectives=NAMES)
    assert opt.weights_by_name == opt.losses_by_name == {}
    a, _, c = net.losses(0)
    opt.backward({"c": c, "a": a})
    assert list(opt.weights_by_name) == list(opt.losses_by_name) == list(NAMES)
    assert opt.weights_by_name["b"] == 0 and math.isnan(opt.losses_by_name["b"])
    assert (opt.losses_by_name["a"], opt.losses_by_name["c"]) == (float(a.detach()), float(c.detach()))
    opt.backward(_named(net.losses(1)))
    assert opt.losses_by_name["a"] == pytest.approx(float((net.losses(0)[0] + net.losses(1)[0]).detach()))
    opt.step()
    assert list(opt.weights_by_name.values()) == opt.weights.tolist()
    plain = wrap(Net())
    plain.backward([p.sum() for p in plain.param_groups[0]["params"][:2]])
    assert plain.weights_by_name == {"0": 0.5, "1": 0.5}


def test_a_solver_is_given_by_name_with_options():
    for spec in ("cagrad:c=0.2", "CAGrad:c=0.2", solvers.CAGrad(c=0.2)):
        for make in (lambda net, s: MAdam(net.parameters(), solver=s), lambda net, s: MultiObjective(adam(net), s)):
            assert repr(make(Net(), spec).solver) == "CAGrad(c=0.2)"
    assert repr(MAdam(Net().parameters()).solver) == "LS()"
    with pytest.raises(ValueError, match="cagrd"):
        MAdam(Net().parameters(), solver="cagrd")


@pytest.mark.parametrize("how", ["left out", "None", "None in a list"])
@pytest.mark.parametrize("solver, estimator", [("uw", "full"), ("cagrad", "full"), ("rlw", "diagonal"), ("ls", "pair")])
def test_a_missing_objective_has_weight_zero_and_rests(how, solver, estimator):
    net = Net()
    named = how != "None in a list"
    opt = wrap(net, solver, estimator, objectives=NAMES if named else None)

    def losses(t, missing):
        values = [None if i in missing else loss for i, loss in enumerate(net.losses(t))]
        if not named:
            return values
        return {n: v for n, v in zip(NAMES, values, strict=True) if how == "None" or v is not None}

    def averages():
        saved = opt.metric.state_dict(list(net.parameters()))["averages"]
        return {
            (index, tuple(pair)): (F.clone(), n)
            for index, a in saved.items()
            for pair, F, n in zip(a["pairs"], a["F"], a["n"], strict=True)
        }

    _run(net, opt, (losses(t, ()) for t in range(6)))
    head, before = [p.clone() for p in net.heads[1].parameters()], averages()
    state = [b[1].clone() for b in opt.solver.state_dict().values() if isinstance(b, torch.Tensor)]
    _run(net, opt, (losses(t, (1,)) for t in range(6, 9)))
    assert opt.weights[1] == 0 and (opt.weights[[0, 2]] > 0).all()
    assert same(head, list(net.heads[1].parameters()))
    assert all(p.grad is None for p in net.heads[1].parameters())
    assert same(state, [b[1] for b in opt.solver.state_dict().values() if isinstance(b, torch.Tensor)])
    after = averages()
    rest = {key for key in before if 1 in key[1]}
    assert all(same(before[key], after[key]) for key in rest)
    assert any(not same(before[key], after[key]) for key in before.keys() - rest)


@pytest.mark.parametrize(
    "solver, estimator",
    [
        (solvers.LS, "diagonal"),
        (solvers.LS, None),
        (solvers.UW, "full"),
        (solvers.DWA, None),
        (solvers.MGDA, "full"),
        (solvers.CAGrad, None),
    ],
)
def test_an_objective_that_never_comes_might_as_well_not_be_there(solver, estimator):
    net, control = Net(), Net()
    three, two = (solver([0.2, 0.5, 0.3]), solver([0.2, 0.3])) if solver is solvers.LS else (solver(), solver())
    opt = MultiObjective(adam(net), three, metric(estimator))
    reference = MultiObjective(adam(control), two, metric(estimator))
    _run(net, opt, ([a, None, c] for a, _, c in map(net.losses, range(5))))
    _run(control, reference, ([a, c] for a, _, c in map(control.losses, range(5))))
    close_params(net, control, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(opt.weights[[0, 2]], reference.weights)


def test_constant_weights_and_batches_that_lack_objectives_warn_once():
    """One average of d^2 mixes batches of different objectives: exact, or loud. No batch restarts it."""
    for first in ((0,), (0, 1), (1, 2)):
        net = Net()
        opt = wrap(net, "ls", "collapsed", objectives=NAMES)
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            for t, present in enumerate([first, (0, 1, 2), (0, 2), (0, 1, 2)]):
                losses = net.losses(t)
                _run(net, opt, [{NAMES[i]: losses[i] for i in present}])
        assert [w.filename for w in seen] == [__file__]
        assert "a batch lacks objectives" in str(seen[0].message) and "'full'" in str(seen[0].message)
        assert opt.metric.state_dict(list(net.parameters()))["averages"][0]["n"] == [4]


def test_estimators_that_keep_objectives_apart_do_not_warn():
    for solver, estimator in (("ls", "full"), ("ls", "pair"), ("ls", None), ("uw", "marginal")):
        net = Net()
        opt = wrap(net, solver, estimator, objectives=NAMES)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for t in range(3):
                _run(net, opt, [_named(net.losses(t), [i for i in range(3) if i != t])])


def test_changed_weights_of_a_static_solver_restart_the_average_with_a_warning():
    net = Net()
    opt = wrap(net, "ls", "collapsed")
    train(net, opt, 3)
    opt.solver.coefficients.copy_(torch.tensor([0.1, 0.2, 0.7]))
    opt.zero_grad()
    with pytest.warns(UserWarning, match="start again") as seen:
        opt.backward(net.losses(3))
    assert [w.filename for w in seen] == [__file__]  # it points at the user's line
    opt.step()
    assert [a.n for a in opt.metric.averages] == [[1]] * len(list(opt.metric.averages))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(net, opt, 1, start=4)


def _rows(net, t):
    """The gradients of the objectives, one at a time, by plain torch."""
    names = dict(net.named_parameters())
    rows = []
    for i in range(len(net.heads)):
        found = torch.autograd.grad(net.losses(t)[i], list(names.values()), allow_unused=True)
        rows.append(
            {n: torch.zeros_like(p) if g is None else g for (n, p), g in zip(names.items(), found, strict=True)}
        )
    return rows


def _gram(rows, names):
    G = torch.stack([torch.cat([row[n].flatten() for n in names]) for row in rows])
    return G @ G.T


@pytest.mark.parametrize("solver", [solvers.CAGrad, solvers.MGDA, solvers.UW, solvers.LS])
def test_whose_weights_hold_for_heads(solver):
    """Gradient-balancing solvers see and weigh the shared parameters; a head follows its own objective."""
    for head_weights, chosen in product(["auto", "lambda"], [None, "module", "parameters"]):
        net = Net()
        rows = _rows(net, 0)
        shared = {None: None, "module": net.trunk, "parameters": [net.trunk[0].weight]}[chosen]
        opt = MultiObjective(adam(net), solver(), head_weights=head_weights, shared=shared)
        opt.backward(net.losses(0))
        weighed = list(rows[0])
        if solver.needs_gram and head_weights == "auto":
            weighed = ["trunk.0.weight"] if chosen == "parameters" else ["trunk.0.weight", "trunk.0.bias"]
        expected = solver().weights(torch.stack(net.losses(0)).detach(), _gram(rows, weighed))
        torch.testing.assert_close(opt.weights, expected)
        for name, p in net.named_parameters():
            weights = expected if name in weighed else torch.ones(3)
            torch.testing.assert_close(p.grad, sum(w * row[name] for w, row in zip(weights, rows, strict=True)))


def test_a_parameter_becomes_shared_once_a_second_objective_reaches_it():
    net = Net()
    rows = _rows(net, 0)
    opt = MultiObjective(torch.optim.SGD(net.parameters(), lr=0.0), solvers.CAGrad(), objectives=NAMES)
    losses = dict(zip(NAMES, net.losses(0), strict=True))
    opt.backward({"a": losses.pop("a")}, retain_graph=True)
    opt.step()
    torch.testing.assert_close(net.trunk[0].weight.grad, rows[0]["trunk.0.weight"])
    opt.zero_grad()
    opt.backward(losses)
    expected = sum(opt.weights[i] * rows[i]["trunk.0.weight"] for i in (1, 2))
    torch.testing.assert_close(net.trunk[0].weight.grad, expected)


def _pairs(net, opt):
    """Of which pairs of objectives each parameter has an average."""
    saved = opt.metric.state_dict(list(net.parameters()))["averages"]
    return {n: [tuple(p) for p in saved[k]["pairs"]] for k, (n, _) in enumerate(net.named_parameters()) if k in saved}


def test_a_head_keeps_one_average():
    net = Net()
    opt = wrap(net, "cagrad", "full")
    train(net, opt, 2)
    pairs = _pairs(net, opt)
    assert len(pairs["trunk.0.weight"]) == 6
    for i in range(3):
        assert pairs[f"heads.{i}.weight"] == pairs[f"heads.{i}.bias"] == [(i, i)]


@pytest.mark.parametrize("solver, estimator", [("ls", "collapsed"), ("cagrad", "full"), ("rlw", "pair")])
def test_unused_and_frozen_parameters_are_left_alone(solver, estimator):
    net, control = Net(), Net()
    net.unused = nn.Linear(3, 3)
    for n in (net, control):
        n.heads[0].weight.requires_grad_(False)
    before = [p.clone() for p in (net.heads[0].weight, *net.unused.parameters())]
    train(control, wrap(control, solver, estimator), 3)
    opt = wrap(net, solver, estimator)  # with weight decay
    train(net, opt, 3)
    left = (net.heads[0].weight, *net.unused.parameters())
    assert same(before, list(left))
    assert all(p.grad is None for p in left)
    assert not {"heads.0.weight", "unused.weight", "unused.bias"} & {*_pairs(net, opt)}
    del net.unused
    assert same_params(net, control)


def _conv_run(memory_format, solver):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Tanh(), nn.Conv2d(4, 2, 3), nn.Flatten()).double()
    net = net.to(memory_format=memory_format)
    opt = MAdam(net.parameters(), lr=1e-2, solver=solver)
    x = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for _ in range(5):
        opt.zero_grad()
        y = net(x.to(memory_format=memory_format))
        opt.backward([y.square().mean(), (y - 1).abs().mean()])
        assert all(p.grad.stride() == p.stride() for p in net.parameters())
        opt.step()
    return net


@pytest.mark.parametrize("solver", [solvers.LS, solvers.CAGrad, solvers.RLW])
def test_channels_last_trains_as_contiguous(solver):
    nets = [_conv_run(f, solver()) for f in (torch.contiguous_format, torch.channels_last)]
    assert nets[1][0].weight.is_contiguous(memory_format=torch.channels_last)
    close_params(*nets, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("solver, estimator", [(solvers.LS, None), (solvers.CAGrad, "full"), (solvers.UW, "full")])
def test_gradients_that_are_one_tensor_are_kept_apart(solver, estimator, dtype):
    """autograd gives one tensor for both summands of a + b: nothing may be done to it in place."""
    runs = []
    for parts in (1, 2):
        a, b = (torch.linspace(0, 1, 3, dtype=dtype).requires_grad_() for _ in range(2))
        opt = MultiObjective(torch.optim.SGD([a, b], lr=0.01), solver(), metric(estimator))
        for _ in range(4):
            opt.zero_grad()
            for _ in range(parts):
                y = a + b
                opt.backward([y.square().sum() / parts, (y - 1).pow(4).sum() / parts])
            assert a.grad.data_ptr() != b.grad.data_ptr()
            assert same(a.grad, b.grad)
            opt.step()
        runs.append(a.detach())
    torch.testing.assert_close(*runs)
    assert not same(runs[0], torch.linspace(0, 1, 3, dtype=dtype))


class Picked(torch.nn.Module):
    """A trunk and two heads whose losses come in one vector, so that the graph does not tell the heads apart."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.trunk = torch.nn.Linear(4, 5).double()
        self.heads = torch.nn.ModuleList(torch.nn.Linear(5, 1) for _ in range(2)).double()

    def losses(self, t):
        x = torch.randn(6, 4, generator=torch.Generator().manual_seed(t), dtype=torch.float64)
        h = torch.tanh(self.trunk(x))
        return (torch.cat([head(h) for head in self.heads], 1) - 1).square().mean(0)


def _reach(net, opt):
    return [sorted(opt.run.layout.reach[p]) for p in net.parameters()]


def test_heads_are_told_apart_behind_scaled_entries_of_a_vector():
    net = Picked()
    opt = MultiObjective(adam(net), solvers.MGDA())
    v = net.losses(0)
    opt.backward([v[0] / 4, 2 * v[1]])
    opt.step()
    assert _reach(net, opt) == [[0, 1], [0, 1], [0], [0], [1], [1]]


def test_a_first_batch_with_one_loss_does_not_decide_what_is_a_head():
    net = Picked()
    opt = MultiObjective(adam(net), solvers.MGDA(), objectives=["a", "b"])
    for t, names in enumerate(["a", "ab", "ab"]):
        v = net.losses(t)
        opt.zero_grad()
        opt.backward({name: v["ab".index(name)] for name in names})
        opt.step()
    assert _reach(net, opt) == [[0, 1], [0, 1], [0], [0], [1], [1]]


def test_pairs_reach_objectives_that_only_later_micro_batches_hold():
    net = Net(5)
    opt = MultiObjective(adam(net), solvers.UW(), metric("pair"), objectives=list("abcde"))
    for t in range(150):
        opt.zero_grad()
        for names in ("ab", "cde"):
            losses = dict(zip("abcde", net.losses(t), strict=True))
            opt.backward({name: losses[name] for name in names})
        opt.step()
    assert len(_pairs(net, opt)["trunk.0.weight"]) == 15


def test_a_missing_objective_has_no_weight_in_a_given_head_either():
    shared, head = (torch.nn.Parameter(torch.ones(1, dtype=torch.float64)) for _ in range(2))
    inner = torch.optim.SGD([shared, head], lr=0.0)
    opt = MultiObjective(inner, solvers.MGDA(), PreferenceMetric("full", rampup=0), shared=[shared])
    for second in [True] * 50 + [False]:
        product = (shared * head).sum()
        opt.zero_grad()
        opt.backward([product, 100 * product if second else None])
        opt.step()
    assert float(head.grad) == pytest.approx(1.0)


def test_shared_is_checked():
    net = Net()
    with pytest.raises(TypeError, match="one tensor"):
        wrap(net, "mgda", shared=net.trunk[0].weight)
    with pytest.raises(ValueError, match="no parameter of the optimizer"):
        wrap(net, "mgda", shared=Net().trunk)


def test_losses_of_another_model_are_refused():
    opt = wrap(Net(), "mgda")
    with pytest.raises(ValueError, match="no loss reaches"):
        opt.backward(Net().losses(0))


def test_parameters_may_not_change_within_a_step():
    net = Net()
    opt = wrap(net, "mgda")
    opt.backward(net.losses(0))
    net.trunk.requires_grad_(False)
    with pytest.raises(ValueError, match="zero_grad"):
        opt.backward(net.losses(0))


def test_a_parameter_frozen_later_rests_without_zero_grad_too():
    net = Net()
    opt = wrap(net)
    opt.backward(net.losses(0))
    opt.step()
    net.trunk.requires_grad_(False)
    before = net.trunk[0].weight.clone()
    opt.backward(net.losses(1))
    opt.step()
    assert torch.equal(before, net.trunk[0].weight)


def test_two_losses_show_what_they_reach_though_a_third_is_missing():
    """A gradient of exactly zero is a gradient: weight decay goes on, though no batch ever holds all objectives."""
    p, q = (nn.Parameter(torch.ones(1)) for _ in range(2))
    opt = MultiObjective(torch.optim.AdamW([p, q], lr=0.1, weight_decay=0.1), solvers.LS(), objectives=NAMES)
    for t in range(3):
        losses = {name: ((p - i) ** 2 + torch.relu(q - 5) ** 2).sum() for i, name in enumerate(NAMES) if i != t}
        opt.zero_grad()
        opt.backward(losses)
        opt.step()
    assert float(q.detach()) == pytest.approx(0.99**3)
