from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

from ._conditioned import Active, Conditioned, owners


class COSMOS(Conditioned):
    """The preference as an input (`Ruchte and Grabocka, 2021 <https://arxiv.org/abs/2103.13392>`_).

    It is appended to what one layer is given, over all of the batch and of space, and that layer has C more input
    features or channels. Their weights are drawn as those of a new layer, from torch's global generator; the others
    are the user's. The objective of the paper is the solver of the same name.

    In the exported network the preference is a part of the layer's bias. Only where a convolution pads with zeros, or
    is transposed, can it not be, as its effect differs near the border: there the layer keeps the channels, and a
    buffer, ``preference``, that is appended to its input.

    Args:
        model: the network; it stays as it is.
        n_objectives: C.
        layer: name of the linear or convolution layer that is given the preference; the first in the order of
            ``model.modules()`` if it is None.

    Example:
        >>> model = COSMOS(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)), n_objectives=2)
        >>> model(torch.ones(5, 3), preference=[0.3, 0.7]).shape
        torch.Size([5, 1])
    """

    def __init__(self, model: nn.Module, n_objectives: int = 2, *, layer: str | None = None) -> None:
        super().__init__(model, n_objectives)
        self.layer = _find(self.module, layer)
        wide = self.module.get_submodule(self.layer)
        _widen(wide, n_objectives)
        self._handle = wide.register_forward_pre_hook(_Append(self.active), with_kwargs=True)

    def settle(self) -> None:
        layer: Any = self.module.get_submodule(self.layer)
        self._handle.remove()
        weight, bias, a = layer.weight, layer.bias, self.active.like(layer.weight)
        if not _ends_at_the_border(layer):
            layer.register_buffer("preference", a)
            layer.register_forward_pre_hook(_append_own, with_kwargs=True)
            return
        with torch.no_grad():
            inputs = weight.shape[1] - len(a)
            effect = weight[:, inputs:].reshape(len(weight), len(a), -1).sum(dim=2) @ a
            layer.weight = nn.Parameter(weight[:, :inputs].clone(), weight.requires_grad)
            if bias is None:
                layer.bias = nn.Parameter(effect, weight.requires_grad)
            else:
                bias += effect
        setattr(layer, _width(layer), inputs)


class _Append:
    """A hook before a layer's forward: appends the active preference to its input."""

    def __init__(self, active: Active) -> None:
        self.active = active

    def __call__(self, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        return _append(self.active.get(), layer, args, kwargs)


def _append_own(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
    return _append(layer.get_buffer("preference"), layer, args, kwargs)


def _append(a: Tensor, layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
    x, *rest = args or (kwargs["input"],)
    space = layer.weight.dim() - 2  # features or channels come before these dimensions
    dim = x.dim() - space - 1
    a = a.to(x).view(-1, *[1] * space).expand(*x.shape[:dim], -1, *x.shape[dim + 1 :])
    return (torch.cat([x, a], dim), *rest), {name: value for name, value in kwargs.items() if name != "input"}


def _find(model: nn.Module, name: str | None) -> str:
    """The name of the layer to be given the preference, once it is known to be one that can be."""
    known = [path for path, module in model.named_modules() if _is_plain(module)]
    if name is None and not known:
        raise ValueError("model has no linear or convolution layer that could be given the preference")
    name = known[0] if name is None else name
    if name not in known:
        raise ValueError(f"layer must name a linear or convolution layer of the model, one of {known}, got {name!r}")
    layer: Any = model.get_submodule(name)
    if getattr(layer, "groups", 1) != 1:
        problem = f"has {layer.groups} groups, and the preference would belong to one of them"
    elif not layer.weight.requires_grad:
        problem = "is frozen, and could not learn to use the preference"
    elif len(owners(model)[layer.weight]) > 1:
        problem = f"shares its weight: {' and '.join(owners(model)[layer.weight])} are one parameter"
    else:
        return name
    raise ValueError(f"layer {name!r} {problem}; name another, layer=..., one of {known}")


def _is_plain(module: nn.Module) -> bool:
    """A linear or convolution layer with a weight of its own, that is called: attention uses its one without a call."""
    kind = isinstance(module, nn.Linear | _ConvNd) and not isinstance(module, NonDynamicallyQuantizableLinear)
    return kind and "weight" in module._parameters


def _width(layer: nn.Module) -> str:
    return "in_features" if isinstance(layer, nn.Linear) else "in_channels"


def _widen(layer: Any, count: int) -> None:
    """``count`` more inputs: their weights are those of a new layer, all else stays."""
    dim = 0 if isinstance(layer, _ConvTransposeNd) else 1
    old, bias = layer.weight, None if layer.bias is None else layer.bias.detach().clone()
    shape = list(old.shape)
    shape[dim] += count
    setattr(layer, _width(layer), shape[dim])
    layer.weight = nn.Parameter(old.new_empty(shape))
    layer.reset_parameters()
    with torch.no_grad():
        layer.weight.narrow(dim, 0, old.shape[dim]).copy_(old)
        if bias is not None:
            layer.bias.copy_(bias)


def _ends_at_the_border(layer: Any) -> bool:
    """Whether no output of the layer sees beyond its input, or what it sees there is more of the same."""
    if isinstance(layer, nn.Linear | _ConvTransposeNd):
        return isinstance(layer, nn.Linear)
    return layer.padding_mode != "zeros" or layer.padding == "valid" or not any(layer.padding)
