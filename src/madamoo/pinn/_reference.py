"""Solutions to compare with: points, values, and the relative error of a network against them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True)
class Reference:
    """A solution at some points: ``points`` [n, dim], ``values`` [n, outputs]; float64.

    Columns of ``values`` are the first outputs of the network, so a reference may leave the last ones out.

    Example:
        >>> points = torch.linspace(0, 1, 5, dtype=torch.float64).unsqueeze(1)
        >>> Reference(points, points**2).values.shape
        torch.Size([5, 1])
    """

    points: Tensor
    values: Tensor

    def __post_init__(self) -> None:
        if self.points.dim() != 2 or self.values.dim() != 2 or len(self.points) != len(self.values):
            raise ValueError(
                "points and values must have a row per point, "
                f"got {tuple(self.points.shape)} and {tuple(self.values.shape)}"
            )

    @staticmethod
    def exact(function: Callable[[Tensor], Tensor], points: Tensor) -> Reference:
        """A known solution: ``function`` goes from points [n, dim] to values [n, outputs]."""
        points = points.double()
        return Reference(points, function(points).reshape(len(points), -1))

    @torch.no_grad()
    def error(self, network: Callable[[Tensor], Tensor], batch: int = 65536) -> float:
        """The relative L2 error over all points and outputs: |u - reference| / |reference|."""
        return float((self.predict(network, batch) - self.values).norm() / self.values.norm())

    @torch.no_grad()
    def predict(self, network: Callable[[Tensor], Tensor], batch: int = 65536) -> Tensor:
        """The network's values at the points, in the columns that the reference has; float64 on the CPU."""
        like = next(iter(network.parameters()), None) if isinstance(network, torch.nn.Module) else None
        points = self.points if like is None else self.points.to(like)
        columns = self.values.shape[1]
        return torch.cat([network(part)[:, :columns].double().cpu() for part in points.split(batch)])


def read_comsol(path: Path, dim: int, outputs: int = 1) -> Reference:
    """A text file as COMSOL exports it: coordinates of space, then values; with times, one column per ``@ t=``.

    ``dim`` counts time. Rows with a missing value (NaN) are left out.
    """
    times: list[float] = []
    with path.open(encoding="utf-8") as file:
        for line in file:
            if not line.startswith("%"):
                break
            if "@ t=" in line:
                times = [float(part.split()[0]) for part in line.split("@ t=")[1:]][::outputs]
    data: NDArray[np.float64] = np.atleast_2d(np.loadtxt(path, comments="%"))
    space = dim - 1 if times else dim
    wanted = space + outputs * max(len(times), 1)
    if data.shape[1] != wanted:
        raise ValueError(f"{path} must have {wanted} columns ({space} coordinates and the values), got {data.shape[1]}")
    if times:
        x = np.repeat(data[:, None, :space], len(times), 1)
        t = np.broadcast_to(np.asarray(times)[None, :, None], (len(data), len(times), 1))
        points = np.concatenate([x, t], 2).reshape(-1, dim)
        values = data[:, space:].reshape(-1, outputs)
    else:
        points, values = data[:, :dim], data[:, dim:]
    whole = ~np.isnan(values).any(1)
    return Reference(torch.from_numpy(points[whole].copy()), torch.from_numpy(values[whole].copy()))
