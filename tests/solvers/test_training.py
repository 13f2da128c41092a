"""With the metric and without, training ends near a Pareto set that is known in closed form.

The objectives are |x - c_i|^2 / 2 times a factor: their Pareto set is the convex hull of the centres. For the other
solvers the same is tested in test_loss_balancing, test_gradient_balancing and test_preference_training.
"""

import numpy as np
import pytest
import torch
from scipy.optimize import nnls

from madamoo import MultiObjective, PreferenceMetric, solvers

FACTORS = (1.0, 0.3, 3.0, 0.1, 2.0)
STEPS = 350
SOLVERS = ("ls", "rlw", "uw", "dwa", "mgda", "cagrad", "graddrop", "rotograd", "preference")


def centres(count):
    rng = np.random.default_rng(count)
    return rng.normal(size=(count, count + 2))


def distance_to_hull(x, points):
    """By non-negative least squares, the sum of the weights held at 1 by a heavy row."""
    heavy = 1e4
    A = np.vstack([points.T, heavy * np.ones(len(points))])
    w, _ = nnls(A, np.append(x, heavy))
    return float(np.linalg.norm(points.T @ w - x))


@pytest.mark.parametrize("name", SOLVERS)
def test_ends_near_the_pareto_set(name):
    check(name, None, 5)
    check(name, "auto", 2)


def check(name, estimator, count):
    C = centres(count)
    x = torch.nn.Parameter(torch.full((count + 2,), 3.0, dtype=torch.float64))
    start = distance_to_hull(x.detach().numpy(), C)
    solver = solvers.get(name)
    metric = None if estimator is None else PreferenceMetric(estimator, rampup=20)
    inner = torch.optim.Adam([x], lr=0.15, betas=(0.9, 0.99))
    opt = MultiObjective(inner, solver, metric)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, STEPS)
    preference = torch.linspace(1, 2, count, dtype=torch.float64) if solver.uses_preference else None
    targets = torch.from_numpy(C)
    for _ in range(STEPS):
        opt.zero_grad()
        opt.backward([f * (x - c).square().sum() / 2 for f, c in zip(FACTORS, targets, strict=False)], preference)
        opt.step()
        schedule.step()
    assert opt.skipped == 0
    assert distance_to_hull(x.detach().numpy(), C) < 0.03 * start
