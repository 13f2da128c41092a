"""Gradients of many kinds, and what the tests of gradient-balancing solvers do with them."""

import numpy as np
import torch

KINDS = ("plain", "square", "low rank", "correlated", "ill-conditioned", "lengths", "duplicates", "opposed", "silent")
REGULAR = ("plain", "square", "correlated", "lengths")


def gradients(kind, count, seed=0):
    """C gradients as rows, in float64."""
    rng = np.random.default_rng([seed, count, KINDS.index(kind)])
    size = {"square": count, "low rank": count // 2 + 1}.get(kind, 2 * count + 3)
    J = rng.standard_normal((count, size))
    if kind == "correlated":
        J = 0.3 * J + rng.standard_normal((1, size))
    if kind == "ill-conditioned":
        J = J * np.logspace(0, -6, size)
    if kind == "lengths":
        J = J * 10 ** rng.uniform(-6, 3, (count, 1))
    if kind == "duplicates":
        J = J[rng.integers(0, count // 2 + 1, count)] * rng.uniform(0.5, 2, (count, 1))
    if kind == "opposed":
        J = J[rng.integers(0, count // 2 + 1, count)] * rng.choice([-2.0, -1.0, 1.0], (count, 1))
    if kind == "silent":
        J[rng.integers(0, count)] = 0
    return J


def cases(kinds=KINDS, counts=(2, 3, 5, 8), seeds=range(6)):
    return [(kind, gradients(kind, count, seed)) for kind in kinds for count in counts for seed in seeds]


def solve(solver, J, dtype=torch.float64):
    """The solver's weights for these gradients, as an array."""
    gram = torch.from_numpy(J @ J.T).to(dtype)
    return solver.weights(torch.ones(len(J), dtype=dtype), gram).double().numpy()


def units(J):
    norms = np.linalg.norm(J, axis=1, keepdims=True)
    return J / np.where(norms > 0, norms, 1)


def angle(d, e):
    """Between two directions, in radians; 0 if both are zero."""
    norms = np.linalg.norm(d), np.linalg.norm(e)
    if max(norms) == 0:
        return 0.0
    if min(norms) == 0:
        return np.pi
    return float(np.linalg.norm(d / norms[0] - e / norms[1]))


def edge_cases(count):
    """Positive semi-definite Gram matrices at the edge of what a solver may be given."""
    rng = np.random.default_rng(count)
    one = np.ones(count)
    sign = np.where(np.arange(count) % 2 == 0, 1.0, -1.0)
    spread = np.logspace(-6, 3, count)
    plain = gradients("plain", count) @ gradients("plain", count).T
    silent = plain.copy()
    silent[0] = silent[:, 0] = 0
    noisy = rng.standard_normal((count, count // 2 + 1)).astype(np.float32)
    matrices = [plain, silent, 0 * plain, np.eye(count), noisy @ noisy.T]
    matrices += [np.outer(x, x) for x in (one, sign, spread, spread * sign)]
    matrices += [np.outer(spread, spread) * plain, np.outer(1 / spread, 1 / spread) * plain]
    matrices += [J @ J.T for J in (gradients(kind, count) for kind in KINDS)]
    matrices += [factor * plain for factor in (1e-30, 1e-12, 1e6, 1e30)]
    return [torch.from_numpy(np.asarray(K, dtype=np.float64)) for K in matrices]
