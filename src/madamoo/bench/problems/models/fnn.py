"""The network of physics-informed problems: fully connected, ``fnn:depth=5:width=100``, ``fnn:activation=laaf``.

It maps points [n, dim] to one tensor [n, outputs].
"""

from __future__ import annotations

from math import prod

from torch import nn

from madamoo.pinn import FNN


def build(
    inputs: tuple[int, ...],
    outputs: tuple[int, ...],
    *,
    width: int = 100,
    depth: int = 5,
    activation: str = "tanh",
) -> nn.Module:
    return FNN([prod(inputs), *[width] * depth, sum(outputs)], activation)
