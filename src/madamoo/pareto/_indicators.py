"""How good a front is: points [N, K] in, a number out. Tensors, arrays and nested lists are all welcome."""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ._preferences import as_doubles, check_preferences, normalise

Array = NDArray[np.float64]


def non_dominated(points: Any, maximise: bool | Sequence[bool] = False) -> Tensor:
    """A mask [N] of the points that no other point dominates: is at least as good in all objectives, better in one.

    Of equal points, either all or none are kept.

    Args:
        points: [N, K].
        maximise: whether more is better, in all objectives or in each.
    """
    costs = _costs(points, maximise)
    mask = np.empty(len(costs), dtype=bool)
    for k, point in enumerate(costs):
        mask[k] = not ((costs <= point).all(axis=1) & (costs < point).any(axis=1)).any()
    return torch.from_numpy(mask)


def hypervolume(points: Any, *, reference: Sequence[float] | Tensor, maximise: bool | Sequence[bool] = False) -> float:
    """The volume of what the points dominate, up to the reference point.

    A point that is not better than the reference in every objective adds nothing.

    Args:
        points: [N, K].
        reference: [K], in the points' own unit and sign: above them where less is better, below where more is.
        maximise: whether more is better, in all objectives or in each.

    Example:
        >>> hypervolume([[1.0, 3.0], [2.0, 1.0]], reference=[4.0, 4.0])
        7.0
        >>> hypervolume([[0.75, 0.5]], reference=[0.0, 0.0], maximise=True)
        0.375
    """
    costs = _costs(points, maximise)
    bound = _costs(_row("reference", reference, costs.shape[1]), maximise)[0]
    costs = costs[(costs < bound).all(axis=1)]
    if not len(costs):
        return 0.0
    return float(need("moocore").hypervolume(costs, ref=bound))


def igd_plus(points: Any, front: Any, maximise: bool | Sequence[bool] = False) -> float:
    """IGD+ (`Ishibuchi et al., 2015 <https://doi.org/10.1007/978-3-319-15892-1_8>`_): how far the front is from us.

    The mean, over the points z of the true front, of the least distance to one of ours, of which only what is worse
    than z counts: min over y of the length of max(y - z, 0). 0 where the whole front is reached.

    Args:
        points: [N, K], ours.
        front: [M, K], the true front or a dense sample of it.
        maximise: whether more is better, in all objectives or in each.
    """
    ours, true = _costs(points, maximise), _costs(front, maximise, name="front")
    for name, array in (("points", ours), ("front", true)):
        if not len(array):
            raise ValueError(f"{name} must not be empty")
    if ours.shape[1] != true.shape[1]:
        raise ValueError(f"front must have {ours.shape[1]} objectives, as the points have, got {true.shape[1]}")
    return float(need("moocore").igd_plus(ours, ref=true))


def uniformity(points: Any, preferences: Any) -> float:
    """How well the losses follow their rays: 1 where each point has a_1 l_1 = ... = a_C l_C, less elsewhere.

    1 - the mean over the rays of mu, the non-uniformity of `Mahapatra and Rajan, 2020
    <https://proceedings.mlr.press/v119/mahapatra20a.html>`_: mu = KL(u | uniform) = sum_i u_i log(C u_i), where
    u_i = a_i l_i / sum_j a_j l_j. It lies between 0 and log C, as in their paper: it is not scaled to 1.

    An objective of weight 0 is left out of its ray, C being the number of the others there; a ray with a single
    positive weight asks for nothing and is left out of the mean.

    Args:
        points: [N, C], losses: not negative, less is better.
        preferences: [N, C], the rays they belong to.
    """
    losses, a = _paired(points, preferences)
    if (losses < 0).any():
        raise ValueError(f"points must be losses, which are not negative, got {losses.min()}")
    several = (a > 0).sum(axis=1) > 1
    if not several.any():
        raise ValueError("preferences must have a ray with more than one positive weight")
    scores = []
    for l_r, a_r in zip(losses[several], a[several], strict=True):
        weighted = (a_r * l_r)[a_r > 0]
        if weighted.max() == 0:  # no loss at all: they are equal
            scores.append(0.0)
            continue
        u = weighted / weighted.max()
        u = u / u.sum()
        scores.append(math.log(len(u)) + float(np.sum(u * np.log(np.where(u > 0, u, 1.0)))))
    return 1.0 - float(np.mean(scores))


