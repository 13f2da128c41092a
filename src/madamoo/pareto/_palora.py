from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from ._conditioned import Active, Slot
from ._parametrized import EMBEDDINGS, Mixture, Parametrized
from ._preferences import check_count


class Adapters(Mixture):
    """W + (1/r) sum_i a_i B_i A_i, W seen as a matrix of its first dimension by all others."""

    def __init__(self, active: Active, weight: Tensor, rank: int) -> None:
        super().__init__(active)
        rows, columns = weight.flatten(1).shape
        self.rank = min(rank, rows, columns)
        self.A = nn.Parameter(weight.new_empty(active.count, self.rank, columns))
        self.B = nn.Parameter(weight.new_zeros(active.count, rows, self.rank))
        for A in self.A:
            nn.init.kaiming_uniform_(A, a=math.sqrt(5))  # as torch's linear layers

    def forward(self, weight: Tensor) -> Tensor:
        a = self.active.like(weight)
        with torch.autocast(weight.device.type, enabled=False):  # the weight is rounded where it is used, not before
            left, right = (a[:, None, None] * self.B).transpose(0, 1).flatten(1), self.A.flatten(0, 1)
            return torch.addmm(weight.flatten(1), left, right, alpha=1 / self.rank).view_as(weight)


class PaLoRA(Parametrized):
    """Pareto low-rank adapters (`Dimitriadis et al., 2025 <https://arxiv.org/abs/2407.08056>`_).

    Every weight of linear, convolution and embedding layers, heads too, is W + (1/r) sum_i a_i B_i A_i: the user's, and
    C adapters of low rank. A is drawn as the weight of a linear layer, from torch's global generator, and B is zero, so
    that at first the output is that of the user's network, whatever the preference. All other parameters (biases,
    normalisation, recurrent and attention weights) are shared, and trained as they are. Frozen weights stay frozen and
    get no adapters.

    A convolution's weight is seen as a matrix [out, in * kernel] ([in, out * kernel] if it is transposed; channels of
    one group). r is ``rank``, or the smaller side of the matrix where that is less.

    Args:
        model: the network; it stays as it is.
        n_objectives: C.
        rank: r.
        shared: names of submodules or parameters, or patterns for them (``"heads.*"``), that get no adapters: these,
            and all below them, are left as they are.
        train_base: whether the weights under the adapters are trained too. Without, biases, normalisation and what is
            ``shared`` still are: freeze them in the model for training of the adapters alone.

    Example:
        >>> model = PaLoRA(nn.Linear(3, 1), n_objectives=2, rank=1)
        >>> model(torch.ones(5, 3), preference=[0.3, 0.7]).shape
        torch.Size([5, 1])
        >>> [group["lr"] for group in model.parameter_groups(lr=0.25)]
        [0.25, 0.5]
    """

    def __init__(
        self,
        model: nn.Module,
        n_objectives: int = 2,
        rank: int = 4,
        *,
        shared: str | Sequence[str] = (),
        train_base: bool = True,
    ) -> None:
        super().__init__(model, n_objectives)
        check_count("rank", rank, 1)
        for slot in self.choose(shared):
            adapters = Adapters(self.active, slot.parameter, rank)
            self.insert(slot, adapters).get_parameter("original").requires_grad_(train_base)

    def takes(self, slot: Slot) -> bool:
        if isinstance(slot.layer, EMBEDDINGS) and slot.layer.sparse:
            place = slot.path or slot.name
            raise self.refusal(f"{place} has sparse gradients, build it with sparse=False", place)
        return isinstance(slot.layer, (nn.Linear, _ConvNd, *EMBEDDINGS)) and slot.name == "weight"

    def parameter_groups(self, lr: float) -> list[dict[str, Any]]:
        """Two groups for an optimizer: what is trained of the network with rate ``lr``, the adapters with C ``lr``."""
        adapters = [p for module in self.modules() if isinstance(module, Adapters) for p in module.parameters()]
        known = set(adapters)
        base = [p for p in self.parameters() if p.requires_grad and p not in known]
        return [{"params": base, "lr": lr}, {"params": adapters, "lr": lr * self.n_objectives}]
