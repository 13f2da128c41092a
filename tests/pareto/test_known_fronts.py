"""Every method finds fronts that are known in closed form; the distances that it keeps are stated here."""

import pytest
import torch

from madamoo import MAdam, MultiObjective, PreferenceMetric, solvers
from madamoo.pareto import (
    COSMOS,
    PHN,
    ConcaveFront,
    ConvexFront,
    PaLoRA,
    PaMaL,
    ThreeQuadratics,
    TiltedQuadratics,
    Uniform,
    igd_plus,
    merge,
    rays,
)

PROBLEMS = {"tilted": TiltedQuadratics(), "convex": ConvexFront(), "three": ThreeQuadratics()}
CONDITIONED = {
    "pamal": lambda p: PaMaL(p.network(1), p.n_objectives),
    "palora": lambda p: PaLoRA(p.network(1), p.n_objectives, rank=4),
    "cosmos": lambda p: COSMOS(p.network(1), p.n_objectives),
    "phn": lambda p: PHN(p.network(1, hidden=8), p.n_objectives, hidden=16),
}
REGIONS = [[0.9, 0.1], [0.6, 0.4], [0.5, 0.5], [0.4, 0.6], [0.1, 0.9]]  # of Pareto MTL
SPAN = {"tilted": 9.0, "convex": 4.0, "three": 3.0}  # how far the largest loss goes along the front, about


def learn(problem, model, steps=300, lr=1e-2):
    """Train with a new pair of rays each step, and return the losses on evenly spaced ones."""
    opt = MAdam(
        [p for p in model.parameters() if p.requires_grad],
        lr=lr,
        solver=solvers.Preference(),
        metric=PreferenceMetric(rampup=50),
    )
    sampler, constant = Uniform(problem.n_objectives, count=2, seed=0), torch.ones(1)
    for t in range(steps):
        opt.param_groups[0]["lr"] = lr * (1 - t / steps)
        drawn = sampler(t / steps)
        losses = [list(problem.losses(model(constant, preference=a))) for a in drawn]
        opt.zero_grad()
        opt.backward(*merge(losses, drawn))
        opt.step()
    with torch.no_grad():
        return torch.stack([problem.losses(model(constant, preference=a)) for a in measured(problem)])


def measured(problem):
    return rays(problem.n_objectives, 11 if problem.n_objectives == 2 else 21)


@pytest.mark.parametrize(
    "name, method",
    [
        ("tilted", "pamal"),
        ("tilted", "cosmos"),
        ("convex", "palora"),
        ("convex", "phn"),
        ("three", "pamal"),
        ("three", "phn"),
    ],
)
def test_conditioned_models_learn_the_whole_front(name, method):
    problem = PROBLEMS[name]
    torch.manual_seed(0)
    model = CONDITIONED[method](problem)
    points = learn(problem, model)
    assert float(problem.distance(points).max()) < 0.02 * SPAN[name]
    # Not only on the front: also where each ray wants to be, and so all along it.
    wanted = torch.stack([problem.losses(problem.solution(a)) for a in measured(problem)])
    assert float((points - wanted).norm(dim=1).mean()) < 0.1 * SPAN[name]
    assert igd_plus(points, wanted) < 0.05 * SPAN[name]


@pytest.mark.parametrize("solver, metric", [("epo", None), ("epo", "auto"), ("ferero", "auto"), ("paretomtl", None)])
def test_one_training_a_ray_finds_points_that_no_weighted_sum_has(solver, metric):
    """Inside the concave part of a front, where linear scalarisation ends at one of its ends."""
    problem, found = ConcaveFront(), []
    for a in ([0.6, 0.4], [0.5, 0.5], [0.4, 0.6]):
        point = problem.point(start=[0.3, -0.2])
        options = {"rays": REGIONS} if solver == "paretomtl" else {}
        inner = torch.optim.AdamW(point.parameters(), lr=2e-2, weight_decay=0.0)
        chosen = None if metric is None else PreferenceMetric(rampup=20)
        opt = MultiObjective(inner, solvers.get(solver, **options), chosen)
        for t in range(300):
            opt.param_groups[0]["lr"] = 2e-2 * (1 - t / 300)
            opt.zero_grad()
            opt.backward(list(problem.losses(point())), preference=a)
            opt.step()
        found.append(problem.losses(point().detach()))
    points = torch.stack(found)
    assert float(problem.distance(points).max()) < 0.01
    assert bool((points > 0.2).all())  # neither end, where one of the losses is next to nothing
    assert bool((points[:, 0].diff() > 0).all())  # the more weight, the less loss
