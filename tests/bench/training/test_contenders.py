import torch

from madamoo import MAdam, MultiObjective
from madamoo.bench.problems.supervised.digits import Digits
from madamoo.bench.problems.supervised.sarcos import SarcosSmall
from madamoo.bench.training._contenders import OPTIMIZERS, available_solvers, build_optimizer, build_solver, is_static


def optimizer(spec, solver="ls", total_steps=10, lr=0.1):
    params = [torch.ones(2, requires_grad=True)]
    return build_optimizer(
        spec, params, lr=lr, solver=build_solver(solver, Digits(), 0), seed=0, total_steps=total_steps
    ), params


def test_each_optimizer_steps_at_its_rate_without_weight_decay():
    for name in OPTIMIZERS:
        built, params = optimizer(name)
        assert [group["lr"] for group in built.param_groups] == [0.1], name
        losses = torch.stack([params[0][0] * 3, params[0][0] * 5])  # the second parameter is in no loss
        built.zero_grad()
        built.backward(losses)
        built.step()
        assert params[0][0] < 1 and params[0][1] == 1, name


def test_baseline_is_adam_on_the_solvers_direction():
    """With constant weights: torch's own Adam on the mean of the losses."""
    assert optimizer("madam:beta1=0")[0].param_groups[0]["betas"] == (0.0, 0.999)
    built, params = optimizer("adam:beta1=0.8:beta2=0.99")
    assert isinstance(built, MultiObjective)
    plain = torch.ones(2, requires_grad=True)
    adam = torch.optim.Adam([plain], lr=0.1, betas=(0.8, 0.99))
    for k in range(5):
        for parameter, step in ((params[0], built), (plain, adam)):
            losses = torch.stack([((parameter - k) ** 2).sum(), (3 * parameter[0] - 1).square()])
            step.zero_grad()
            step.backward(losses) if step is built else losses.mean().backward()
            step.step()
    torch.testing.assert_close(params[0], plain)


def test_options_of_madam_and_of_the_control_arrive():
    built, _ = optimizer("madam:rampup=7:estimator=pair:beta2=0.9")
    assert (
        isinstance(built, MAdam) and built.metric.estimator == "pair" and built.param_groups[0]["betas"] == (0.9, 0.9)
    )
    assert optimizer("marginal:rampup=7")[0].metric.estimator == "marginal"


def test_each_solver_can_be_built_and_used():
    for name in available_solvers():
        built, params = optimizer("adam", name)
        losses = torch.stack([((params[0] - 2) ** 2).sum(), ((params[0] + 1) ** 2).sum()])
        built.zero_grad()
        built.backward(losses)
        built.step()
        assert torch.isfinite(params[0]).all(), name


def test_uncertainty_weighting_gets_the_kinds():
    assert list(build_solver("uw", Digits(), 0).kinds) == ["classification"] * 2
    assert list(build_solver("uw", SarcosSmall(), 0).kinds) == ["regression"] * 7


def test_restless_preferences_follow_the_seed_and_move():
    def weights(seed):
        solver = build_solver("restless", Digits(), seed)
        return [solver.solve(torch.ones(2)).tolist() for _ in range(3)]

    assert weights(0) == weights(0) != weights(1)
    assert len({tuple(w) for w in weights(0)}) == 3
    assert not is_static("restless") and is_static("ls") and not is_static("uw") and not is_static("cagrad:c=0.2")
