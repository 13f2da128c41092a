"""Networks for solutions of equations: fully connected, with features of the input and a transform of the output."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import nn

OutputTransform = Callable[[Any, Any], Any]
"""From the points ``[n, dim]`` and the network's outputs to the outputs that count, for hard constraints."""
ACTIVATIONS = ("tanh", "sin", "silu", "sigmoid", "laaf", "gaaf")
_SLOPE = 10.0


class Sin(nn.Module):
    def forward(self, z: Any) -> Any:
        return torch.sin(z)


class AdaptiveTanh(nn.Module):
    """tanh(10 a z) with a slope ``a`` that is learned, one per neuron (LAAF) or one per layer (GAAF).

    `Jagtap, Kawaguchi, Karniadakis: Adaptive activation functions accelerate convergence in deep and
    physics-informed neural networks (2020) <https://doi.org/10.1016/j.jcp.2019.109136>`_. Slopes are set by the network
    that owns the layer.

    Example:
        >>> AdaptiveTanh(1)(torch.tensor([0.0, 1.0]))  # tanh at first
        tensor([0.0000, 0.7616], grad_fn=<TanhBackward0>)
    """

    def __init__(self, slopes: int) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.full((slopes,), 1 / _SLOPE))

    def forward(self, z: Any) -> Any:
        return torch.tanh(z * (_SLOPE * self.a))


class PeriodicFeatures(nn.Module):
    """Replaces variables by sines and cosines of their period, so that the network is periodic in them.

    Example: ``PeriodicFeatures(2, {0: 2.0}, harmonics=2)`` turns (x, t) into cos and sin of pi x and 2 pi x, and t.

    Example:
        >>> features = PeriodicFeatures(2, {0: 2.0})
        >>> torch.allclose(features(torch.tensor([[0.5, 1.0]])), features(torch.tensor([[2.5, 1.0]])), atol=1e-6)
        True
    """

    def __init__(self, dim: int, periods: Mapping[int, float], harmonics: int = 1) -> None:
        super().__init__()
        bad = [i for i in periods if not 0 <= i < dim]
        if bad:
            raise ValueError(f"periods must be of variables 0 to {dim - 1}, got {bad[0]}")
        if harmonics < 1:
            raise ValueError(f"harmonics must be at least 1, got {harmonics}")
        self.kept = [i for i in range(dim) if i not in periods]
        frequencies = torch.zeros(len(periods) * harmonics, dim, dtype=torch.float64)  # exact periods in any dtype
        for row, (i, k) in enumerate((i, k) for i in periods for k in range(1, harmonics + 1)):
            frequencies[row, i] = 2 * math.pi * k / periods[i]
        self.register_buffer("frequencies", frequencies)
        self.out_features = 2 * len(frequencies) + len(self.kept)

    def forward(self, x: Any) -> Any:
        angles = nn.functional.linear(x, self.frequencies.to(x.dtype))  # type: ignore[arg-type]
        return torch.cat([torch.cos(angles), torch.sin(angles), *(x[:, i : i + 1] for i in self.kept)], dim=1)


class FourierFeatures(nn.Module):
    """cos and sin of ``count`` random combinations of the variables, fixed, with deviation ``sigma``.

    `Tancik et al.: Fourier features let networks learn high frequency functions in low dimensional domains (2020)
    <https://arxiv.org/abs/2006.10739>`_.

    Example:
        >>> FourierFeatures(2, count=8)(torch.zeros(5, 2)).shape
        torch.Size([5, 16])
    """

    def __init__(self, dim: int, count: int = 64, sigma: float = 1.0, generator: torch.Generator | None = None) -> None:
        super().__init__()
        place = None if generator is None else generator.device  # drawn there, whatever the default device is
        drawn = torch.randn(count, dim, generator=generator, device=place).to(torch.get_default_device())
        self.register_buffer("frequencies", 2 * math.pi * sigma * drawn)
        self.out_features = 2 * count

    def forward(self, x: Any) -> Any:
        angles = nn.functional.linear(x, self.frequencies.to(x.dtype))  # type: ignore[arg-type]
        return torch.cat([torch.cos(angles), torch.sin(angles)], dim=1)


class FNN(nn.Module):
    """A fully connected network with Glorot-normal weights and zero biases, DeepXDE's and PINNacle's default.

    Args:
        layers: Sizes, from the number of variables to the number of outputs: ``[2, 100, 100, 1]``.
        activation: tanh, sin, silu, sigmoid, or tanh with learned slopes per neuron ("laaf") or per layer ("gaaf").
        features: Applied to the points first; has ``out_features``.
        output_transform: Applied to (points, outputs) last, for conditions that hold exactly:
            ``lambda x, u: x[:, :1] * (1 - x[:, :1]) * u`` is zero at 0 and 1.

    Example:
        >>> FNN([2, 20, 20, 1])(torch.zeros(5, 2)).shape
        torch.Size([5, 1])
    """

    def __init__(
        self,
        layers: Sequence[int],
        activation: str = "tanh",
        *,
        features: nn.Module | None = None,
        output_transform: OutputTransform | None = None,
        generator: torch.Generator | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if len(layers) < 2 or any(size < 1 for size in layers):
            raise ValueError(f"layers must be at least two positive sizes, got {list(layers)}")
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation must be one of {', '.join(ACTIVATIONS)}, got {activation!r}")
        sizes = list(layers)
        self.inputs, self.features = sizes[0], features
        if features is not None:
            sizes[0] = int(features.out_features)  # type: ignore[arg-type]
        self.output_transform = output_transform
        modules: list[nn.Module] = []
        for i, (width_in, width_out) in enumerate(pairwise(sizes)):
            linear = nn.Linear(width_in, width_out)
            nn.init.xavier_normal_(linear.weight, generator=generator)
            nn.init.zeros_(linear.bias)
            modules.append(linear)
            if i < len(sizes) - 2:
                modules.append(_activation(activation, width_out))
        self.layers = nn.Sequential(*modules)
        if activation in ("laaf", "gaaf"):
            self._draw_slopes(generator)
        if dtype is not None:
            self.to(dtype)

    def _draw_slopes(self, generator: torch.Generator | None) -> None:
        """All slopes as one matrix [layers, slopes], Xavier-uniform with gain 1.4."""
        adaptive = [m for m in self.layers if isinstance(m, AdaptiveTanh)]
        widest = max(len(m.a) for m in adaptive)
        drawn = torch.empty(len(adaptive), widest)
        nn.init.xavier_uniform_(drawn, gain=1.4, generator=generator)
        with torch.no_grad():
            for module, row in zip(adaptive, drawn, strict=True):
                module.a.copy_(row[: len(module.a)])

    def forward(self, x: Any) -> Any:
        u = self.layers(x if self.features is None else self.features(x))
        return u if self.output_transform is None else self.output_transform(x, u)


def _activation(name: str, width: int) -> nn.Module:
    if name in ("laaf", "gaaf"):
        return AdaptiveTanh(width if name == "laaf" else 1)
    return {"tanh": nn.Tanh, "sin": Sin, "silu": nn.SiLU, "sigmoid": nn.Sigmoid}[name]()
