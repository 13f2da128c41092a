"""Heads first, then the trunk: the same rows as by one pass an objective, and fewer passes."""

import copy

import pytest
import torch
from torch import nn

from helpers import Net, adam, metric, same_params, train, wrap
from madamoo import MAdam, MultiObjective, PreferenceMetric, solvers
from madamoo.gradients import by_param, compute_rows, compute_rows_together, cut_at, read_losses


class Cut(Net):
    """Two tensors of features, of which the first head sees one only."""

    def forward(self, x):
        h = self.trunk(x)
        self.features = (h[:, :4].clone(), h[:, 4:].clone())
        whole = torch.cat(self.features, 1)
        part = torch.cat([self.features[0], torch.zeros_like(self.features[1])], 1)
        return [head(part if i == 0 else whole)[:, 0] for i, head in enumerate(self.heads)]


def by_hand(net, t, weights_of):
    """d with the weights of the features' Gram matrix on the trunk, and 1 on the heads."""
    losses = net.losses(t)
    rows = [torch.autograd.grad(loss, net.features, retain_graph=True, materialize_grads=True) for loss in losses]
    z = torch.stack([torch.cat([g.flatten() for g in row]) for row in rows])
    weights = weights_of(torch.stack(losses).detach(), z @ z.T)
    trunk = torch.autograd.grad(weights @ torch.stack(losses), list(net.trunk.parameters()), retain_graph=True)
    heads = torch.autograd.grad(sum(losses), list(net.heads.parameters()))
    return weights, [*trunk, *heads]


def test_rows_together_are_the_rows():
    net = Cut()
    params = list(net.parameters())
    batch = read_losses(net.losses(0))
    passes = {2: {2: 1.0}, -1: {0: 0.3, 1: -2.0}}
    wanted = {p: (keys, rows) for p, keys, rows in by_param(compute_rows(batch, params, passes, retain_graph=True))}
    cut = cut_at(net.features, batch, params)
    assert set(cut.trunk) == set(net.trunk.parameters()) and set(cut.heads) == set(net.heads.parameters())
    together = compute_rows_together(batch, cut, passes, lambda _, keys: keys, scale=8.0)
    found = {p: (k, r) for p, k, r in by_param(together)}
    assert found.keys() == wanted.keys()
    for p, (keys, rows) in wanted.items():
        assert found[p][0] == keys
        torch.testing.assert_close(found[p][1], rows)


@pytest.mark.parametrize("solver, estimator", [("mgda", None), ("cagrad", "full"), ("uw", "pair"), ("ls", "collapsed")])
def test_training_is_the_same_to_rounding(solver, estimator):
    one, other = Cut(), Cut()
    plain, together = wrap(one, solver, estimator), wrap(other, solver, estimator)
    train(one, plain, 4)
    for t in range(4):
        losses = other.losses(t)
        together.zero_grad()
        together.backward(losses, features=other.features)
        together.step()
    torch.testing.assert_close(list(one.parameters()), list(other.parameters()), rtol=1e-9, atol=1e-12)
    assert not same_params(one, Cut())


@pytest.mark.parametrize("solver", ["mgda", "cagrad", "upgrad"])
def test_gram_of_features_against_autograd(solver):
    net = Cut()
    opt = wrap(net, solver, gram="features")
    for t in range(3):
        weights, wanted = by_hand(net, t, solvers.get(solver).weights)
        losses = net.losses(t)
        opt.zero_grad()
        opt.backward(losses, features=net.features)
        torch.testing.assert_close(opt.weights, weights)
        torch.testing.assert_close([p.grad for p in net.parameters()], wanted)
        opt.step()


def test_the_features_of_a_linear_trunk_with_orthogonal_inputs_are_exact():
    """For z = W x with x x' = 1 the products of dz are those of dW: there the bound is no approximation."""
    torch.manual_seed(0)
    W = nn.Parameter(torch.randn(5, 4, dtype=torch.float64))
    x, targets = torch.eye(4, dtype=torch.float64), torch.randn(3, 5, 4, dtype=torch.float64)
    found = []
    for gram in ("parameters", "features"):
        opt = MultiObjective(torch.optim.SGD([W], 0.0), solvers.MGDA(), gram=gram)
        z = W @ x
        opt.backward([(z - y).square().sum() for y in targets], features=None if gram == "parameters" else z)
        found.append(opt.weights)
    torch.testing.assert_close(*found)


@pytest.mark.parametrize(
    "gram, together, passes", [("parameters", False, 3), ("parameters", True, 1), ("features", True, 1)]
)
def test_number_of_passes_through_the_trunk(gram, together, passes):
    net = Net()
    opt = wrap(net, "mgda", gram=gram)
    x = torch.randn(8, 4, dtype=torch.float64)
    seen = []
    h = net.trunk[1](net.trunk[0](x))
    h.register_hook(lambda g: seen.append(None))  # once a pass, or once for all of them under vmap
    z = h.clone()
    losses = [head(z).square().mean() for head in net.heads]
    opt.backward(losses, features=z if together else None)
    assert len(seen) == passes


