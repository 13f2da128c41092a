"""GradVac against the paper's algorithm on the gradients themselves, and against TorchJD, over many steps."""

import numpy as np
import pytest
import torch

from gram_matrices import KINDS, angle, gradients, solve
from madamoo.solvers._gradvac import GradVac
from madamoo.solvers._pcgrad import PCGrad


def vaccinate(J, targets, beta):
    """Algorithm 1 of the paper, in the order of the objectives; changes the targets."""
    result = []
    for i in range(len(J)):
        g = J[i].copy()
        for j in range(len(J)):
            norms = np.linalg.norm(g) * np.linalg.norm(J[j])
            if i == j or norms <= 3e-7 * np.linalg.norm(J[i]) * np.linalg.norm(J[j]):
                continue
            phi, target = g @ J[j] / norms, targets[i, j]
            if phi < target:
                sine, target_sine = np.sqrt(max(1 - phi**2, 0)), np.sqrt(1 - target**2)
                step = np.linalg.norm(g) * (target * sine - phi * target_sine) / (np.linalg.norm(J[j]) * target_sine)
                g += step * J[j]
                assert np.isclose(g @ J[j], target * np.linalg.norm(g) * np.linalg.norm(J[j]), atol=1e-6 * norms)
            targets[i, j] = (1 - beta) * target + beta * phi
        result.append(g)
    return sum(result)


def check(make):
    for kind in KINDS:
        for count in (2, 3, 6):
            solver, targets = make(), np.zeros((count, count))
            for step in range(12):
                J = gradients(kind, count, step)
                d = vaccinate(J, targets, 0.3)
                weights = solve(solver, J)
                assert np.linalg.norm(weights @ J - d) <= 1e-6 * np.linalg.norm(J, axis=1).sum(), kind
                np.testing.assert_allclose(solver.targets.numpy(), targets, atol=1e-6, err_msg=kind)


def test_is_the_papers_algorithm():
    check(lambda: GradVac(0.3, "fixed"))


def test_that_check_rejects_targets_that_rest():
    class Broken(GradVac):
        def weights(self, losses, gram=None, preference=None):
            self.ensure(len(losses))
            targets = self.targets
            weights = super().weights(losses, gram)
            self.targets = 0.9 * self.targets + 0.1 * targets
            return weights

    with pytest.raises(AssertionError):
        check(lambda: Broken(0.3, "fixed"))


def test_agrees_with_torchjd(monkeypatch):
    aggregation = pytest.importorskip("torchjd.aggregation")
    monkeypatch.setattr(torch, "randperm", torch.arange)
    for kind in ("plain", "square", "correlated", "lengths", "ill-conditioned"):
        for count in (2, 3, 7):
            ours, theirs = GradVac(0.3, "fixed"), aggregation.GradVacWeighting(beta=0.3, eps=0.0)
            for step in range(12):
                J = gradients(kind, count, step)
                expected = theirs(torch.from_numpy(J @ J.T)).numpy()
                assert angle(solve(ours, J) @ J, expected @ J) < 1e-7, kind


def test_the_first_step_is_pcgrads():
    for count in (2, 5, 9):
        J = gradients("plain", count)
        np.testing.assert_allclose(solve(GradVac(seed=5), J), solve(PCGrad(seed=5), J), rtol=1e-9)


def test_targets_approach_the_cosines_seen():
    J = np.array([[1.0, 0.0], [0.6, 0.8]])
    solver = GradVac()
    for _ in range(1000):
        np.testing.assert_allclose(solve(solver, J), [1, 1])
    np.testing.assert_allclose(solver.targets.numpy(), [[0, 0.6], [0.6, 0]], atol=1e-4)
    # A later conflict is turned all the way to the usual angle.
    K = np.array([[1.0, 0.0], [-0.6, 0.8]])
    weights = solve(solver, K)
    assert (weights > 1.5).all()


def test_parallel_gradients_forever_are_no_trouble():
    solver = GradVac(0.5)
    for sign in (1, -1):
        J = np.array([[1.0, 2.0], [sign * 0.3, sign * 0.6]])
        for _ in range(200):
            weights = solve(solver, J)
            assert np.isfinite(weights).all() and (np.abs(weights) < 100).all()


def test_a_zero_gradient_leaves_its_targets_alone():
    solver = GradVac(0.5)
    J = gradients("plain", 3)
    solve(solver, J)
    before = solver.targets.clone()
    J[1] = 0
    solve(solver, J)
    assert torch.equal(solver.targets[1], before[1]) and torch.equal(solver.targets[:, 1], before[:, 1])
    assert not torch.equal(solver.targets[0, 2], before[0, 2])
