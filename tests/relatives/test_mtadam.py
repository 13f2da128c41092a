"""MTAdam against the paper's algorithm in plain Python, against torch's Adam, and what it promises."""

from __future__ import annotations

import math

import pytest
import torch

from madamoo.relatives import MTAdam
from relatives.moving_quadratics import (
    REACH,
    START,
    always,
    distance,
    gradient,
    torch_loss,
    train,
)


def oracle(steps, present, lr=0.01, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, beta3=0.9, ranks=(1, 1, 1)):
    """Algorithm 1 of the paper, layer by layer and term by term; n starts as the first norm, absent terms rest."""
    beta1, beta2 = betas
    theta = {name: list(x) for name, x in START.items()}
    n, m, v, count = {}, {}, {}, {}
    for t in range(steps):
        for layer, x in theta.items():
            terms = [i for i in REACH[layer] if i in present(t)]
            if not terms:
                continue
            m_hats, v_hats = [], []
            for i in terms:
                g = gradient(i, x, t)
                norm = math.sqrt(sum(y * y for y in g))
                if (layer, i) not in n:
                    n[layer, i], count[layer, i] = norm, 1
                    m[layer, i], v[layer, i] = [0.0] * len(x), [0.0] * len(x)
                else:
                    n[layer, i] = beta3 * n[layer, i] + (1 - beta3) * norm
                    count[layer, i] += 1
                anchor = min(k for (name, k) in n if name == layer)
                g = [ranks[i] * n[layer, anchor] / n[layer, i] * y for y in g]
                for j, y in enumerate(g):
                    m[layer, i][j] = beta1 * m[layer, i][j] + (1 - beta1) * y
                    v[layer, i][j] = beta2 * v[layer, i][j] + (1 - beta2) * y * y
                m_hats.append([y / (1 - beta1 ** count[layer, i]) for y in m[layer, i]])
                v_hats.append([y / (1 - beta2 ** count[layer, i]) for y in v[layer, i]])
            for j in range(len(x)):
                x[j] *= 1 - lr * weight_decay
                largest = max(v_hat[j] for v_hat in v_hats)
                x[j] -= lr * sum(m_hat[j] for m_hat in m_hats) / (math.sqrt(largest) + eps)
    return theta


def now_and_then(t):
    """The last objective comes late, the others come and go, the anchor too."""
    return tuple(
        i for i in range(3) if not (i == 0 and t % 4 == 2) and not (i == 1 and t % 3 == 1) and not (i == 2 and t < 5)
    )


OPTIONS = [{}, {"beta3": 0.5, "ranks": (1.0, 3.0, 0.2)}, {"betas": (0.5, 0.9), "eps": 1e-3, "weight_decay": 0.1}]


@pytest.mark.parametrize(
    "present, options", [(always, OPTIONS[0]), (now_and_then, OPTIONS[1]), (now_and_then, OPTIONS[2])]
)
def test_equals_the_papers_algorithm(present, options):
    assert distance(train(MTAdam, 100, present, **options), oracle(100, present, **options)) < 1e-12


@pytest.mark.parametrize("wrong", [{"beta3": 0.99}, {"ranks": (1.0, 1.0, 1.1)}])
def test_the_oracle_rejects_other_options(wrong):
    assert distance(train(MTAdam, 100, always, **wrong), oracle(100, always)) > 1e-4


def test_the_oracle_rejects_unbalanced_gradients():
    class Unbalanced(MTAdam):
        @staticmethod
        def _balance(state, at, g, beta3):
            return torch.ones_like(state["norms"][at])

    assert distance(train(Unbalanced, 100, always), oracle(100, always)) > 1e-2


def test_first_gradients_are_as_large_as_the_anchors():
    params = train(MTAdam, 0, always)
    opt = MTAdam(params.values(), ranks=(1.0, 2.0, 0.5))
    opt.backward([torch_loss(i, params, 0) for i in range(3)])
    opt.step()
    sizes = opt.state[params["shared"]]["first_moment"].flatten(1).norm(dim=1)
    torch.testing.assert_close(sizes / sizes[0], torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64))


def test_the_scale_of_the_losses_does_not_matter():
    results = []
    for scales in ((1.0, 1.0), (1.0, 1e6), (1e3, 1e-3)):
        torch.manual_seed(0)
        x = torch.zeros(5, dtype=torch.float64, requires_grad=True)
        opt = MTAdam([x], lr=0.01, eps=1e-30)
        for _ in range(50):
            noise = torch.randn(2, 5, dtype=torch.float64)
            opt.backward([c * (x - y).square().sum() for c, y in zip(scales, noise, strict=True)])
            opt.step()
        results.append(x.detach())
    for other in results[1:]:
        torch.testing.assert_close(results[0], other, rtol=1e-9, atol=1e-10)


def test_a_gradient_of_zero_neither_balances_nor_breaks():
    x = torch.tensor([1.0, -2.0], requires_grad=True)
    opt = MTAdam([x], lr=0.1)
    for _ in range(30):
        opt.backward([0 * x.sum(), x.square().sum(), 0 * x.sum()])
        opt.step()
    assert opt.state[x]["norms"][0] == 0
    assert bool((x.abs() < 0.7).all())


@pytest.mark.parametrize("count", [2, 5])
def test_ends_near_the_pareto_set(count):
    """In a single layer the step is a positive combination of the gradients over one denominator."""
    torch.manual_seed(0)
    root = torch.randn(count, 6, 6, dtype=torch.float64)
    A = root @ root.mT / 6 + torch.eye(6, dtype=torch.float64)
    c = torch.randn(count, 6, dtype=torch.float64)
    x = torch.full((6,), 1.5, dtype=torch.float64, requires_grad=True)
    opt = MTAdam([x], lr=0.05)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 500)
    losses = [lambda i=i: 10.0**i * 0.5 * (x - c[i]) @ A[i] @ (x - c[i]) for i in range(count)]
    for _ in range(500):
        opt.backward([loss() for loss in losses])
        opt.step()
        schedule.step()
    G = torch.stack([torch.autograd.grad(loss(), x)[0] for loss in losses])
    G = G / G.norm(dim=1, keepdim=True)  # equal norms: the balanced sum is the plain sum
    assert (G.sum(0) / count).norm() < 1e-3


def test_ranks_must_fit_the_objectives():
    x = torch.zeros(2, requires_grad=True)
    with pytest.raises(ValueError, match="ranks must have 3 entries"):
        MTAdam([x], ranks=[1, 2], objectives=["a", "b", "c"])
    opt = MTAdam([x], ranks=[1, 2, 3])
    with pytest.raises(ValueError, match="3 objectives"):
        opt.backward([x.sum(), x.square().sum()])
    with pytest.raises(ValueError, match="ranks must be finite and not negative"):
        MTAdam([x], ranks=[1, -2])
    with pytest.raises(ValueError, match="beta3 must be at least 0 and below 1"):
        MTAdam([x], beta3=1.0)


def test_a_parameter_without_dimensions_is_one_coordinate():
    flat, scalar = (torch.ones(shape, dtype=torch.float64, requires_grad=True) for shape in ((1,), ()))
    for x in (flat, scalar):
        opt = MTAdam([x])
        for t in range(3):
            opt.backward([(x - t).square().sum(), 100 * (x + 1).square().sum()])
            opt.step()
    assert flat.item() == scalar.item()
