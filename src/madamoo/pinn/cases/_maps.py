"""What a case looks like: its solution, error and residual on the grids of its view, as numbers to be drawn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from .._problem import Problem
from .._reference import Reference
from ._case import Case

KINDS = ("solution", "error", "residual")


@dataclass(frozen=True)
class Map:
    """Values [len(x), len(y)] over two variables; NaN outside the domain and where the reference is unknown.

    ``what`` is an output or, of residuals, an equation; ``at`` says where the other variables are held: "t = 0.5".
    """

    kind: str
    what: str
    at: str
    axes: tuple[str, str]
    x: Tensor
    y: Tensor
    values: Tensor


def maps(case: Case, network: nn.Module, problem: Problem, reference: Reference, count: int = 51) -> list[Map]:
    """Maps of each slice of the case's view: the outputs, |output - reference|, and each equation's residual."""
    found = []
    for fixed in case.view.fixed:
        points, inside = case.grid(count, fixed)
        at = ", ".join(f"{name} = {value:g}" for name, value in fixed.items())
        x, y = (points[:, case.variables.index(axis)].unique() for axis in case.view.axes)

        def add(
            kind: str, what: str, values: Tensor, at: str = at, x: Tensor = x, y: Tensor = y, inside: Tensor = inside
        ) -> None:
            shown = torch.where(inside, values.detach().double().cpu().reshape(-1), torch.nan)
            found.append(Map(kind, what, at, case.view.axes, x, y, shown.reshape(len(x), len(y)).float()))

        with torch.no_grad():
            outputs = network(points.to(problem.device, problem.dtype)).double().cpu()
        wanted = _expected(case, reference, points, fixed)
        for name in case.view.outputs:
            k = case.outputs.index(name)
            add("solution", name, outputs[:, k])
            if k < wanted.shape[1]:
                add("error", name, (outputs[:, k] - wanted[:, k]).abs())
        for name, residual in problem.residuals(network, points).items():
            add("residual", name, residual)
    return found


def _expected(case: Case, reference: Reference, points: Tensor, fixed: Mapping[str, float]) -> Tensor:
    """The reference at the points of one slice: exact, or interpolated among its own points of the nearest slice."""
    if case.exact is not None:
        return case.exact(points).reshape(len(points), -1)
    from scipy.interpolate import griddata

    names, chosen = case.variables, torch.ones(len(reference.points), dtype=torch.bool)
    for name, value in fixed.items():
        distance = (reference.points[:, names.index(name)] - value).abs()
        chosen &= distance <= distance[chosen].min() + 1e-9
    axes = [names.index(axis) for axis in case.view.axes]
    known, values = reference.points[chosen][:, axes].numpy(), reference.values[chosen].numpy()
    if min(len(np.unique(known[:, i])) for i in (0, 1)) < 2:  # on a line, or one point
        return points.new_empty(len(points), 0)
    found = griddata(known, values, points[:, axes].numpy(), method="linear", rescale=True)
    return torch.from_numpy(np.asarray(found, dtype=np.float64)).reshape(len(points), -1)
