"""What an equation sees: coordinates, outputs and their derivatives by name, however they are computed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ._indices import Index, Laplacian
from ._jets import Jet, Unsupported

MODES = ("auto", "taylor", "reverse")
Network = Callable[[Any], Any]


@dataclass(frozen=True)
class Names:
    """How the coordinates and the outputs are called: ``Names(("x", "t"), ("u",), time=True)``."""

    variables: tuple[str, ...]
    outputs: tuple[str, ...]
    time: bool = False

    def __post_init__(self) -> None:
        both = (*self.variables, *self.outputs)
        if len(set(both)) < len(both):
            raise ValueError(f"variables and outputs must have different names, got {', '.join(both)}")
        bad = [name for name in both if not name.isidentifier() or "_" in name]
        if bad:
            raise ValueError(f"a variable or output must be a name without '_', got {bad[0]!r}")

    @property
    def space(self) -> tuple[int, ...]:
        """The coordinates that are not time."""
        return tuple(range(len(self.variables) - self.time))

    def output(self, component: str | int) -> int:
        if isinstance(component, str) and component in self.outputs:
            return self.outputs.index(component)
        if isinstance(component, int) and 0 <= component < len(self.outputs):
            return component
        raise ValueError(f"component must be one of {', '.join(self.outputs)}, got {component!r}")

    def variable(self, variable: str | int) -> int:
        if isinstance(variable, str) and variable in self.variables:
            return self.variables.index(variable)
        if isinstance(variable, int) and 0 <= variable < len(self.variables):
            return variable
        raise ValueError(f"variable must be one of {', '.join(self.variables)}, got {variable!r}")

    def parse(self, name: str) -> tuple[int, Index] | None:
        """``"u_xx"`` is output 0 and the derivative (0, 0); None if there is no such thing."""
        output, _, rest = name.partition("_")
        if output not in self.outputs:
            return None
        index: list[int] = []
        while rest:
            longest = max((v for v in self.variables if rest.startswith(v)), key=len, default=None)
            if longest is None:
                return None
            index.append(self.variables.index(longest))
            rest = rest[len(longest) :]
        return self.outputs.index(output), tuple(sorted(index))


class Derivatives:
    """A network's outputs at some points, and their derivatives, each computed once; an ``[n, 1]`` tensor each."""

    def __init__(self, network: Network, x: Tensor, names: Names, requests: Iterable[Index], mode: str) -> None:
        if mode not in MODES:
            raise ValueError(f"derivatives must be one of {', '.join(MODES)}, got {mode!r}")
        self.network, self.x, self.names, self.mode = network, x, names, mode
        self.requests = set(requests)
        self._known: dict[tuple[int, Index], Tensor] = {}
        self._rows: dict[tuple[int, Index], Tensor] = {}  # gradients by all coordinates, in reverse mode
        self._jet: Jet | None = None
        self._value: Tensor | None = None
        self._evaluate()

    def get(self, output: int, index: Index) -> Tensor:
        if (output, index) not in self._known:
            self._known[output, index] = self._compute(output, index)
        return self._known[output, index]

    def _evaluate(self) -> None:
        if not any(self.requests):  # no derivatives
            self._value = self._checked(self.network(self.x))
            return
        if self.mode != "reverse":
            try:
                jet = self.network(Jet.of_coordinates(self.x, sorted(self.requests)))
            except Unsupported:
                if self.mode == "taylor":
                    raise
                self.mode = "reverse"
            else:
                # a network that does not look at its input gives out a plain tensor: all derivatives are zero
                self._jet = jet if isinstance(jet, Jet) else Jet({(): jet}, ((),))
                self._value = self._checked(self._jet.value)
                return
        self.x = self.x.detach().requires_grad_()
        self._value = self._checked(self.network(self.x))

    def _checked(self, value: Tensor) -> Tensor:
        wanted = (len(self.x), len(self.names.outputs))
        if not isinstance(value, Tensor) or value.shape != wanted:
            found = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
            outputs = ", ".join(self.names.outputs)
            raise ValueError(
                f"the network must return a tensor {wanted}, one column per output ({outputs}), got {found}"
            )
        return value

    def _compute(self, output: int, index: Index) -> Tensor:
        assert self._value is not None
        if not index:
            return self._value[:, output : output + 1]
        if index not in self.requests and self.mode != "reverse":  # asked for something new: carry it from now on
            self.requests.add(index)
            self._evaluate()
        if self.mode != "reverse":
            assert self._jet is not None
            return self._jet.full(index)[:, output : output + 1]
        if not self.x.requires_grad:
            self.requests.add(index)
            self._evaluate()
        if isinstance(index, Laplacian):
            parts = [self._by_gradient(output, (i, i)) for i in index]
            return torch.stack(parts).sum(0)
        return self._by_gradient(output, index)

    def _by_gradient(self, output: int, index: Index) -> Tensor:
        before = index[:-1]
        if (output, before) not in self._rows:
            inner = self.get(output, before)
            if inner.requires_grad:
                (row,) = torch.autograd.grad(inner.sum(), self.x, create_graph=True, allow_unused=True)
            else:
                row = None
            self._rows[output, before] = torch.zeros_like(self.x) if row is None else row
        return self._rows[output, before][:, index[-1] : index[-1] + 1]


