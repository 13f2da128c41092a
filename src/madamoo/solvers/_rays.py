"""What a preference vector asks for, in the methods that aim at a ray: losses inversely proportional to it."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from ._qp import Array


def read_preference(preference: Tensor | None, count: int) -> Array:
    """The preference r with sum 1; 1/C each when none is given, all zero where it is all zero (absent objectives)."""
    if preference is None:
        return np.full(count, 1.0 / count)
    r = preference.detach().double().cpu().numpy()
    r = r / max(float(r.max()), 1e-300)  # first by the largest: the sum of huge entries would overflow
    return r / max(float(r.sum()), 1e-300)


def loss_ray(r: Array) -> Array:
    """The direction u of the losses with r_i l_i equal for all i, of length 1; for each row, if r has several.

    With zeros in r it is the limit for small equal entries in their place: losses on those objectives alone.
    """
    smallest = r.min(axis=-1, keepdims=True)
    u = np.where(smallest > 0, smallest / np.where(r > 0, r, 1.0), r == 0)
    return u / np.linalg.norm(u, axis=-1, keepdims=True)


def unit_sum(weights: Array) -> Array:
    """The weights with sum_i |lambda_i| = 1, the scale of equal weights; zero stays zero."""
    weights = weights / max(float(np.abs(weights).max(initial=0.0)), 1e-300)
    return weights / max(float(np.abs(weights).sum()), 1e-300)
