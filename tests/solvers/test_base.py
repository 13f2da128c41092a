"""What the base class does for a solver that a user writes."""

import copy

import pytest
import torch

from madamoo import MAdam, MultiObjective, PreferenceMetric
from madamoo.solvers import Solver


class Level(Solver):
    """A running level of each loss and of each product of two, and a random nudge: state of every kind."""

    per_objective = ("level", "product")

    def __init__(self, decay=0.5, seed=0):
        super().__init__()
        self.decay = decay
        self.seed_generator(seed)

    def setup(self, n_objectives):
        self.register_buffer("level", torch.zeros(n_objectives, dtype=torch.float64))
        self.register_buffer("product", torch.zeros(n_objectives, n_objectives, dtype=torch.float64))

    def weights(self, losses, gram=None, preference=None):
        self.ensure(len(losses))
        self.level = torch.lerp(losses.to(self.level), self.level, self.decay)
        self.product = torch.lerp(torch.outer(losses, losses).to(self.product), self.product, self.decay)
        nudge = 0.1 * torch.rand(len(losses), generator=self.generator, dtype=torch.float64)
        return torch.softmax(self.level - self.product.sum(1) + nudge, 0).to(losses)


def build(metric=None, seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 3).double()
    return model, MultiObjective(torch.optim.AdamW(model.parameters(), lr=1e-2), Level(seed=seed), metric)


def train(model, opt, steps, start=0):
    seen = []
    for t in range(start, start + steps):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(t), dtype=torch.float64)
        losses = {name: (model(x)[:, i] - i).square().mean() for i, name in enumerate("abc") if (t, name) != (2, "b")}
        opt.zero_grad()
        opt.backward(losses)
        opt.step()
        seen.append(opt.weights)
    return torch.stack(seen)


@pytest.mark.parametrize("estimator", [None, "pair", "full"])
def test_a_users_solver_is_checkpointed(estimator):
    """Five steps and a new start from the checkpoint are ten steps, bit for bit; another seed is overwritten."""

    def metric():
        return None if estimator is None else PreferenceMetric(estimator, rampup=3)

    model, opt = build(metric())
    train(model, opt, 5)
    saved = copy.deepcopy((model.state_dict(), opt.state_dict()))
    wanted = train(model, opt, 5, start=5)
    fresh, again = build(metric(), seed=9)
    fresh.load_state_dict(saved[0])
    again.load_state_dict(saved[1])
    assert torch.equal(train(fresh, again, 5, start=5), wanted)
    assert torch.equal(fresh.weight, model.weight)
    assert not torch.equal(wanted[0], wanted[1])  # it does move


def test_missing_objectives_rest_in_every_dimension():
    solver = Level()
    solver.solve(torch.tensor([1.0, 2.0, 3.0]))
    product = solver.product.clone()
    weights = solver.solve(torch.tensor([4.0, torch.nan, 6.0]), present=[0, 2])
    assert weights[1] == 0 and weights.sum().item() == pytest.approx(1.0)
    assert torch.equal(solver.level, torch.tensor([2.25, 1.0, 3.75], dtype=torch.float64))
    assert torch.equal(solver.product[1], product[1]) and torch.equal(solver.product[:, 1], product[:, 1])
    assert solver.product[0, 2] == 0.5 * product[0, 2] + 0.5 * 24
    assert solver.n_objectives == 3


def test_an_error_leaves_the_state_whole():
    class Failing(Level):
        def weights(self, losses, gram=None, preference=None):
            super().weights(losses)
            raise RuntimeError("no")

    solver = Failing()
    solver.ensure(3)
    level = solver.level.clone()
    with pytest.raises(RuntimeError, match="no"):
        solver.solve(torch.ones(3), present=[0, 2])
    assert torch.equal(solver.level, level) and solver.n_objectives == 3


def test_weights_of_another_shape_are_refused():
    class Wrong(Solver):
        def weights(self, losses, gram=None, preference=None):
            return losses.sum()

    with pytest.raises(ValueError, match=r"Wrong.weights must return a tensor of shape \(2,\), got \(\)"):
        Wrong().solve(torch.ones(2))


def test_the_graph_of_the_weights_ends_at_the_solver():
    class Learned(Solver):
        def __init__(self):
            super().__init__()
            self.logits = torch.nn.Parameter(torch.zeros(2))

        def weights(self, losses, gram=None, preference=None):
            return torch.softmax(self.logits, 0)

    model = torch.nn.Linear(2, 2)
    opt = MAdam(model.parameters(), solver=Learned())
    opt.backward([out.sum() for out in model(torch.ones(1, 2)).unbind(1)])
    opt.step()
    assert not opt.weights.requires_grad and opt.solver.logits.grad is None
    assert "logits" in opt.state_dict()["multi_objective"]["solver"]
