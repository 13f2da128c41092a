"""The loop, L-BFGS after it, and points that are added where the residual is large."""

import pytest
import torch

from madamoo import MAdam
from madamoo.pinn import FNN, RAR, DirichletBC, Interval, Problem, RARPinnacle, polish, train
from madamoo.relatives import AdaTask


def peak(**options):
    """-u'' = a narrow bump at 0.8."""
    return Problem(
        Interval(0, 1),
        lambda f: f.u_xx + torch.exp(-200 * (f.x - 0.8) ** 2),
        {"ends": DirichletBC()},
        **{"num_domain": 50, "num_boundary": 2, "dtype": torch.float64, **options},
    )


def build():
    return FNN([1, 12, 12, 1], generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_training_is_the_loop_a_user_would_write():
    problem, network, by_hand = peak(), build(), build()
    train(problem, network, MAdam(network.parameters(), lr=1e-2), 5)
    opt = MAdam(by_hand.parameters(), lr=1e-2)
    for _ in range(5):
        opt.zero_grad()
        opt.backward(problem.losses(by_hand))
        opt.step()
    assert all(torch.equal(a, b) for a, b in zip(network.parameters(), by_hand.parameters(), strict=True))


def test_an_optimizer_of_torch_is_refused_and_one_that_balances_by_itself_is_not():
    problem, network = peak(), build()
    with pytest.raises(TypeError, match=r"opt must have backward\(losses\), as MAdam has, got Adam: take Multi"):
        train(problem, network, torch.optim.Adam(network.parameters()), 1)
    before = [p.clone() for p in network.parameters()]
    train(problem, network, AdaTask(network.parameters(), lr=1e-2), 1)
    assert not all(map(torch.equal, before, network.parameters()))


def test_resampling_draws_new_points_and_repeats_with_its_generator():
    seen = []
    for _ in range(2):
        problem, network = peak(), build()
        mine: list[torch.Tensor] = []
        train(
            problem,
            network,
            MAdam(network.parameters(), lr=1e-2),
            6,
            resample_every=2,
            generator=torch.Generator().manual_seed(3),
            callback=lambda step, losses, p=problem, m=mine: m.append(p.points.clone()),
        )
        seen.append(mine)
    for a, b in zip(*seen, strict=True):
        assert torch.equal(a, b)
    first = seen[0]
    assert torch.equal(first[0], first[1]) and not torch.equal(first[1], first[2])
    with pytest.raises(ValueError, match="resample_every must be at least 1"):
        train(peak(), build(), MAdam(build().parameters()), 1, resample_every=0)


def test_polishing_goes_below_what_the_optimizer_reached():
    problem, network = peak(), build()
    train(problem, network, MAdam(network.parameters(), lr=1e-2), 200)
    before = sum(loss.item() for loss in problem.losses(network).values())
    after = polish(problem, network, 150)
    assert after < before / 5
    assert abs(sum(loss.item() for loss in problem.losses(network).values()) - after) < 1e-12
    with pytest.raises(ValueError, match="weights must be of pde, ends, got end"):
        polish(problem, network, 1, {"end": 2.0})


def test_refinement_adds_fresh_points_of_largest_residual():
    problem, network = peak(), build()
    torch.nn.init.zeros_(network.layers[-1].weight)  # the residual is then the bump
    rar = RAR(every=1, count=5, candidates=400)
    chosen = rar.refine(problem, network)
    assert len(problem.points) == 57 and bool(((chosen - 0.8).abs() < 0.03).all())
    original = {round(v, 12) for v in peak().points[:, 0].tolist()}
    assert not original & {round(v, 12) for v in chosen[:, 0].tolist()}
    assert not torch.equal(chosen, rar.refine(problem, network))

    problem = peak()
    chosen = RARPinnacle(count=3).refine(problem, network)
    assert {round(v, 12) for v in chosen[:, 0].tolist()} <= original
    assert len(problem.points) == 55
    largest = (problem.residuals(network, peak().points)["pde"]).abs().flatten().topk(3).values
    torch.testing.assert_close(problem.residuals(network, chosen)["pde"].abs().flatten(), largest)

    counts = []
    problem = peak()
    train(
        problem,
        network,
        MAdam(network.parameters()),
        6,
        rar=RAR(every=2, count=4, candidates=50),
        callback=lambda step, losses: counts.append(len(problem.points)),
    )
    assert counts == [52, 52, 56, 56, 60, 60]
    with pytest.raises(ValueError, match="candidates at least count"):
        RAR(count=10, candidates=5)
