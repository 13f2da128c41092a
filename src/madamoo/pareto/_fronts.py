"""A measured front: the rays, the point that each gave, and which way is better."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ._indicators import directions, hypervolume, non_dominated
from ._preferences import as_doubles, check_preferences


@dataclass(frozen=True, eq=False, init=False)
class Front:
    """N rays and their results.

    Args:
        preferences: [N, C], not negative.
        points: [N, K], the results, finite. K need not be C: there may be several metrics for an objective.
        maximise: whether more is better, in all metrics or in each.
        names: of the K metrics; ``f1``, ``f2``, ... if none are given.

    Example:
        >>> front = Front([[1, 0], [0.5, 0.5], [0, 1]], [[0.9, 0.1], [0.5, 0.0], [0.2, 0.8]], maximise=True)
        >>> front.non_dominated().points.tolist()
        [[0.9, 0.1], [0.2, 0.8]]
        >>> round(front.hypervolume([0, 0]), 3)
        0.23
    """

    preferences: Tensor
    points: Tensor
    maximise: tuple[bool, ...]
    names: tuple[str, ...]

    def __init__(
        self,
        preferences: Any,
        points: Any,
        maximise: bool | Sequence[bool] = False,
        names: Sequence[str] = (),
    ) -> None:
        a = check_preferences("preferences", preferences)
        values = as_doubles(points)
        if values.dim() != 2 or values.shape[1] == 0 or len(values) != len(a):
            raise ValueError(
                f"points must have the shape [{len(a)}, metrics], one row per ray, got {list(values.shape)}"
            )
        broken = ~torch.isfinite(values).all(dim=1)
        if bool(broken.any()):
            raise ValueError(f"points must be finite, got {values[broken].tolist()} at the rays {a[broken].tolist()}")
        count = values.shape[1]
        if names and len(names) != count:
            raise ValueError(f"names must be {count}, one for each metric, got {list(names)}")
        for field, value in (
            ("preferences", a),
            ("points", values),
            ("maximise", directions(maximise, count)),
            ("names", tuple(names) or tuple(f"f{k + 1}" for k in range(count))),
        ):
            object.__setattr__(self, field, value)

    def __len__(self) -> int:
        return len(self.points)

    def non_dominated(self) -> Front:
        """The front without the dominated points."""
        mask = non_dominated(self.points, self.maximise)
        return Front(self.preferences[mask], self.points[mask], self.maximise, self.names)

    def hypervolume(self, reference: Sequence[float] | Tensor) -> float:
        """See :func:`hypervolume`."""
        return hypervolume(self.points, reference=reference, maximise=self.maximise)

    def best(self, score: Callable[[Tensor], float | Tensor]) -> int:
        """The place of the point with the highest score; the first of equals."""
        return max(range(len(self)), key=lambda k: float(score(self.points[k])))

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, for JSON."""
        return {
            "preferences": self.preferences.tolist(),
            "points": self.points.tolist(),
            "maximise": list(self.maximise),
            "names": list(self.names),
        }

    @classmethod
    def from_dict(cls, state: dict[str, Any]) -> Front:
        return cls(state["preferences"], state["points"], state["maximise"], state["names"])


def evaluate(
    metric: Callable[[Tensor], Sequence[float] | Tensor],
    rays: Tensor,
    *,
    maximise: bool | Sequence[bool] = False,
    names: Sequence[str] = (),
) -> Front:
    """The front of a model: ``metric(preference)`` for each ray.

    Args:
        metric: the K results under a preference [C]: sets the model to it and measures, or trains one for it.
        rays: [N, C].
        maximise: whether more is better, in all metrics or in each.
        names: of the K metrics.

    Example:
        >>> evaluate(lambda a: a**2, torch.tensor([[1.0, 0.0], [0.5, 0.5]])).points.tolist()
        [[1.0, 0.0], [0.25, 0.25]]
    """
    results = [as_doubles(metric(ray)) for ray in rays]
    if not results:
        raise ValueError("rays must not be empty")
    for ray, result in zip(rays, results, strict=True):
        if result.dim() != 1 or result.shape != results[0].shape:
            raise ValueError(
                f"metric must return one number for each of its metrics, always as many; it returned "
                f"{result.tolist()} for {ray.tolist()}, {results[0].tolist()} for {rays[0].tolist()}"
            )
    return Front(rays, torch.stack(results), maximise, names)
