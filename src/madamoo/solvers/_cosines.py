"""The Gram matrix without the gradients' lengths: what solvers work on whose answer does not depend on them."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ._qp import Array


def cosines(gram: Tensor) -> tuple[Array, Array, NDArray[np.bool_]]:
    """The cosines S [C, C] between the gradients, their norms n [C], K_ij = n_i S_ij n_j, and which are not zero [C].

    A gradient that is zero counts as orthogonal to all others and as long as the longest: finite, and in nobody's way.
    """
    K = gram.detach().to("cpu", torch.float64).numpy()
    n = np.sqrt(K.diagonal().clip(0.0))
    longest = n.max()
    alive = n > 1e-150 * longest
    if not alive.all():
        n = np.where(alive, n, longest if longest > 0 else 1.0)
        K = np.where(alive & alive[:, None], K, 0.0)
    S = (K / n / n[:, None]).clip(-1.0, 1.0)
    S.flat[:: len(S) + 1] = 1.0
    return S, n, alive


def eigh(A: Array) -> tuple[Array, Array]:
    """Eigenvalues, ascending, and eigenvectors; torch's, as numpy's may wait for a pool of threads of its own."""
    values, vectors = torch.linalg.eigh(torch.from_numpy(A))
    return values.numpy(), vectors.numpy()
