"""Taylor mode: values that carry their derivatives through a network in one forward pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ._indices import Index, closure, faa_di_bruno, leibniz, order
from ._tanh import tanh_jet

Parts = Mapping[Index, Tensor]
Derivatives = Callable[[Tensor, int], list[Tensor]]
"""From z and an order k: f(z), f'(z), ..., the k-th derivative."""


class Unsupported(TypeError):
    """An operation through which no derivatives can be carried; the message names it."""


class Jet:
    """A tensor and its derivatives by the coordinates: ``parts[()]`` is the value, ``parts[(0, 0)]`` is u_xx.

    A part that is not there is zero; a part may be of size 1 along the first dimension, when all points have the same.
    torch functions take a jet in place of a tensor where the operation is known here; others raise
    :class:`Unsupported`.
    """

    def __init__(self, parts: Parts, indices: tuple[Index, ...]) -> None:
        self.parts, self.indices = dict(parts), indices

    @staticmethod
    def of_coordinates(x: Tensor, indices: Sequence[Index]) -> Jet:
        """The coordinates themselves, as a jet that carries the derivatives ``indices`` and all they are made of."""
        whole = closure(indices)
        unit = torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
        firsts = {index: unit[index[0] : index[0] + 1] for index in whole if order(index) == 1}
        return Jet({(): x, **firsts}, whole)

    @property
    def value(self) -> Tensor:
        return self.parts[()]

    def full(self, index: Index) -> Tensor:
        """A part as a tensor of the value's shape."""
        part = self.parts.get(index)
        return torch.zeros_like(self.value) if part is None else part.expand_as(self.value)

    def map(self, linear: Callable[[Tensor], Tensor]) -> Jet:
        return Jet({index: linear(part) for index, part in self.parts.items()}, self.indices)

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        rule = _RULES.get(getattr(func, "__name__", ""))
        if rule is None:
            raise Unsupported(f"no rule for the derivatives of {getattr(func, '__name__', func)}")
        return rule(*args, **(kwargs or {}))

    def __getattr__(self, name: str) -> Any:
        if name in _RULES and not name.startswith("_"):
            rule = _RULES[name]
            return lambda *args, **kwargs: rule(self, *args, **kwargs)
        if name in ("shape", "dtype", "device", "ndim", "dim", "size", "is_floating_point"):
            return getattr(self.value, name)
        if hasattr(Tensor, name):
            raise Unsupported(f"no rule for the derivatives of Tensor.{name}")
        raise AttributeError(f"Jet has no {name!r}")

    def __len__(self) -> int:
        return len(self.value)

    def __getitem__(self, key: Any) -> Jet:
        first = key[0] if isinstance(key, tuple) and key else key
        if first == slice(None) if isinstance(first, slice) else first is Ellipsis:
            return self.map(lambda part: part[key])
        return self.map(lambda part: part.expand_as(self.value)[key])

    def __add__(self, other: Any) -> Jet:
        return _add(self, other)

    def __radd__(self, other: Any) -> Jet:
        return _add(self, other)

    def __sub__(self, other: Any) -> Jet:
        return _sub(self, other)

    def __rsub__(self, other: Any) -> Jet:
        return _add(_neg(self), other)

    def __mul__(self, other: Any) -> Jet:
        return _mul(self, other)

    def __rmul__(self, other: Any) -> Jet:
        return _mul(self, other)

    def __truediv__(self, other: Any) -> Jet:
        return _div(self, other)

    def __rtruediv__(self, other: Any) -> Jet:
        return _mul(_apply(_reciprocal, self), other)

    def __neg__(self) -> Jet:
        return _neg(self)

    def __pow__(self, exponent: Any) -> Jet:
        return _pow(self, exponent)

    def __matmul__(self, other: Tensor) -> Jet:
        return _matmul(self, other)


def _apply(function: Derivatives, z: Jet) -> Jet:
    """f(z) for a function of each entry."""
    needed = [index for index in z.indices if index]
    highest = max((max(m for m, _ in faa_di_bruno(index)) for index in needed), default=0)
    f = function(z.value, highest)
    parts: dict[Index, Tensor] = {(): f[0]}
    products: dict[tuple[Index, ...], Tensor] = {}
    for index in needed:
        total = None
        for m, terms in faa_di_bruno(index):
            inner = None
            for count, blocks in terms:
                if any(block not in z.parts for block in blocks):
                    continue
                if blocks not in products:
                    products[blocks] = math.prod((z.parts[b] for b in blocks[1:]), start=z.parts[blocks[0]])
                term = products[blocks] if count == 1 else count * products[blocks]
                inner = term if inner is None else inner + term
            if inner is not None:
                total = f[m] * inner if total is None else torch.addcmul(total, f[m], inner)
        if total is not None:
            parts[index] = total
    return Jet(parts, z.indices)


