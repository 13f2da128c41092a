"""Which objective is which: names, batches that lack some, and heads."""

import warnings

import pytest
import torch
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
@pytest.mark.parametrize("solver, estimator", [("cagrad", "full"), ("uw", "pair"), ("ls", "collapsed")])
def test_the_form_of_the_losses_does_not_matter(form, solver, estimator, dtype):
    net, control = Net(dtype=dtype), Net(dtype=dtype)
    train(control, wrap(control, solver, estimator), 4)
    opt = wrap(net, solver, estimator)
    _run(net, opt, (FORMS[form](net.losses(t)) for t in range(4)))
    ulps = 64 * torch.finfo(dtype).eps
    close_params(net, control, rtol=ulps, atol=ulps)
    assert opt.objectives == (NAMES if form == "dict" else None)


def test_named_losses_are_matched_by_name():
    net, control = Net(), Net()
    opts = [MultiObjective(adam(n), solvers.LS([0.1, 0.2, 0.7]), metric("full")) for n in (net, control)]
    _run(control, opts[1], (dict(zip(NAMES, control.losses(t), strict=True)) for t in range(4)))
    named = (dict(zip(NAMES, net.losses(t), strict=True)) for t in range(4))
    _run(net, opts[0], (dict(sorted(losses.items(), reverse=t > 0)) for t, losses in enumerate(named)))
    assert same(snapshot(net, opts[0]), snapshot(control, opts[1]))
    assert opts[0].objectives == NAMES


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
        return {
            (name, pair): (F.clone(), n)
            for name, p in net.named_parameters()
            for pair, F, n in zip(*(vars(opt.metric.averages[p])[k] for k in ("pairs", "F", "n")), strict=True)
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


@pytest.mark.parametrize("estimator", [None, "full", "diagonal"])
@pytest.mark.parametrize("solver", [solvers.LS, solvers.UW, solvers.DWA, solvers.MGDA, solvers.CAGrad])
def test_an_objective_that_never_comes_might_as_well_not_be_there(solver, estimator):
    net, control = Net(), Net()
    three, two = (solver([0.2, 0.5, 0.3]), solver([0.2, 0.3])) if solver is solvers.LS else (solver(), solver())
    opt = MultiObjective(adam(net), three, metric(estimator))
    reference = MultiObjective(adam(control), two, metric(estimator))
    _run(net, opt, ([a, None, c] for a, _, c in map(net.losses, range(5))))
    _run(control, reference, ([a, c] for a, _, c in map(control.losses, range(5))))
    close_params(net, control, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(opt.weights[[0, 2]], reference.weights)


@pytest.mark.parametrize("first", [(0,), (0, 1), (1, 2)])
def test_a_first_batch_that_lacks_an_objective_is_no_change_of_weights(first):
    """Every batch lacks some, the first too: one average of d^2 from the first step on, and no warning."""
    net = Net()
    opt = wrap(net, "ls", "collapsed", objectives=NAMES)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for t, present in enumerate([first, (0, 1, 2), (0, 2), (0, 1, 2)]):
            losses = net.losses(t)
            _run(net, opt, [{NAMES[i]: losses[i] for i in present}])
    assert opt.metric.averages[net.trunk[0].weight].n == [4]


def test_changed_weights_of_a_static_solver_restart_the_average_with_a_warning():
    net = Net()
    opt = wrap(net, "ls", "collapsed")
    train(net, opt, 3)
    opt.solver.coefficients.copy_(torch.tensor([0.1, 0.2, 0.7]))
    opt.zero_grad()
    with pytest.warns(UserWarning, match="start anew") as seen:
        opt.backward(net.losses(3))
    assert [w.filename for w in seen] == [__file__]  # it points at the user's line
    opt.step()
    assert opt.metric.averages[net.trunk[0].weight].n == [1]
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


@pytest.mark.parametrize("given", [None, "module", "parameters"])
@pytest.mark.parametrize("head_weights", ["auto", "lambda"])
@pytest.mark.parametrize("solver", [solvers.CAGrad, solvers.MGDA, solvers.UW, solvers.LS])
def test_whose_weights_hold_for_heads(solver, head_weights, given):
    """Gradient-balancing solvers see and weigh the shared parameters; a head follows its own objective."""
    net = Net()
    rows = _rows(net, 0)
    shared = {None: None, "module": net.trunk, "parameters": [net.trunk[0].weight]}[given]
    opt = MultiObjective(adam(net), solver(), head_weights=head_weights, shared=shared)
    opt.backward(net.losses(0))
    weighed = list(rows[0])
    if solver.needs_gram and head_weights == "auto":
        weighed = ["trunk.0.weight"] if given == "parameters" else ["trunk.0.weight", "trunk.0.bias"]
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


def test_a_head_keeps_one_average():
    net = Net()
    opt = wrap(net, "cagrad", "full")
    train(net, opt, 2)
    assert len(opt.metric.averages[net.trunk[0].weight].pairs) == 6
    for i, head in enumerate(net.heads):
        assert opt.metric.averages[head.weight].pairs == [(i, i)]


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
    assert all(p.grad is None and p not in opt.metric.averages for p in left)
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


@pytest.mark.parametrize("solver", [solvers.LS, solvers.CAGrad, solvers.UW])
@pytest.mark.parametrize("estimator", [None, "full"])
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
    return [sorted(opt.run.reach[p]) for p in net.parameters()]


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
    assert len(opt.metric.averages[net.trunk[0].weight].pairs) == 15


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


def test_a_loss_that_reaches_nothing_is_named():
    net = Net()
    opt = wrap(net, "mgda")
    losses = dict(zip("abc", net.losses(0), strict=True))
    with pytest.warns(UserWarning, match="'d' reaches no parameter") as seen:
        opt.backward({**losses, "d": torch.ones((), dtype=torch.float64, requires_grad=True) * 2})
    assert [w.filename for w in seen] == [__file__]


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


@pytest.mark.parametrize("set_to_none", [True, False])
def test_gradients_cleared_before_the_step_leave_no_trace(set_to_none):
    net = Net()
    opt = wrap(net, "rlw", "full")
    opt.backward(net.losses(0))
    net.zero_grad(set_to_none=set_to_none)
    opt.step()
    assert opt.metric.steps == 0 and opt.run.count is None


def test_two_losses_show_what_they_reach_though_a_third_is_missing():
    """A gradient of exactly zero is a gradient: weight decay goes on, though no batch ever holds all objectives."""
    p, q = (nn.Parameter(torch.ones(1)) for _ in range(2))
    opt = MultiObjective(torch.optim.AdamW([p, q], lr=0.1, weight_decay=0.1), solvers.LS(), objectives=NAMES)
    for t in range(3):
        losses = {name: ((p - i) ** 2 + torch.relu(q - 5) ** 2).sum() for i, name in enumerate(NAMES) if i != t}
        opt.zero_grad()
        opt.backward(losses)
        opt.step()
    assert float(q) == pytest.approx(0.99**3)
