"""What ``backward`` is given, read and checked: losses, the preference of the step, the features under the heads."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from ..checks import check_vector
from ..gradients import Cut, FeaturesT, Losses, LossesT, cut_at, read_losses
from ..solvers import Solver
from ._options import Options
from ._step import Step

MANY = 16
"""More losses than this in a tensor without names may be those of single samples."""


def read_objectives(
    losses: LossesT,
    names: tuple[str, ...] | None,
    count: int | None,
    extra: Tensor | None,
    scaler: torch.amp.GradScaler | None,
    once: Callable[[str], bool],
) -> Losses:
    """The losses; ``once`` says whether the user has not been warned yet."""
    batch = read_losses(losses, names, count, extra=extra)
    factor = batch.scaled_by() if scaler is None else None
    if factor is not None:
        raise ValueError(
            f"the losses look scaled by a GradScaler, by {factor:g}: pass them as they are, and "
            "opt.backward(losses, scaler=scaler)"
        )
    if count is None and isinstance(losses, Tensor):
        if len(batch.roots) > MANY and once("many"):
            warnings.warn(
                f"losses has shape {tuple(losses.shape)}: are these {len(batch.roots)} objectives? If they are the "
                "losses of single samples, give their mean",
                stacklevel=5,
            )
        if losses.dim() == 0 and once("one"):
            warnings.warn(
                "losses is one number, so there is nothing to weigh: if it is a sum of objectives, give them one "
                "by one, opt.backward([loss_1, loss_2, ...]); if there is one objective, opt.backward([loss])",
                stacklevel=5,
            )
    return batch


def read_preference(
    preference: Sequence[float] | Mapping[str, float] | Tensor | None,
    solver: Solver,
    batch: Losses,
    before: Step | None,
) -> Tensor | None:
    """The preference vector of the step; that of the micro-batches before, where none is given."""
    if preference is None:
        return None if before is None else before.preference
    if not solver.uses_preference:
        raise ValueError(f"{type(solver).__name__} takes no preference; use solvers.Preference, for one")
    if isinstance(preference, Mapping):
        if batch.names is None or set(preference) != set(batch.names):
            raise ValueError(f"preference must name the objectives {batch.names}, got {sorted(preference)}")
        preference = [preference[name] for name in batch.names]
    vector = check_vector("preference", preference, len(batch.roots))
    if before is not None and (before.preference is None or not torch.equal(vector, before.preference)):
        raise ValueError("preference must be the same in every micro-batch of a step")
    return vector


def read_features(
    features: FeaturesT | None, options: Options, batch: Losses, before: Step | None, params: list[Tensor]
) -> Cut | None:
    """Where trunk and heads meet, with ``gram="features"``."""
    if options.gram != "features":
        if features is not None:
            raise ValueError("features are for an optimizer built with gram='features'")
        return None
    if features is None or before is not None:
        found = "none" if features is None else "a second backward() before step()"
        raise ValueError(f"gram='features' takes one backward(losses, features=...) per step, got {found}")
    return cut_at(features, batch, params)
