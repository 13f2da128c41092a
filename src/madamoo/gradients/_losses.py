"""What the user hands over: the losses of one batch, in any of three forms."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, Node

LossesT: TypeAlias = Tensor | Sequence[Tensor | None] | Mapping[str, Tensor | None]
RootT: TypeAlias = Tensor | GradientEdge


@dataclass(frozen=True)
class Losses:
    """The losses of one batch, in the order of the objectives.

    ``roots[i]`` is where the graph of objective i begins and ``units[i]`` the output gradient that picks the
    objective there; both are None if the objective is missing from the batch.
    """

    values: Tensor  # [C], float64 on the CPU, detached; NaN where missing
    roots: tuple[RootT | None, ...]
    units: tuple[Tensor | None, ...]
    names: tuple[str, ...] | None = None
    extra: Tensor | None = None  # a scalar term of the direction that is no objective
    somewhere: tuple[int, ...] | None = None  # the objectives that some process has, once that is known

    @cached_property
    def here(self) -> tuple[int, ...]:
        """The objectives that this process has a loss of."""
        return tuple(i for i, root in enumerate(self.roots) if root is not None)

    @property
    def present(self) -> tuple[int, ...]:
        """The objectives that are in the batch, of this process or of others."""
        return self.here if self.somewhere is None else self.somewhere

    def agreed(self, values: Tensor, present: tuple[int, ...], factors: Sequence[float]) -> Losses:
        """The same with values and presence that hold for all processes.

        ``factors`` make of the mean over the processes, which comes later, a mean over what each loss stands for.
        """
        units = [u if u is None or f == 1.0 else u * f for u, f in zip(self.units, factors, strict=True)]
        return replace(self, values=values, units=tuple(units), somewhere=present)

    def label(self, i: int) -> str:
        return repr(self.names[i]) if self.names is not None else str(i)

    def like_losses(self, vector: Tensor) -> Tensor:
        """``vector`` on the device and in the precision of the losses, float32 at least."""
        unit = next(unit for unit in self.units if unit is not None)
        return vector.to(unit.device, torch.promote_types(unit.dtype, torch.float32))

    def seeds(self, coefficients: Mapping[int, float], extra: float = 0.0) -> tuple[list[RootT], list[Tensor]]:
        """Outputs and output gradients with which autograd differentiates ``sum_i coefficients[i] loss_i``.

        A coefficient of zero stays in, so that the parameters of that objective get a gradient of zero, not none.
        ``extra`` is the coefficient of the extra term.
        """
        outputs: list[RootT] = []
        seeds: list[Tensor] = []
        products: dict[tuple[int, float], Tensor] = {}  # mostly one unit, and few different coefficients
        for i, c in coefficients.items():
            root, unit = self.roots[i], self.units[i]
            assert root is not None and unit is not None
            if outputs and outputs[-1] is root:
                seeds[-1] = seeds[-1] + c * unit
            else:
                outputs.append(root)
                if (id(unit), c) not in products:
                    products[id(unit), c] = c * unit
                seeds.append(products[id(unit), c])
        if self.extra is not None and extra:
            outputs.append(self.extra)
            seeds.append(torch.full_like(self.extra.detach(), extra))
        return outputs, seeds

    def nodes(self) -> list[Node | None]:
        """Where the graph of each loss begins."""
        return [r.grad_fn if isinstance(r, Tensor) else r.node for r in self.roots if r is not None]

    def scaled_by(self) -> float | None:
        """The factor of a GradScaler, if every loss ends in a product with one and the same of its scales."""
        nodes = self.nodes()
        if any(type(node).__name__ != "MulBackward0" for node in nodes):
            return None
        scales: list[Any] = [getattr(node, "_saved_other", None) for node in nodes]
        if not all(map(_is_scale, scales)):
            return None
        factor = float(scales[0])
        same = len({s.data_ptr() for s in scales}) == 1
        return factor if same and factor >= 16.0 and math.log2(factor).is_integer() else None

    def is_opaque(self) -> bool:
        """Whether the graph hides which objective reaches which parameter.

        It does when losses are entries of one tensor, and behind a compiled region: a parameter that an objective
        does not reach then gets a gradient of zero instead of none. A re-entrant checkpoint hides its parameters
        altogether, which is an error.
        """
        kinds = self.check_graph()
        return any(kind.startswith("CompiledFunction") for kind in kinds) or _have_one_source(self.nodes())

    def check_graph(self) -> set[str]:
        """The kinds of nodes in the graph; raises if a parameter may hide in one of them."""
        kinds = _kinds_of_nodes([*self.nodes(), None if self.extra is None else self.extra.grad_fn])
        if "CheckpointFunctionBackward" in kinds:
            raise RuntimeError(
                "the graph holds a re-entrant activation checkpoint, which hides its parameters from autograd: use "
                "torch.utils.checkpoint.checkpoint(..., use_reentrant=False)"
            )
        return kinds


def _kinds_of_nodes(stack: list[Node | None]) -> set[str]:
    """The kinds of all nodes in some graphs. It runs in every step, so it is written for speed."""
    seen: set[Node | None] = {None}
    types = set()
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            types.add(type(node))
            for parent, _ in node.next_functions:  # type: ignore[union-attr]
                if parent not in seen:
                    stack.append(parent)
    return {kind.__name__ for kind in types}


def _is_scale(factor: Any) -> bool:
    """Whether it may be a GradScaler's scale. A number in the user's code would be kept in float64 or int64."""
    if not isinstance(factor, Tensor):
        return False
    return factor.dtype is torch.float32 and factor.dim() == 0 and not factor.requires_grad


def _have_one_source(nodes: Sequence[Node | None]) -> bool:
    """Whether two of the graphs, followed as long as they do not branch, come to the same node."""
    seen: set[Node] = set()
    for node in nodes:
        chain: set[Node] = set()
        while node is not None and (edges := node.next_functions):  # a parameter itself is no source of losses
            chain.add(node)
            parents = [parent for parent, _ in edges if parent is not None]  # constants have none
            node = parents[0] if len(parents) == 1 else None
        if not seen.isdisjoint(chain):
            return True
        seen |= chain
    return False


def read_losses(
    losses: LossesT,
    names: tuple[str, ...] | None = None,
    count: int | None = None,
    *,
    graph: bool = True,
    extra: Tensor | None = None,
) -> Losses:
    """Check the losses of one batch and put them in the order of the objectives.

    ``names`` and ``count`` are what earlier batches (or the user) fixed; a named objective that a dictionary lacks,
    or an entry that is None, is missing from this batch. Without ``graph``, values are enough.
    """
    if isinstance(losses, Tensor):
        result = _read_tensor(losses, graph)
    elif isinstance(losses, Mapping):
        result = _read_mapping(losses, names, graph)
    elif isinstance(losses, Sequence) and not isinstance(losses, str):
        result = _read_sequence(losses, [str(i) for i in range(len(losses))], graph)
    else:
        raise TypeError(
            f"losses must be a 1-D tensor, a sequence or a dict of scalar tensors, got {type(losses).__name__}"
        )
    if names is not None and not isinstance(losses, Mapping):
        raise TypeError(f"losses must be a dict with the names {list(names)}, as before, got {type(losses).__name__}")
    if not result.present:
        raise ValueError("losses must hold at least one objective, got none")
    if names is None and count is not None and isinstance(losses, Mapping):
        raise TypeError("losses must come without names, as before, got a dict: in which order are its objectives?")
    if count is not None and len(result.roots) != count:
        raise ValueError(
            f"losses must hold {count} objectives, as before, got {len(result.roots)}; "
            "mark an objective that a batch lacks by None"
        )
    if extra is None:
        return result
    if not isinstance(extra, Tensor) or extra.numel() != 1:
        raise TypeError(f"extra must be a scalar tensor, got {extra!r}")
    _check_graph(extra, "extra", graph)
    return replace(result, extra=extra)


def _read_tensor(losses: Tensor, graph: bool) -> Losses:
    if losses.dim() == 0:
        return _read_sequence([losses], ["0"], graph)
    if losses.dim() != 1:
        raise ValueError(f"losses must be a 1-D tensor, one entry per objective, got shape {tuple(losses.shape)}")
    _check_graph(losses, "losses", graph)
    count = len(losses)
    roots: tuple[RootT, ...] = (losses,) * count
    units: tuple[Tensor, ...] = torch.eye(count, dtype=losses.dtype, device=losses.device).unbind()
    # torch.stack keeps one edge for each loss: differentiating those skips the other objectives' heads, and
    # shows which parameters an objective reaches.
    edges: Sequence[Any] = losses.grad_fn.next_functions if losses.grad_fn is not None else ()
    if losses.grad_fn is not None and losses.grad_fn.name() == "StackBackward0" and len(edges) == count:
        for i, (node, _) in enumerate(edges):
            if node is None:
                raise ValueError(f"loss {i} has no graph: it depends on no parameter that requires a gradient")
        roots = tuple(GradientEdge(*edge) for edge in edges)
        units = (losses.new_ones(()),) * count
    return Losses(losses.detach().to("cpu", torch.float64, copy=True), roots, units)


def _read_sequence(losses: Sequence[Tensor | None], labels: Sequence[str], graph: bool) -> Losses:
    for loss, label in zip(losses, labels, strict=True):
        if loss is None:
            continue
        if not isinstance(loss, Tensor):
            raise TypeError(f"loss {label} must be a tensor, got {type(loss).__name__}")
        if loss.numel() != 1:
            raise ValueError(f"loss {label} must be a scalar, got shape {tuple(loss.shape)}")
        _check_graph(loss, f"loss {label}", graph)
    ones: dict[Any, Tensor] = {}  # losses that are alike have one unit
    units: list[Tensor | None] = []
    for loss in losses:
        key = None if loss is None else (loss.dtype, loss.device, loss.shape)
        if loss is not None and key not in ones:
            ones[key] = torch.ones_like(loss)
        units.append(None if loss is None else ones[key])
    return Losses(_values(losses), tuple(losses), tuple(units))


def _read_mapping(losses: Mapping[str, Tensor | None], names: tuple[str, ...] | None, graph: bool) -> Losses:
    if names is None:
        names = check_names(losses)
    unknown = [name for name in losses if name not in names]
    if unknown:
        raise ValueError(
            f"losses hold the unknown objective(s) {unknown}; known are {list(names)}. "
            "If the first batch lacks some, name them all: objectives=[...]"
        )
    read = _read_sequence([losses.get(name) for name in names], [repr(name) for name in names], graph)
    return Losses(read.values, read.roots, read.units, names)


def read_counts(counts: Sequence[float] | Mapping[str, float] | Tensor | None, losses: Losses) -> Tensor | None:
    """The number of samples behind each loss, in the order of the objectives; zero for one that is not here."""
    if counts is None:
        return None
    if isinstance(counts, Mapping):
        unknown = [name for name in counts if name not in (losses.names or ())]
        if unknown:
            raise ValueError(f"counts name {unknown[0]!r}; the objectives are {losses.names}")
        counts = [counts.get(name, 0.0) for name in losses.names or ()]
    result = torch.as_tensor(counts, dtype=torch.float64, device="cpu").detach()
    if result.shape != losses.values.shape or not bool((result >= 0).all()) or not bool(result.isfinite().all()):
        raise ValueError(
            f"counts must be one number of samples per objective, {len(losses.values)} in all, got {result.tolist()}"
        )
    return result


def check_names(names: Any) -> tuple[str, ...]:
    """The names of the objectives as a tuple, each a string and no two alike."""
    if isinstance(names, str):
        raise TypeError(f"objectives must be a sequence of names, got the one name {names!r}")
    result = tuple(names)
    for name in result:
        if not isinstance(name, str):
            raise TypeError(f"objectives must be named by strings, got {name!r}")
        if result.count(name) > 1:
            raise ValueError(f"objectives must have different names, got {name!r} twice")
    return result


def _check_graph(loss: Tensor, label: str, graph: bool) -> None:
    if not loss.is_floating_point():
        raise TypeError(f"{label} must be a real floating-point tensor, got {loss.dtype}")
    if graph and not loss.requires_grad:
        raise ValueError(
            f"{label} has no graph: it depends on no parameter that requires a gradient; if the batch has no labels "
            "for it, give None"
        )


def _values(losses: Sequence[Tensor | None]) -> Tensor:
    """On the CPU in float64, brought there together where they are alike; NaN where there is none."""
    with torch.no_grad():
        found = [loss if loss.dim() == 0 else loss.reshape(()) for loss in losses if loss is not None]
        if len({(v.device, v.dtype) for v in found}) > 1:
            found = [v.to("cpu", torch.float64) for v in found]
        values = torch.stack(found) if found else torch.empty(0, device="cpu")
        values = values.to("cpu", torch.float64)
    if len(found) == len(losses):
        return values
    result = torch.full((len(losses),), torch.nan, dtype=torch.float64, device="cpu")
    result[[i for i, loss in enumerate(losses) if loss is not None]] = values
    return result
