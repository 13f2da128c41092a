"""What SARCOS and the Mulan sets share: one number to predict for each objective, and squared errors."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from .. import Data, Supervised


class Regression(Supervised):
    def shape(self, data: Data) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return tuple(data.train.inputs.shape[1:]), (1,) * len(self.objectives)

    def criteria(self, outputs: Sequence[Tensor], targets: Sequence[Tensor]) -> list[Tensor]:
        return [F.mse_loss(z.squeeze(1), y) for z, y in zip(outputs, targets, strict=True)]

    def average(self, errors: Tensor) -> dict[str, float]:
        """The error of each objective by its name, after their mean, which is the primary metric."""
        values = errors.tolist()
        return {self.primary.name: sum(values) / len(values), **dict(zip(self.objectives, values, strict=True))}


def squared_errors(outputs: Sequence[Tensor], targets: Sequence[Tensor]) -> Tensor:
    """Their sums over a batch, one for each objective."""
    return torch.stack([(z.squeeze(1) - y).square().sum() for z, y in zip(outputs, targets, strict=True)]).double()