class Fields:
    """Coordinates, outputs, derivatives and unknowns by name, as columns ``[n, 1]``.

    With the variables x, t and the output u: ``f.x``, ``f.u``, ``f.u_t``, ``f.u_xx``, ``f.u_xt``; DeepXDE's
    ``f.jacobian(i, j)`` and ``f.hessian(i, j, component)``; ``f.laplacian("u")`` over the coordinates of space.

    Example:
        >>> from madamoo import pinn
        >>> problem = pinn.Problem(pinn.Rectangle((0, 0), (1, 1)), lambda f: f.laplacian("u") - f.x * f.u_y, {})
        >>> problem.objectives
        ('pde',)
    """

    def __init__(
        self,
        names: Names,
        x: Tensor,
        get: Callable[[int, Index], Tensor],
        unknowns: Mapping[str, Tensor],
        normals: Tensor | None = None,
        rows: slice = slice(None),
    ) -> None:
        self._names, self._x, self._get, self._unknowns, self._rows = names, x, get, unknowns, rows
        self._normals = normals

    @property
    def points(self) -> Tensor:
        """All coordinates, ``[n, dim]``."""
        return self._x[self._rows]

    @property
    def normals(self) -> Tensor:
        """The outward normals ``[n, dim]``; on boundary points only."""
        if self._normals is None:
            raise ValueError("f.normals: these points are not of a boundary, so they have no normals")
        return self._normals

    def __getattr__(self, name: str) -> Tensor:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in self._names.variables:
            i = self._names.variables.index(name)
            return self.points[:, i : i + 1]
        if name in self._unknowns:
            return self._unknowns[name]
        parsed = self._names.parse(name)
        if parsed is None:
            known = (
                f"the variables are {', '.join(self._names.variables)}, the outputs {', '.join(self._names.outputs)}"
                + (f", the unknowns {', '.join(self._unknowns)}" if self._unknowns else "")
            )
            example = f"{self._names.outputs[0]}_{self._names.variables[0]}"
            raise AttributeError(f"f.{name}: there is no such field or derivative; {known} (a derivative: f.{example})")
        return self._get(*parsed)[self._rows]

    def output(self, component: str | int = 0) -> Tensor:
        return self._get(self._names.output(component), ())[self._rows]

    def jacobian(self, i: str | int = 0, j: str | int = 0) -> Tensor:
        """The first derivative of output i by variable j."""
        return self._get(self._names.output(i), (self._names.variable(j),))[self._rows]

    def hessian(self, i: str | int = 0, j: str | int = 0, component: str | int = 0) -> Tensor:
        """The second derivative of an output by the variables i and j."""
        index = sorted((self._names.variable(i), self._names.variable(j)))
        return self._get(self._names.output(component), tuple(index))[self._rows]

    def laplacian(self, component: str | int = 0) -> Tensor:
        """The sum of the second derivatives by the coordinates of space, carried as one quantity."""
        space = self._names.space
        index: Index = Laplacian(space) if len(space) > 1 else (0, 0)
        return self._get(self._names.output(component), index)[self._rows]

    def normal_derivative(self, component: str | int = 0) -> Tensor:
        """The derivative along the outward normal."""
        output, normals = self._names.output(component), self.normals
        total = None
        for i in self._names.space:
            term = normals[:, i : i + 1] * self._get(output, (i,))[self._rows]
            total = term if total is None else total + term
        assert total is not None
        return total

    def part(self, rows: slice) -> Fields:
        """The same at some of the points."""
        return Fields(self._names, self._x, self._get, self._unknowns, self._normals, rows)


class Recorder:
    """Stands in for a network's derivatives and notes which are asked for."""

    def __init__(self, count: int, like: Tensor) -> None:
        self.requests: set[Index] = set()
        self._zero = like.new_zeros(count, 1)

    def get(self, output: int, index: Index) -> Tensor:
        self.requests.add(index)
        return self._zero


def default_variables(dim: int, time: bool) -> tuple[str, ...]:
    """x, y, z, or x1, x2, ... beyond three dimensions; and t."""
    space: Sequence[str] = (
        ("x", "y", "z")[: dim - time] if dim - time <= 3 else [f"x{i + 1}" for i in range(dim - time)]
    )
    return (*space, "t") if time else tuple(space)
