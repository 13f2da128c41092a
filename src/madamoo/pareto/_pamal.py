from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import groupby

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from ._conditioned import Slot
from ._parametrized import EMBEDDINGS, Mixture, Parametrized

# fmt: off
NORMS = (
    nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm,
    nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d,
)
# fmt: on


class Members(Mixture):
    """sum_i a_i W_i."""

    def forward(self, *members: Tensor) -> Tensor:
        a = self.active.like(members[0])
        result = a[0] * members[0]
        for i in range(1, len(members)):
            result = torch.addcmul(result, a[i], members[i])
        return result

    def right_inverse(self, value: Tensor) -> list[Tensor]:
        return [value.clone() for _ in range(self.active.count)]


class PaMaL(Parametrized):
    """Pareto manifold learning (`Dimitriadis et al., 2023 <https://arxiv.org/abs/2210.09759>`_): members mixed by a.

    Every weight and bias of linear, convolution, normalisation and embedding layers is sum_i a_i W_i over C members:
    one network for each objective, and the front between them. The first member is the user's network, the others are
    drawn by each layer's ``reset_parameters()``, from torch's global generator, as a new layer would be. Running
    statistics of normalisation layers are single. Frozen parameters stay frozen, and single.

    Args:
        model: the network; it stays as it is.
        n_objectives: C.
        shared: names of submodules or parameters, or patterns for them (``"heads.*"``), that all members share: these,
            and all below them, are left as they are.

    Example:
        >>> model = PaMaL(nn.Linear(3, 1), n_objectives=2)
        >>> model(torch.ones(5, 3), preference=[0.3, 0.7]).shape
        torch.Size([5, 1])
        >>> model.export([0.3, 0.7])
        Linear(in_features=3, out_features=1, bias=True)
    """

    def __init__(
        self,
        model: nn.Module,
        n_objectives: int = 2,
        *,
        shared: str | Sequence[str] = (),
    ) -> None:
        super().__init__(model, n_objectives)
        for layer, slots in groupby(self.choose(shared), key=lambda slot: slot.layer):
            others = [copy.deepcopy(layer) for _ in range(n_objectives - 1)]
            for other in others:
                other.reset_parameters()
            for slot in slots:
                entry = self.insert(slot, Members(self.active))
                with torch.no_grad():
                    for i, other in enumerate(others, start=1):
                        entry.get_parameter(f"original{i}").copy_(getattr(other, slot.name))

    def takes(self, slot: Slot) -> bool:
        if isinstance(slot.layer, (nn.Linear, _ConvNd, *NORMS, *EMBEDDINGS)) and slot.name in ("weight", "bias"):
            return True
        raise self.refusal(
            f"{slot.path or 'the model'}, of type {type(slot.layer).__name__}, holds the parameter {slot.name!r}, and "
            "only weights and biases of linear, convolution, normalisation and embedding layers can have members",
            slot.path or slot.name,
        )
