from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from ._conditioned import Conditioned
from ._preferences import check_count


class PHN(Conditioned):
    """Pareto hypernetwork (`Navon et al., 2021 <https://arxiv.org/abs/2010.04104>`_): a makes the network's parameters.

    A multi-layer perceptron maps the preference to ``hidden`` features, and one linear head for each trainable
    parameter of the user's network maps these to its values: ``hidden`` + 1 times as many parameters as the user's.
    Perceptron and heads are trained, the user's own parameters are not, they only lend their shapes. Frozen parameters
    stay as they are; buffers, such as running statistics, live in ``module`` and are updated as usual.

    A head's bias starts as the user's parameter, and its matrix small: the features move a parameter by about a tenth
    of its root mean square at most, so that at first the output is near that of the user's network at every preference.
    All else is drawn as torch draws linear layers, from its global generator.

    Call this module, not ``module``: that one, by itself, has the user's parameters and knows no preference. A network
    that recomputes its activations in the backward pass would do so with these too, and torch refuses.

    Args:
        model: the network; it stays as it is.
        n_objectives: C.
        hidden: width of the perceptron, and number of features.
        layers: linear layers of the perceptron; a ReLU follows each.

    Example:
        >>> model = PHN(nn.Linear(3, 1), n_objectives=2, hidden=10)
        >>> model(torch.ones(5, 3), preference=[0.3, 0.7]).shape
        torch.Size([5, 1])
    """

    def __init__(self, model: nn.Module, n_objectives: int = 2, *, hidden: int = 100, layers: int = 2) -> None:
        super().__init__(model, n_objectives)
        widths = [n_objectives, *[check_count("hidden", hidden, 1)] * check_count("layers", layers, 1)]
        targets = {name: p for name, p in self.module.named_parameters() if p.requires_grad}
        if not targets:
            raise ValueError("model has no trainable parameter to generate")
        first = next(iter(targets.values()))
        blocks = [[nn.Linear(n, m), nn.ReLU()] for n, m in pairwise(widths)]
        self.features = nn.Sequential(*[module for block in blocks for module in block]).to(first)
        self.heads = nn.ModuleList(_head(p, hidden) for p in targets.values()).to(first)
        self.generated = list(targets)
        self.module.requires_grad_(False)

    def generate(self) -> dict[str, Tensor]:
        """The generated parameters of the network, at the active preference, by name."""
        known = dict(self.module.named_parameters())
        a = self.active.like(next(self.heads.parameters()))
        with torch.autocast(a.device.type, enabled=False):  # parameters are rounded where they are used, not before
            features = self.features(a)
            return {
                name: head(features).view_as(known[name]).to(known[name])
                for name, head in zip(self.generated, self.heads, strict=True)
            }

    def run(self, *args: Any, **kwargs: Any) -> Any:
        return functional_call(self.module, self.generate(), args, kwargs)

    def settle(self) -> None:
        known = dict(self.module.named_parameters())
        with torch.no_grad():
            for name, value in self.generate().items():
                known[name].copy_(value)
                known[name].requires_grad_()


def _head(parameter: Tensor, features: int) -> nn.Linear:
    head = nn.Linear(features, parameter.numel(), device=parameter.device, dtype=parameter.dtype)
    with torch.no_grad():
        size = parameter.square().mean().sqrt()
        head.weight.normal_().mul_(0.1 * size / features**0.5)
        head.bias.copy_(parameter.flatten())
    return head