def test_scaled_and_accumulated():
    """A power of two as scale changes nothing; micro-batches add up where rows are kept."""
    nets = [Cut() for _ in range(2)]
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    for net, scale in zip(nets, (None, scaler), strict=True):
        opt = wrap(net, "mgda", gram="features")
        losses = net.losses(0)
        opt.backward(losses, features=net.features, scaler=scale)
    for a, b in zip(nets[0].parameters(), nets[1].parameters(), strict=True):
        torch.testing.assert_close(a.grad * 2.0**10, b.grad)

    whole, parts = Cut(), Cut()
    train(whole, wrap(whole, "mgda", "full"), 1)
    opt = wrap(parts, "mgda", "full")
    for part in range(2):
        losses = parts.losses(0, part, 2)
        opt.backward(losses, features=parts.features)
    opt.step()
    torch.testing.assert_close(list(whole.parameters()), list(parts.parameters()))


def test_a_metric_that_needs_no_rows_works_and_a_gradient_that_is_not_finite_is_refused():
    net = Cut()
    opt = MultiObjective(adam(net), solvers.MGDA(), metric("marginal"), gram="features")
    for t in range(3):
        losses = net.losses(t)
        opt.zero_grad()
        opt.backward(losses, features=net.features)
        opt.step()
    before = [p.detach().clone() for p in net.parameters()]
    losses = net.losses(3)
    with pytest.warns(UserWarning, match="not finite"):
        opt.backward([losses[0], losses[1] + (losses[1] - losses[1]).sqrt(), losses[2]], features=net.features)
    opt.step()
    assert opt.skipped == 1
    torch.testing.assert_close(before, list(net.parameters()), rtol=0, atol=0)


def test_errors_say_what_to_do():
    net = Cut()
    params = list(net.parameters())
    with pytest.raises(ValueError, match="PreferenceMetric\\('marginal'\\)"):
        MAdam(params, solver=solvers.MGDA(), gram="features")
    with pytest.raises(ValueError, match="got LS"):
        MultiObjective(adam(net), solvers.LS(), gram="features")
    with pytest.raises(ValueError, match="got GradDrop"):
        MultiObjective(adam(net), solvers.GradDrop(), gram="features")
    with pytest.raises(ValueError, match="rows must be 'needed'"):
        MultiObjective(adam(net), solvers.MGDA(), gram="features", rows="all")
    with pytest.raises(ValueError, match="gram must be 'parameters' or 'features', got 'rows'"):
        MultiObjective(adam(net), gram="rows")
    opt = wrap(net, "mgda", gram="features")
    losses = net.losses(0)
    with pytest.raises(ValueError, match="got none"):
        opt.backward(losses)
    opt.backward(losses, features=net.features, retain_graph=True)
    with pytest.raises(ValueError, match="second backward"):
        opt.backward(losses, features=net.features)
    opt.zero_grad()
    with pytest.raises(ValueError, match="without a graph"):
        opt.backward(losses, features=torch.ones(3))
    with pytest.raises(ValueError, match="does not depend on the features"):
        opt.backward([*losses[:2], net.heads[2].weight.square().sum()], features=net.features)


def test_a_way_around_the_features_is_an_error():
    net = Cut()
    opt = wrap(net, "mgda")
    losses = net.losses(0)
    with pytest.raises(ValueError, match="do not part the network: parameter 0"):
        opt.backward(losses, features=net.features[0])
    h = net.trunk(torch.randn(8, 4, dtype=torch.float64))
    nested = [h, h.exp()]
    for features in (nested, [nested[1]] * 2):
        with pytest.raises(ValueError, match="computed from one another, nor be given twice"):
            opt.backward([head(nested[1]).sum() for head in net.heads], features=features)


def test_checkpoint_of_a_run_with_features_resumes():
    nets = Cut(), Cut()
    opts = [wrap(net, "mgda", gram="features") for net in nets]

    def step(net, opt, t):
        losses = net.losses(t)
        opt.zero_grad()
        opt.backward(losses, features=net.features)
        opt.step()

    for t in range(2):
        step(nets[0], opts[0], t)
    nets[1].load_state_dict(nets[0].state_dict())
    opts[1].load_state_dict(copy.deepcopy(opts[0].state_dict()))  # torch would share the tensors
    for net, opt in zip(nets, opts, strict=True):
        step(net, opt, 2)
    assert same_params(*nets)


def test_a_compiled_trunk():
    """The features' Gram matrix asks for one pass through it, and gives what the plain trunk gives."""
    torch.manual_seed(0)
    trunk = nn.Sequential(nn.Linear(4, 6), nn.Tanh())
    heads = nn.ModuleList(nn.Linear(6, 1) for _ in range(2))
    params = [*trunk.parameters(), *heads.parameters()]
    x = torch.randn(8, 4)
    grads = []
    for run in (trunk, torch.compile(trunk, backend="aot_eager")):
        opt = MultiObjective(torch.optim.SGD(params, 0.0), solvers.MGDA(), gram="features")
        z = run(x)
        opt.backward([(head(z) - i).square().mean() for i, head in enumerate(heads)], features=z)
        grads.append([p.grad.clone() for p in params])
    torch.testing.assert_close(*grads)


def test_the_marginal_metric_is_named_where_auto_would_need_rows():
    with pytest.raises(ValueError, match="gram='parameters'"):
        MultiObjective(adam(Net()), solvers.CAGrad(), PreferenceMetric(), gram="features")
