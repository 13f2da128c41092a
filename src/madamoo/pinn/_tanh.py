"""tanh of a value with its first and second derivatives, in one step with a backward pass of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ._indices import Index, Laplacian, order


def tanh_jet(parts: Mapping[Index, Tensor], indices: tuple[Index, ...]) -> dict[Index, Tensor]:
    """The parts of tanh(z) from those of z, up to second order.

    Written out because it is where a network of this kind spends its time beside the matrix products: with s = 1 - y^2,
    y_a = s z_a and y_ab = s (z_ab - 2 y z_a z_b). Autograd would keep every intermediate.
    """
    present = tuple(index for index in indices if index in parts)
    result = _present_in_result(indices, present)
    outputs = _TanhJet.apply(present, result, *(parts[index] for index in present))
    return dict(zip(result, outputs, strict=True))


def _pairs(index: Index) -> tuple[tuple[Index, Index], ...]:
    """The pairs of first derivatives whose products make a second one."""
    if isinstance(index, Laplacian):
        return tuple(((i,), (i,)) for i in index)
    return (((index[0],), (index[1],)),)


def _present_in_result(indices: tuple[Index, ...], present: tuple[Index, ...]) -> tuple[Index, ...]:
    def there(index: Index) -> bool:
        return index in present or (order(index) == 2 and any(a in present and b in present for a, b in _pairs(index)))

    return tuple(index for index in indices if there(index))


def _product(index: Index, z: Mapping[Index, Tensor]) -> Tensor | None:
    total = None
    for a, b in _pairs(index):
        if a in z and b in z:
            total = z[a] * z[b] if total is None else torch.addcmul(total, z[a], z[b])
    return total


class _TanhJet(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, present: tuple[Index, ...], result: tuple[Index, ...], *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        z = dict(zip(present, tensors, strict=True))
        y = torch.tanh(z[()])
        slope = torch.addcmul(torch.ones((), dtype=y.dtype, device=y.device), y, y, value=-1)
        outputs = []
        for index in result:
            if not index:
                outputs.append(y)
            elif order(index) == 1:
                outputs.append(slope * z[index])
            else:
                outputs.append(_bracket(index, z, y).mul_(slope))
        ctx.keys, ctx.result = present, result
        ctx.save_for_backward(y, slope, *tensors[1:])
        return tuple(outputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Any, ...]:
        y, slope, *rest = ctx.saved_tensors
        z = dict(zip(ctx.keys[1:], rest, strict=True))
        g = {index: grad for index, grad in zip(ctx.result, gradients, strict=True) if grad is not None}
        # dL/dz_a = s (g_a - 2 y sum_b g_ab z_b), dL/dz_ab = s g_ab, and dL/dz = s dL/dy with
        # dL/dy = g_0 - 2 (y sum g_a z_a + sum_ab g_ab (y (z_ab - 2 y z_a z_b) + s z_a z_b))
        grads: dict[Index, Tensor] = {}
        inner: Tensor | None = None  # sum of g_a z_a + g_ab z_ab, to be multiplied by y
        curved: Tensor | None = None  # sum of g_ab z_a z_b
        mixed: dict[Index, Tensor] = {}  # sum over b of g_ab z_b
        for index, grad in g.items():
            if not index:
                continue
            if index in z:
                inner = grad * z[index] if inner is None else torch.addcmul(inner, grad, z[index])
                grads[index] = grad * slope
            if order(index) == 2:
                for a, b in _pairs(index):
                    if a not in z or b not in z:
                        continue
                    left = grad * z[b]
                    curved = left * z[a] if curved is None else torch.addcmul(curved, left, z[a])
                    if a == b:
                        mixed[a] = torch.add(mixed[a], left, alpha=2) if a in mixed else left.mul_(2)
                    else:
                        mixed[a] = mixed[a] + left if a in mixed else left
                        mixed[b] = torch.addcmul(mixed[b], grad, z[a]) if b in mixed else grad * z[a]
        twice = slope * y if mixed else None
        for a, part in mixed.items():
            part = part * twice  # type: ignore[operator]
            grads[a] = torch.sub(grads[a], part, alpha=2) if a in grads else part.mul_(-2)
        total = g.get(())
        if inner is not None:
            inner = inner * y
        if curved is not None:  # -2 y^2 curved + s curved = (3 s - 2) curved
            bend = 3 * slope - 2
            inner = curved * bend if inner is None else inner.addcmul_(curved, bend)
        if inner is not None:
            total = inner.mul_(-2) if total is None else torch.sub(total, inner, alpha=2)
        grads[()] = total * slope if total is not None else torch.zeros_like(y)
        return (
            None,
            None,
            *(_to_shape(grads[index], y if not index else z[index]) if index in grads else None for index in ctx.keys),
        )


def _bracket(index: Index, z: Mapping[Index, Tensor], y: Tensor) -> Tensor:
    """z_ab - 2 y z_a z_b, as a new tensor of the full shape."""
    product = _product(index, z)
    if product is None:
        return z[index].expand_as(y).clone()
    if index in z:
        return torch.addcmul(z[index], y, product, value=-2)
    return (y * product).mul_(-2)


def _to_shape(gradient: Tensor, like: Tensor) -> Tensor:
    """Summed over the points where all of them shared one part."""
    return gradient if gradient.shape == like.shape else gradient.sum_to_size(like.shape)