def _add(a: Any, b: Any, *, alpha: float = 1) -> Jet:
    if alpha != 1:
        b = b * alpha
    if not isinstance(a, Jet):
        a, b = b, a
    if not isinstance(b, Jet):
        return Jet({**a.parts, (): a.value + b}, a.indices)
    parts = dict(a.parts)
    for index, part in b.parts.items():
        parts[index] = parts[index] + part if index in parts else part
    return Jet(parts, a.indices)


def _neg(a: Jet) -> Jet:
    return a.map(torch.neg)


def _sub(a: Any, b: Any, *, alpha: float = 1) -> Jet:
    return _add(a, -b if alpha == 1 else b * -alpha)


def _mul(a: Any, b: Any) -> Jet:
    if not isinstance(a, Jet):
        a, b = b, a
    if not isinstance(b, Jet):
        return a.map(lambda part: part * b)
    parts: dict[Index, Tensor] = {}
    for index in a.indices:
        for count, left, right in leibniz(index):
            if left in a.parts and right in b.parts:
                term = a.parts[left] * b.parts[right]
                term = term if count == 1 else count * term
                parts[index] = parts[index] + term if index in parts else term
    return Jet(parts, a.indices)


def _div(a: Any, b: Any) -> Jet:
    return _mul(a, _apply(_reciprocal, b)) if isinstance(b, Jet) else a.map(lambda part: part / b)


def _pow(a: Any, exponent: Any) -> Jet:
    if not isinstance(a, Jet) or not isinstance(exponent, int | float):
        raise Unsupported("no rule for the derivatives of a power whose exponent is not a number")
    if exponent == 1:
        return a
    if exponent == 2:
        return _mul(a, a)
    return _apply(lambda z, k: _powers(z, exponent, k), a)


def _powers(z: Tensor, exponent: float, k: int) -> list[Tensor]:
    found, factor = [], 1.0
    for m in range(k + 1):
        found.append(factor * z ** (exponent - m) if factor else torch.zeros_like(z))
        factor *= exponent - m
    return found


def _linear(x: Jet, weight: Tensor, bias: Tensor | None = None) -> Jet:
    if not isinstance(x, Jet):
        raise Unsupported("no rule for the derivatives of a layer whose weights depend on the coordinates")
    return Jet({index: F.linear(part, weight, None if index else bias) for index, part in x.parts.items()}, x.indices)


def _matmul(a: Jet, b: Tensor) -> Jet:
    if not isinstance(a, Jet) or isinstance(b, Jet):
        raise Unsupported("no rule for the derivatives of a product with a matrix that depends on the coordinates")
    return a.map(lambda part: part @ b)


def _cat(jets: Sequence[Any], dim: int = 0) -> Jet:
    like = next(jet for jet in jets if isinstance(jet, Jet))
    if dim % like.value.dim() == 0:
        raise Unsupported("no rule for the derivatives of torch.cat along the points")
    parts: dict[Index, Tensor] = {}
    for index in like.indices:
        if not index:
            parts[index] = torch.cat([j.value if isinstance(j, Jet) else j for j in jets], dim)
        elif any(isinstance(j, Jet) and index in j.parts for j in jets):
            parts[index] = torch.cat([j.full(index) if isinstance(j, Jet) else torch.zeros_like(j) for j in jets], dim)
    return Jet(parts, like.indices)


def _sum(a: Jet, dim: int | Sequence[int] | None = None, keepdim: bool = False) -> Jet:
    dims = [dim] if isinstance(dim, int) else dim
    if not dims or any(d % a.value.dim() == 0 for d in dims):
        raise Unsupported("no rule for the derivatives of a sum over the points")
    return a.map(lambda part: part.sum(tuple(dims), keepdim=keepdim))


