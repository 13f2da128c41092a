"""RotoGrad: scales against the paper's equations on the feature gradients; rotations stay rotations and align."""

import pytest
import torch
from torch import nn

from madamoo import MultiObjective, PreferenceMetric
from madamoo.solvers._rotograd import RotoGrad

COUNT, FEATURES = 3, 4


class Net(nn.Module):
    def __init__(self, solver):
        super().__init__()
        torch.manual_seed(0)
        self.trunk = nn.Sequential(nn.Linear(5, FEATURES), nn.Tanh()).double()
        self.heads = nn.ModuleList(nn.Linear(FEATURES, 1) for _ in range(COUNT)).double()
        self.rotate = solver.rotate

    def losses(self, x):
        turned = self.rotate(self.trunk(x))
        return [(10.0**k) * (h(r) - k).square().mean() for k, (h, r) in enumerate(zip(self.heads, turned, strict=True))]


def batch(seed=0, n=16):
    return torch.randn(n, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def optimizer(net, solver, metric=None):
    return MultiObjective(torch.optim.SGD(net.parameters(), lr=0.05), solver, metric)


def test_every_objective_gets_the_common_norm_at_the_features():
    """d on the trunk is the gradient of sum_k c <U_k, z>, c = sum_k a_k ||G_k||; at the start a_k = 1/K."""
    solver = RotoGrad(COUNT)
    net = Net(solver)
    opt = optimizer(net, solver)
    opt.backward(net.losses(batch()))

    z = net.trunk(batch())
    losses = [(10.0**k) * (h(z) - k).square().mean() for k, h in enumerate(net.heads)]
    G = [torch.autograd.grad(loss, z, retain_graph=True)[0] for loss in losses]
    c = sum(g.norm() for g in G) / COUNT
    wanted = torch.autograd.grad(sum(c * (g / g.norm() * z).sum() for g in G), list(net.trunk.parameters()))
    torch.testing.assert_close([p.grad for p in net.trunk.parameters()], list(wanted))


def test_the_share_follows_the_relative_norms_later_on():
    solver = RotoGrad(2)
    losses = torch.ones(2, dtype=torch.float64)
    solver.weights(losses, torch.diag(torch.tensor([1.0, 4.0], dtype=torch.float64)))  # norms 1 and 2
    found = solver.weights(losses, torch.diag(torch.tensor([9.0, 4.0], dtype=torch.float64)))  # norms 3 and 2
    c = (3 / 4) * 3 + (1 / 4) * 2  # shares from the ratios 3/1 and 2/2
    torch.testing.assert_close(found, torch.tensor([c / 3, c / 2], dtype=torch.float64))


def test_rotations_stay_rotations_and_the_gradients_align():
    """With a trunk that stays put, turning the features alone brings the gradients together."""
    solver = RotoGrad(2, lr=0.05)
    z = torch.randn(32, FEATURES, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    z = nn.Parameter(z)
    directions = torch.randn(2, FEATURES, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    opt = MultiObjective(torch.optim.SGD([z], lr=0.0), solver)

    def cosine():
        turned = [d @ R for d, R in zip(directions, solver.rotations, strict=True)]
        return float(torch.nn.functional.cosine_similarity(*turned, dim=0))

    for t in range(200):
        opt.zero_grad()
        opt.backward([(r @ d).mean() for r, d in zip(solver.rotate(z), directions, strict=True)])
        if t == 0:
            before = cosine()
        opt.step()
    eye = torch.eye(FEATURES, dtype=torch.float64)
    for R in solver.rotations:
        torch.testing.assert_close(R @ R.T, eye, atol=1e-9, rtol=0)
        assert float(torch.linalg.det(R)) > 0
    assert before < 0.9 and cosine() > 0.999


def test_micro_batches_are_one_batch():
    results = []
    for parts in (1, 4):
        solver = RotoGrad(COUNT)
        net = Net(solver)
        opt = optimizer(net, solver, PreferenceMetric("full", rampup=0))
        for t in range(5):
            opt.zero_grad()
            for x in batch(t).chunk(parts):
                opt.backward([loss / parts for loss in net.losses(x)])
            opt.step()
        results.append([p.detach() for p in net.parameters()])
    torch.testing.assert_close(*results, rtol=1e-9, atol=1e-12)


def at_features(net, k, batches):
    """The gradient of objective k by the features of these batches, end to end."""
    features = [net.trunk(x) for x in batches]
    losses = [(10.0**k) * (net.heads[k](z) - k).square().mean() for z in features]
    return torch.cat(torch.autograd.grad(sum(losses), features))


def test_a_micro_batch_that_lacks_objectives_counts_for_norms_and_not_for_rotations():
    """Objective 0 has more samples than the others: its norm is over all of its own, v_n over the common ones."""
    whole, more = batch(0), batch(1, n=8)
    rotations = []
    for extra in (False, True):
        solver = RotoGrad(COUNT)
        net = Net(solver)
        opt = optimizer(net, solver)
        opt.backward(net.losses(whole))
        if extra:
            opt.backward([net.losses(more)[0], None, None])
            norms = torch.stack([at_features(net, k, [whole, more][: 1 + (k == 0)]).norm() for k in range(COUNT)])
            torch.testing.assert_close(opt.weights, norms.mean() / norms)
        opt.step()
        rotations.append(solver.rotations)
    torch.testing.assert_close(*rotations)


def test_micro_batches_without_a_common_sample_turn_nothing():
    solver = RotoGrad(COUNT)
    net = Net(solver)
    opt = optimizer(net, solver)
    for k in range(COUNT):
        opt.backward([loss if i == k else None for i, loss in enumerate(net.losses(batch(k)))])
    norms = torch.stack([at_features(net, k, [batch(k)]).norm() for k in range(COUNT)])
    torch.testing.assert_close(opt.weights, norms.mean() / norms)
    opt.step()
    assert all(torch.equal(R, torch.eye(FEATURES, dtype=torch.float64)) for R in solver.rotations)


def test_objectives_of_one_batch_may_come_one_by_one():
    results = []
    for together in (True, False):
        solver = RotoGrad(COUNT)
        net = Net(solver)
        opt = optimizer(net, solver)
        losses = net.losses(batch())
        for chosen in [range(COUNT)] if together else [[k] for k in range(COUNT)]:
            opt.backward([loss if i in chosen else None for i, loss in enumerate(losses)], retain_graph=True)
        opt.step()
        results.append([*solver.rotations, *(p.detach() for p in net.parameters())])
    torch.testing.assert_close(*results)
    assert not torch.equal(results[0][0], torch.eye(FEATURES, dtype=torch.float64))


@pytest.mark.parametrize("clear", [True, False])
def test_a_step_that_is_not_taken_leaves_no_trace(clear):
    states = []
    for detour in (False, True):
        solver = RotoGrad(COUNT)
        net = Net(solver)
        opt = optimizer(net, solver)
        for t in range(4):
            if detour:
                opt.backward(net.losses(batch(100 + t)))
                opt.zero_grad() if clear else net.zero_grad()
            opt.zero_grad()
            opt.backward(net.losses(batch(t)))
            opt.step()
        states.append([solver.rotations, solver.start, *(p.detach() for p in net.parameters())])
    assert all(torch.equal(a, b) for a, b in zip(*states, strict=True))


def test_resumes_into_a_fresh_solver():
    solver = RotoGrad(COUNT)
    net = Net(solver)
    opt = optimizer(net, solver)
    for t in range(3):
        opt.zero_grad()
        opt.backward(net.losses(batch(t)))
        opt.step()
    again = RotoGrad(COUNT)
    again.load_state_dict(solver.state_dict())
    assert torch.equal(again.rotations, solver.rotations) and torch.equal(again.start, solver.start)
    assert not torch.equal(again.rotations[0], torch.eye(FEATURES, dtype=torch.float64))


def test_rotate_needs_the_number_of_objectives():
    with pytest.raises(ValueError, match="n_objectives"):
        RotoGrad().rotate(torch.ones(2, 3))