def monotonicity(points: Any, preferences: Any, maximise: bool | Sequence[bool] = False) -> Tensor:
    """Whether more weight brings a better result: for each objective, the share of the pairs of rays where it does.

    Of two rays that give the objective different weights, the one with more must do at least as well: equal results
    count as kept, pairs of equal weight do not count at all. 1 is a front that obeys, 0.5 is chance.

    Args:
        points: [N, C], objective i being the one that weight i is for.
        preferences: [N, C].
        maximise: whether more is better, in all objectives or in each.

    Returns:
        [C]; NaN for an objective to which all rays give the same weight.
    """
    losses, a = _paired(points, preferences)
    costs = _costs(losses, maximise)
    more = a[:, None] > a[None, :] + 1e-6  # [r, s, i]: r gives more weight to i than s does, beyond rounding
    kept = costs[:, None] <= costs[None, :]
    with np.errstate(invalid="ignore"):
        return torch.from_numpy((more & kept).sum(axis=(0, 1)) / more.sum(axis=(0, 1)))


def spacing(points: Any) -> float:
    """Schott's spacing (1995): the standard deviation of the distances to the nearest neighbour; 0 is even.

    S^2 = sum_k (d_k - mean d)^2 / (N - 1), d_k the least sum of absolute differences to another point. It is in the
    objectives' own unit and says nothing of how good the points are; give it non-dominated ones.

    Args:
        points: [N, K], N at least 2.
    """
    array = _array("points", points)
    if len(array) < 2:
        raise ValueError(f"points must be at least 2, got {len(array)}")
    distances = np.abs(array[:, None] - array[None, :]).sum(axis=2)
    np.fill_diagonal(distances, np.inf)
    return float(distances.min(axis=1).std(ddof=1))


def need(module: str) -> Any:
    """A module that comes with the extra."""
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise ImportError(f"this needs {package}, which is not installed: pip install 'madamoo[pareto]'") from error


def directions(maximise: bool | Sequence[bool], count: int) -> tuple[bool, ...]:
    """One answer for each of ``count`` objectives."""
    flags = (maximise,) * count if isinstance(maximise, bool | np.bool_) else tuple(maximise)
    if len(flags) != count:
        raise ValueError(f"maximise must be one bool or {count}, one for each objective, got {maximise!r}")
    return tuple(bool(flag) for flag in flags)


def _costs(points: Any, maximise: bool | Sequence[bool], name: str = "points") -> Array:
    """The points with less always better."""
    array = _array(name, points)
    return np.where(directions(maximise, array.shape[1]), -array, array)


def _array(name: str, points: Any) -> Array:
    array = as_doubles(points).numpy()
    if array.ndim != 2 or array.shape[1] == 0:
        raise ValueError(f"{name} must have the shape [points, objectives], got {list(array.shape)}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, got {array[~np.isfinite(array).all(axis=1)].tolist()}")
    return array


def _row(name: str, vector: Sequence[float] | Tensor, count: int) -> Array:
    array = as_doubles(vector).numpy()
    if array.shape != (count,) or not np.isfinite(array).all():
        raise ValueError(f"{name} must be {count} finite numbers, one for each objective, got {array.tolist()}")
    return array[None]


def _paired(points: Any, preferences: Any) -> tuple[Array, Array]:
    array, a = _array("points", points), normalise(check_preferences("preferences", preferences)).numpy()
    if array.shape != a.shape:
        raise ValueError(f"preferences must have the points' shape, {list(array.shape)}, got {list(a.shape)}")
    return array, a
