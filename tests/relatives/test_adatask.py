"""AdaTask against the paper's algorithm in plain Python, against torch's Adam, and what it promises."""

from __future__ import annotations

import math

import pytest
import torch

from madamoo.relatives import AdaTask
from madamoo.relatives._moments import moment_dtype, open_state, update_moments
from relatives.moving_quadratics import (
    REACH,
    START,
    always,
    distance,
    gradient,
    torch_loss,
    train,
)


def oracle(steps, present, lr=0.01, beta1=0.9, beta2=0.999, eps=1e-8, decay=0.0):
    """Algorithm 2 of the paper, Adam branch, coordinate by coordinate; objectives that are absent rest."""
    theta = {name: list(x) for name, x in START.items()}
    m = {(n, k): [0.0] * len(x) for n, x in theta.items() for k in range(3)}
    v = {(n, k): [0.0] * len(x) for n, x in theta.items() for k in range(3)}
    count = dict.fromkeys(m, 0)
    for t in range(steps):
        for name, x in theta.items():
            tasks = [k for k in REACH[name] if k in present(t)]
            gradients = {k: gradient(k, x, t) for k in tasks}
            if tasks:
                for j in range(len(x)):
                    x[j] *= 1 - lr * decay
            for k in tasks:
                count[name, k] += 1
                for j, g in enumerate(gradients[k]):
                    m[name, k][j] = beta1 * m[name, k][j] + (1 - beta1) * g
                    v[name, k][j] = beta2 * v[name, k][j] + (1 - beta2) * g * g
                    m_hat = m[name, k][j] / (1 - beta1 ** count[name, k])
                    v_hat = v[name, k][j] / (1 - beta2 ** count[name, k])
                    x[j] -= lr * m_hat / (math.sqrt(v_hat) + eps)
    return theta


def now_and_then(t):
    """The last objective comes late, the second comes and goes."""
    return tuple(i for i in range(3) if not (i == 1 and t % 3 == 1) and not (i == 2 and t < 5))


@pytest.mark.parametrize(
    "present, options",
    [(always, {}), (now_and_then, {}), (now_and_then, {"betas": (0.5, 0.9), "eps": 1e-3, "weight_decay": 0.1})],
)
def test_equals_the_papers_algorithm(present, options):
    params = train(AdaTask, 100, present, **options)
    beta1, beta2 = options.get("betas", (0.9, 0.999))
    theta = oracle(
        100, present, beta1=beta1, beta2=beta2, eps=options.get("eps", 1e-8), decay=options.get("weight_decay", 0)
    )
    assert distance(params, theta) < 1e-12


def test_the_oracle_rejects_one_denominator_for_all_tasks():
    class Pooled(AdaTask):
        def move(self, param, keys, rows, group):
            at = open_state(self.state[param], param, keys)
            m, v = update_moments(self.state[param], at, rows.to(moment_dtype(param)), group["betas"])
            return m.sum(0) / (v.sum(0).sqrt() + group["eps"])

    assert distance(train(Pooled, 100, always), oracle(100, always)) > 1e-2


def test_a_head_follows_plain_adam():
    params = train(AdaTask, 100, always)
    head = torch.tensor(START["head"], dtype=torch.float64, requires_grad=True)
    adam = torch.optim.Adam([head], lr=0.01)
    for t in range(100):
        adam.zero_grad()
        torch_loss(2, {"head": head}, t).backward()
        adam.step()
    torch.testing.assert_close(params["head"], head, rtol=1e-12, atol=1e-13)


def test_objectives_that_agree_make_the_step_as_many_times_larger():
    x, y = (torch.tensor([3.0, -2.0], dtype=torch.float64, requires_grad=True) for _ in range(2))
    one, three = AdaTask([x], lr=0.03), AdaTask([y], lr=0.01)
    for _ in range(20):
        one.backward([x.square().sum()])
        one.step()
        loss = y.square().sum()
        three.backward([loss, 10 * loss, 0.1 * loss])
        three.step()
    torch.testing.assert_close(x, y, rtol=1e-7, atol=1e-8)


def test_the_scale_of_a_loss_does_not_matter():
    results = []
    for scale in (1.0, 1e6):
        torch.manual_seed(0)
        x = torch.zeros(5, dtype=torch.float64, requires_grad=True)
        opt = AdaTask([x], lr=0.01, eps=1e-30)
        for _ in range(50):
            noise = torch.randn(2, 5, dtype=torch.float64)
            opt.backward([(x - noise[0]).square().sum(), scale * (x - noise[1]).square().sum()])
            opt.step()
        results.append(x.detach())
    torch.testing.assert_close(*results, rtol=1e-9, atol=1e-10)


def test_ends_between_the_targets_of_separable_quadratics():
    """Where all objectives agree on the sign, the coordinate moves: so it ends in the hull of the targets."""
    torch.manual_seed(0)
    targets = torch.randn(5, 6, dtype=torch.float64)
    targets[:, 0] = 0.7  # here they agree
    x = torch.full((6,), 4.0, dtype=torch.float64, requires_grad=True)
    opt = AdaTask([x], lr=0.02)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 400)
    for _ in range(400):
        opt.backward([(x - c).square().sum() * 10.0**i for i, c in enumerate(targets)])
        opt.step()
        schedule.step()
    assert abs(x[0].item() - 0.7) < 1e-2
    assert bool((x >= targets.amin(0) - 1e-2).all() and (x <= targets.amax(0) + 1e-2).all())
