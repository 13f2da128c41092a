"""AlignedMTL: equal principal components, the Procrustes solution it stands for, and TorchJD."""

import numpy as np
import pytest
import torch

from gram_matrices import angle, cases, gradients, solve
from madamoo.solvers._alignedmtl import AlignedMTL

SCALES = ("min", "median", "rmse")


def nearest_aligned(J, scale):
    """Gradients with all singular values equal, nearest in direction to J: the orthogonal factor, scaled."""
    left, singular, right = np.linalg.svd(J, full_matrices=False)
    rank = int((singular > 1e-7 * singular[0]).sum())
    kept = singular[:rank] ** 2
    square = {"min": kept[-1], "median": np.sort(kept)[(rank - 1) // 2], "rmse": kept.mean()}[scale]
    return np.sqrt(square) * left[:, :rank] @ right[:rank]


def check(make, scale):
    for kind, J in cases(("plain", "square", "low rank", "correlated", "duplicates", "silent")):
        for weights in (None, np.arange(1.0, len(J) + 1)):
            w = np.full(len(J), 1 / len(J)) if weights is None else weights
            expected = w @ nearest_aligned(J, scale)
            error = np.linalg.norm(solve(make(weights, scale=scale), J) @ J - expected)
            assert error <= 1e-6 * np.linalg.norm(J) * w.sum(), kind


@pytest.mark.parametrize("scale", SCALES)
def test_the_components_become_equally_long(scale):
    check(AlignedMTL, scale)


def test_that_check_rejects_another_scale():
    def make(weights, scale):
        return AlignedMTL(weights, scale="rmse" if scale == "min" else scale)

    with pytest.raises(AssertionError):
        check(make, "min")


@pytest.mark.parametrize("scale", SCALES)
def test_agrees_with_torchjd(scale):
    aggregation = pytest.importorskip("torchjd.aggregation")
    for kind, J in cases(counts=(2, 3, 5, 8, 12)):
        weights = np.arange(1.0, len(J) + 1)
        theirs = aggregation.AlignedMTLWeighting(torch.from_numpy(weights), scale_mode=scale)
        expected = theirs(torch.from_numpy(J @ J.T)).numpy()
        # Eigenvectors of small eigenvalues are inaccurate in both.
        tolerance = {"ill-conditioned": 1e-3, "lengths": 0.1}.get(kind, 1e-6)
        assert angle(solve(AlignedMTL(weights, scale=scale), J) @ J, expected @ J) < tolerance, kind


def test_no_conflict_and_no_dominance_among_independent_gradients():
    for _, J in cases(("plain", "square", "correlated"), counts=(2, 5, 12)):
        aligned = np.stack([solve(AlignedMTL(np.eye(len(J))[i]), J) @ J for i in range(len(J))])
        gram = aligned @ aligned.T
        np.testing.assert_allclose(gram, gram[0, 0] * np.eye(len(J)), atol=1e-6 * gram[0, 0])


def test_without_gradients_the_weights_are_the_given_ones():
    np.testing.assert_array_equal(solve(AlignedMTL([1.0, 3.0]), np.zeros((2, 4))), [1, 3])


def test_the_step_is_no_longer_than_the_shortest_component():
    for seed in range(5):
        J = gradients("square", 5, seed)
        assert np.linalg.norm(solve(AlignedMTL(), J) @ J) <= np.linalg.svd(J)[1][-1] * (1 + 1e-6)
