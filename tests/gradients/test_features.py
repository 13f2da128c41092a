"""Heads first, then the trunk: the Gram matrix of the features, and one pass through the trunk."""

import copy

import pytest
import torch
from torch import nn

from helpers import Net, adam, metric, same_params, wrap
from madamoo import MAdam, MultiObjective, PreferenceMetric, solvers
from madamoo.gradients import cut_at, differentiate_heads, differentiate_trunk, join_sides, read_losses, unpack


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


def test_both_sides_against_autograd():
    """Rows of the features, gradients of the heads, and one pass of the weighted sum through the trunk."""
    net = Cut()
    params, weights = list(net.parameters()), [0.3, -2.0, 0.0]
    losses = net.losses(0)
    batch = read_losses(losses)
    cut = cut_at(net.features, batch, params)
    assert {*cut.trunk} == {*net.trunk.parameters()} and {*cut.heads} == {*net.heads.parameters()}
    for scale in (1.0, 8.0):
        rows, heads = differentiate_heads(batch, cut, scale=scale, retain_graph=True)
        found = unpack(rows, cut.features)
        for i, loss in enumerate(losses):
            wanted = torch.autograd.grad(loss, net.features, retain_graph=True, allow_unused=True)
            torch.testing.assert_close(found.rows[i], list(wanted))
        trunk = differentiate_trunk(batch, cut, rows, weights, scale=scale, retain_graph=True)
        both = join_sides(cut, heads, trunk, params)
        total = sum(w * loss for w, loss in zip(weights, losses, strict=True))
        for p, found_rest in zip(params, both.rest, strict=True):
            own = [torch.autograd.grad(loss, p, retain_graph=True, allow_unused=True)[0] for loss in losses]
            if p in {*cut.trunk}:
                torch.testing.assert_close(found_rest, torch.autograd.grad(total, p, retain_graph=True)[0])
                own = [None] * 3
            else:
                assert found_rest is None
            place = next(k for k, q in enumerate(params) if q is p)
            for i, wanted in enumerate(own):
                got = both.rows[i][place]
                assert (got is None) == (wanted is None)
                assert wanted is None or torch.allclose(got, wanted, rtol=1e-12)


def test_gram_of_features_against_autograd():
    for t, solver in enumerate(["mgda", "cagrad", "upgrad"]):
        net = Cut()
        opt = wrap(net, solver, gram="features")
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


def test_number_of_passes_through_the_trunk():
    for gram, passes in (("parameters", 3), ("features", 1)):
        net = Net()
        opt = wrap(net, "mgda", gram=gram)
        seen = []
        h = net.trunk(torch.randn(8, 4, dtype=torch.float64))
        h.register_hook(seen.append)
        z = h.clone()
        losses = [head(z).square().mean() for head in net.heads]
        opt.backward(losses, features=z if gram == "features" else None)
        assert len(seen) == passes


def test_a_power_of_two_as_scale_changes_nothing():
    nets = [Cut() for _ in range(2)]
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    for net, scale in zip(nets, (None, scaler), strict=True):
        opt = wrap(net, "mgda", gram="features")
        losses = net.losses(0)
        opt.backward(losses, features=net.features, scaler=scale)
    for a, b in zip(nets[0].parameters(), nets[1].parameters(), strict=True):
        torch.testing.assert_close(a.grad * 2.0**10, b.grad)


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
    with pytest.raises(ValueError, match="gram must be one of 'parameters', 'features', got 'rows'"):
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
    with pytest.raises(ValueError, match="got str"):
        opt.backward(losses, features=["trunk"])
    with pytest.raises(ValueError, match="at least one tensor"):
        opt.backward(losses, features=[])
    with pytest.raises(ValueError, match="one node of the graph"):
        opt.backward(losses, features=[*net.features, losses[0]])
    with pytest.raises(ValueError, match="does not depend on the features"):
        opt.backward([*losses[:2], net.heads[2].weight.square().sum()], features=net.features)


def test_a_way_around_the_features_is_an_error():
    net = Cut()
    opt = wrap(net, "mgda", gram="features")
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


def test_features_are_for_the_gram_matrix_of_features_only():
    net = Cut()
    losses = net.losses(0)
    with pytest.raises(ValueError, match="built with gram='features'"):
        wrap(net, "mgda").backward(losses, features=net.features)