def _derivatives_of_tanh(z: Tensor, k: int) -> list[Tensor]:
    y = torch.tanh(z)
    if k == 0:
        return [y]
    slope = 1 - y * y
    found = [y, slope]
    # polynomials in y, by d/dz p(y) = p'(y) (1 - y^2): slope * q_m(y)
    q = [1.0]
    for _ in range(2, k + 1):
        # d/dz [slope q] = slope (-2 y q + (1 - y^2) q')
        derivative = [j * c for j, c in enumerate(q)][1:] or [0.0]
        new = [0.0] * (len(q) + 1)
        for j, c in enumerate(q):
            new[j + 1] -= 2 * c
        for j, c in enumerate(derivative):
            new[j] += c
            if j + 2 < len(new):
                new[j + 2] -= c
        q = new
        value = torch.full_like(y, q[-1])
        for c in reversed(q[:-1]):
            value = value * y + c
        found.append(slope * value)
    return found


def _tanh(z: Jet) -> Jet:
    if max(map(order, z.indices)) <= 2:
        return Jet(tanh_jet(z.parts, z.indices), z.indices)
    return _apply(_derivatives_of_tanh, z)


def _derivatives_of_sin(z: Tensor, k: int) -> list[Tensor]:
    s, c = torch.sin(z), torch.cos(z)
    return [(s, c, -s, -c)[m % 4] for m in range(k + 1)]


def _derivatives_of_cos(z: Tensor, k: int) -> list[Tensor]:
    s, c = torch.sin(z), torch.cos(z)
    return [(c, -s, -c, s)[m % 4] for m in range(k + 1)]


def _derivatives_of_sigmoid(z: Tensor, k: int) -> list[Tensor]:
    halves = _derivatives_of_tanh(z / 2, k)
    return [(halves[0] + 1) / 2, *(part * 0.5 ** (m + 1) for m, part in enumerate(halves[1:], start=1))]


def _reciprocal(z: Tensor, k: int) -> list[Tensor]:
    return _powers(z, -1, k)


def _silu(z: Jet, inplace: bool = False) -> Jet:
    return _mul(z, _apply(_derivatives_of_sigmoid, z))


def _elementwise(function: Derivatives) -> Callable[[Jet], Jet]:
    return lambda z: _apply(function, z)


def _reshaping(name: str) -> Callable[..., Jet]:
    """Operations that move entries: the first dimension, of the points, is the same before and after."""

    def rule(a: Jet, *args: Any, **kwargs: Any) -> Jet:
        value = getattr(a.value, name)(*args, **kwargs)
        if not value.shape or value.shape[0] != a.value.shape[0]:
            raise Unsupported(f"no rule for the derivatives of {name} along the points")
        parts = {index: getattr(a.full(index), name)(*args, **kwargs) for index in a.parts if index}
        return Jet({(): value, **parts}, a.indices)

    return rule


_RULES: dict[str, Callable[..., Any]] = {
    "add": _add,
    "sub": _sub,
    "rsub": lambda a, b: _add(_neg(a), b),
    "mul": _mul,
    "multiply": _mul,
    "div": _div,
    "true_divide": _div,
    "neg": _neg,
    "pow": _pow,
    "square": lambda a: _mul(a, a),
    "linear": _linear,
    "matmul": _matmul,
    "mm": _matmul,
    "cat": _cat,
    "concat": _cat,
    "sum": _sum,
    "tanh": _tanh,
    "sin": _elementwise(_derivatives_of_sin),
    "cos": _elementwise(_derivatives_of_cos),
    "exp": _elementwise(lambda z, k: [torch.exp(z)] * (k + 1)),
    "log": _elementwise(lambda z, k: [torch.log(z), *_powers(z, -1, k - 1)] if k else [torch.log(z)]),
    "sqrt": _elementwise(lambda z, k: _powers(z, 0.5, k)),
    "reciprocal": _elementwise(_reciprocal),
    "sigmoid": _elementwise(_derivatives_of_sigmoid),
    "silu": _silu,
    "reshape": _reshaping("reshape"),
    "view": _reshaping("view"),
    "flatten": _reshaping("flatten"),
    "unsqueeze": _reshaping("unsqueeze"),
    "squeeze": _reshaping("squeeze"),
    "unbind": lambda a, dim=0: tuple(a[:, k] for k in range(a.shape[1])) if dim == 1 else _refuse("unbind"),
    # operators of a tensor on the left of a jet
    "__radd__": lambda a, b: _add(a, b),
    "__rsub__": lambda a, b: _sub(b, a),
    "__rmul__": lambda a, b: _mul(a, b),
    "__rpow__": lambda a, b: _refuse("a power whose exponent depends on the coordinates"),
}


def _refuse(name: str) -> Any:
    raise Unsupported(f"no rule for the derivatives of {name} along the points")
