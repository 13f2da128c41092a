"""Every solver, with the metric and without, ends near a Pareto set that is known in closed form.

The objectives are |x - c_i|^2 / 2 times a factor: their Pareto set is the convex hull of the centres.
"""

import numpy as np
import pytest
import torch
from scipy.optimize import nnls

from madamoo import MultiObjective, PreferenceMetric, solvers

FACTORS = (1.0, 0.3, 3.0, 0.1, 2.0)
STEPS = 350
OPTIONS = {
    "paretomtl": {"search_steps": 100}
}  # its search for the region may take 500 steps: leave some for the descent
TOLERANCE = {
    "tchebycheff": 0.12,  # a subgradient method: lambda jumps from objective to objective until the end
    "ferero": 0.05,  # slow along its ray: 0.034 with the metric after these 350 steps, 0.020 after 1,400
    "paretomtl": 0.08,  # stops at the edge of its region, which need not meet the front
}


def centres(count):
    rng = np.random.default_rng(count)
    return rng.normal(size=(count, count + 2))


def distance_to_hull(x, points):
    """By non-negative least squares, the sum of the weights held at 1 by a heavy row."""
    heavy = 1e4
    A = np.vstack([points.T, heavy * np.ones(len(points))])
    w, _ = nnls(A, np.append(x, heavy))
    return float(np.linalg.norm(points.T @ w - x))


@pytest.mark.parametrize("name", solvers.available())
def test_ends_near_the_pareto_set(name):
    check(name, None, 5)
    check(name, "auto", 2)


def check(name, estimator, count):
    C = centres(count)
    x = torch.nn.Parameter(torch.full((count + 2,), 3.0, dtype=torch.float64))
    start = distance_to_hull(x.detach().numpy(), C)
    solver = solvers.get(name, **OPTIONS.get(name, {}))
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
    assert distance_to_hull(x.detach().numpy(), C) < TOLERANCE.get(name, 0.03) * start
