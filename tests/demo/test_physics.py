import pytest
import torch

from madamoo.demo import physics


def test_the_exact_solution_solves_the_problem() -> None:
    problem = physics.make_problem()
    residual = problem.residuals(physics.exact)["pde"]
    assert residual.abs().max() < 1e-3  # of terms of size 50, in float32
    assert problem.constraint_errors(physics.exact)["boundary"].abs().max() < 1e-5


def test_a_run_measures_its_error_against_the_exact_solution_and_the_probe_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    networks = []
    build = physics.pinn.FNN
    monkeypatch.setattr(physics.pinn, "FNN", lambda *args, **kw: networks.append(build(*args, **kw)) or networks[-1])
    watched = physics.train_physics("Adam", 1e-2, 0, steps=12)
    points = physics.grid()
    with torch.no_grad():
        off = networks[0](points) - physics.exact(points)
    assert watched.error == pytest.approx(float(off.norm() / physics.exact(points).norm()), rel=1e-5)
    torch.testing.assert_close(watched.wrong.flatten(), off.abs().flatten())
    assert len(watched.rows) == 12 and set(watched.rows[0]["losses"]) == set(physics.OBJECTIVES)
    assert watched.steps == list(range(1, 13))
    monkeypatch.setattr(physics, "DIAGNOSED", ())
    alone = physics.train_physics("Adam", 1e-2, 0, steps=12)
    assert alone.rows == [] and alone.errors == watched.errors and alone.losses == watched.losses


def test_the_score_is_minus_the_weighted_loss_at_the_end() -> None:
    run = physics.train_physics("SOAP", 1e-2, 1, steps=3)
    assert run.score == pytest.approx(-(run.losses["pde"][-1] + 100 * run.losses["boundary"][-1]))
