"""GradDrop: the sign purity and its mask, against the definition in loops; in the metric, against a double sum."""

import numpy as np
import pytest
import torch

from madamoo import MultiObjective, PreferenceMetric
from madamoo.solvers._graddrop import GradDrop


def masks_by_definition(rows, draw, leak):
    """Coordinate by coordinate, as the paper's equations stand."""
    result = np.zeros_like(rows)
    for k in range(rows.shape[1]):
        total = np.abs(rows[:, k]).sum()
        purity = 0.5 * (1 + rows[:, k].sum() / total) if total else 0.5
        for i in range(rows.shape[0]):
            keep = (purity > draw[k] and rows[i, k] > 0) or (purity < draw[k] and rows[i, k] < 0)
            result[i, k] = leak[i] + (1 - leak[i]) * keep
    return result


@pytest.mark.parametrize("leak", [None, [0.0, 0.3, 1.0]])
def test_masks_follow_the_definition(leak):
    for seed in range(5):
        rows = torch.randn(3, 200, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        rows[:, :3] = 0  # no gradient at all
        draw = torch.rand(200, generator=torch.Generator().manual_seed(seed)).double().numpy()
        solver = GradDrop(leak, seed=seed)
        solver.ensure(3)
        found = solver.masks(rows, (0, 1, 2))
        np.testing.assert_array_equal(found.numpy(), masks_by_definition(rows.numpy(), draw, leak or [0, 0, 0]))


def test_a_leak_that_is_not_resolved_yet_is_not_ignored():
    with pytest.raises(ValueError, match="leak is resolved once the objectives are known"):
        GradDrop([0.0, 0.3, 1.0]).masks(torch.ones(3, 2), (0, 1, 2))


def test_positive_gradients_survive_with_the_probability_of_their_purity():
    rows = torch.tensor([[3.0], [-1.0]]).expand(2, 40_000)
    kept = GradDrop().masks(rows, (0, 1))
    assert torch.equal(kept[0] + kept[1], torch.ones(40_000))  # one sign or the other
    assert abs(float(kept[0].mean()) - 0.75) < 0.01


def make(metric, **options):
    param = torch.nn.Parameter(torch.linspace(-1, 1, 6, dtype=torch.float64))
    return param, MultiObjective(torch.optim.SGD([param], lr=0.0), GradDrop(**options), metric)


def test_the_metric_sees_the_mask_in_place_of_lambda():
    """C_k = sum_ij m_ik m_jk F_ij,k with the averages of the undropped gradients."""
    beta, steps = 0.9, 12
    param, opt = make(PreferenceMetric("full", beta=beta, rampup=0, eps=1e-30), seed=3)
    masks = GradDrop(seed=3)
    F = torch.zeros(2, 2, 6, dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    for t in range(1, steps + 1):
        g = torch.randn(2, 6, generator=generator, dtype=torch.float64)
        opt.zero_grad()
        opt.backward([g[0] @ param, g[1] @ param])
        opt.step()
        m = masks.masks(g, (0, 1))
        F = beta * F + (1 - beta) * g[:, None] * g[None]
        C = sum(m[i] * m[j] * F[i, j] for i in range(2) for j in range(2)) / (1 - beta**t)
        d = (m * g).sum(0)
        C = torch.maximum(C, (1 - beta) * d**2)
        torch.testing.assert_close(param.grad, d / torch.sqrt(C + 1e-30), rtol=1e-9, atol=1e-12)


def test_without_a_metric_it_is_the_masked_sum_and_heads_are_left_alone():
    shared, head = (torch.nn.Parameter(torch.ones(50, dtype=torch.float64)) for _ in range(2))
    opt = MultiObjective(torch.optim.SGD([shared, head], lr=0.0), GradDrop(seed=1))
    a, b = torch.randn(2, 50, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    opt.backward([a @ shared + a @ head, b @ shared])
    mask = GradDrop(seed=1).masks(torch.stack([a, b]), (0, 1))
    torch.testing.assert_close(shared.grad, mask[0] * a + mask[1] * b)
    torch.testing.assert_close(head.grad, a)
    assert torch.equal(opt.weights, torch.ones(2, dtype=torch.float64))


def test_leak_is_checked():
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        GradDrop([0.5, 1.5])
    param, opt = make(None, leak=[0.5])
    with pytest.raises(ValueError, match="2 entries"):
        opt.backward([param.sum(), -param.sum()])
