"""PCGrad against the paper's algorithm on the gradients themselves, and against TorchJD."""

import itertools

import numpy as np
import pytest
import torch

from gram_matrices import angle, cases, gradients, solve
from madamoo.solvers._pcgrad import PCGrad, meetings


def surgery(J, orders):
    """Algorithm 1 of the paper."""
    result = []
    for i, order in enumerate(orders):
        g = J[i].copy()
        for j in order:
            if g @ J[j] < 0:
                g -= g @ J[j] / (J[j] @ J[j]) * J[j]
        result.append(g)
    return sum(result)


def in_order(count):
    return [[j for j in range(count) if j != i] for i in range(count)]


def check(solver):
    for kind, J in cases():
        if kind == "silent":
            J = J[np.linalg.norm(J, axis=1) > 0]
        d = surgery(J, in_order(len(J)))
        error = np.linalg.norm(solve(solver, J) @ J - d)
        assert error <= 1e-10 * np.linalg.norm(J, axis=1).sum(), kind


def test_is_the_papers_algorithm():
    check(PCGrad("fixed"))


def test_that_check_rejects_a_projection_without_condition():
    class Broken(PCGrad):
        def weights(self, losses, gram=None, preference=None):
            return super().weights(losses, -gram.abs() + 2 * gram.diagonal().diag())

    with pytest.raises(AssertionError):
        check(Broken("fixed"))


def test_agrees_with_torchjd(monkeypatch):
    aggregation = pytest.importorskip("torchjd.aggregation")
    monkeypatch.setattr(torch, "randperm", torch.arange)
    for kind, J in cases(counts=(2, 3, 7)):
        if kind in ("opposed", "duplicates"):
            continue  # it divides rounding errors there
        expected = aggregation.PCGradWeighting()(torch.from_numpy(J @ J.T)).numpy()
        assert angle(solve(PCGrad("fixed"), J) @ J, expected @ J) < 1e-9, kind


def test_the_random_order_is_any_order_as_often_as_any_other():
    J = gradients("square", 3, seed=4)
    pairs = [list(itertools.permutations(others)) for others in in_order(3)]
    possible = np.array([surgery(J, orders) for orders in itertools.product(*pairs)])
    solver = PCGrad()
    hits = np.zeros(len(possible))
    for _ in range(400):
        d = solve(solver, J) @ J
        near = np.linalg.norm(possible - d, axis=1) < 1e-10
        assert near.any()
        hits += near / near.sum()
    assert hits.min() > 25


def test_everyone_meets_all_others_once():
    for generator in (None, torch.Generator().manual_seed(0)):
        for count in (1, 2, 6):
            orders = meetings(count, generator)
            assert [sorted(order) for order in orders.tolist()] == in_order(count)


def test_two_conflicting_gradients_end_orthogonal_to_each_other():
    for seed in range(20):
        J = gradients("square", 2, seed)
        weights = solve(PCGrad(), J)
        c = J[0] @ J[1]
        expected = [1 + max(-c, 0) / (J[0] @ J[0]), 1 + max(-c, 0) / (J[1] @ J[1])]
        np.testing.assert_allclose(weights, expected, rtol=1e-12)
        assert (J @ (weights @ J) >= -1e-12).all()
