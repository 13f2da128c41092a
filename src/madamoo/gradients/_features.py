"""Networks with a trunk and heads: the Gram matrix at the features between them, and one pass through the trunk."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import torch
from torch import Tensor
from torch.autograd.graph import Node

from ._found import Found, Row, differentiate
from ._layout import Layout
from ._losses import Losses
from ._rows import Rows, SharedRows

FeaturesT: TypeAlias = Tensor | Sequence[Tensor]


@dataclass(frozen=True)
class Cut:
    """Where trunk and heads meet, and the parameters on either side. Every way into the trunk leads through it."""

    features: tuple[Tensor, ...]
    trunk: list[Tensor]
    heads: list[Tensor]


def cut_at(features: FeaturesT, losses: Losses, params: Sequence[Tensor]) -> Cut:
    """Find the two sides, or say why ``features`` do not part the network."""
    given = (features,) if isinstance(features, Tensor) else tuple(features)
    for z in given:
        if not isinstance(z, Tensor) or z.grad_fn is None:
            found = "one without a graph" if isinstance(z, Tensor) else type(z).__name__
            raise ValueError(f"features must be tensors that the trunk has computed in this forward pass, got {found}")
    ends = {z.grad_fn for z in given if z.grad_fn is not None}
    if not ends:
        raise ValueError("features must hold at least one tensor, got none")
    roots = losses.nodes()
    if ends & set(roots):
        raise ValueError(
            "a loss and the features come out of one node of the graph: compute losses from the features by other "
            "operations, and compile trunk and heads separately"
        )
    beyond, _ = _walk(roots, ends)
    within, nodes = _walk([parent for end in ends for parent, _ in end.next_functions])
    if ends & nodes or len({id(z) for z in given}) < len(given):
        raise ValueError("features must not be computed from one another, nor be given twice: their gradients add up")
    for number, param in enumerate(params):
        if param in beyond and param in within:
            raise ValueError(
                f"features do not part the network: parameter {number} of the optimizer, of shape "
                f"{tuple(param.shape)}, reaches a loss through them and around them"
            )
    return Cut(given, [p for p in params if p in within], [p for p in params if p not in within])


def _walk(nodes: Iterable[Node | None], ends: Iterable[Node] = ()) -> tuple[set[Tensor], set[Node]]:
    """The parameters that graphs end in, and all nodes on the way, without going on beyond ``ends``."""
    stack, seen, found = list(nodes), set(ends), set()
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        leaf = getattr(node, "variable", None)  # that of a node which adds to .grad
        if leaf is not None:
            found.add(leaf)
        stack.extend(parent for parent, _ in node.next_functions)
    return found, seen


def differentiate_heads(
    losses: Losses, cut: Cut, *, scale: float = 1.0, retain_graph: bool = False
) -> tuple[list[Rows], Found]:
    """The rows of the features, and the gradients of the heads; one pass per objective, and the trunk left alone."""
    retain_graph = retain_graph or losses.extra is not None  # it may lead through the heads: see differentiate_trunk
    inputs, losses = [*cut.features, *cut.heads], replace(losses, extra=None)
    found = differentiate(losses, inputs, losses.here, scale=scale, retain_graph=retain_graph)
    width = len(cut.features)
    rows, _ = Layout().pack(Found({i: row[:width] for i, row in found.rows.items()}), cut.features)
    reached = {i for r in rows for i, _ in r.pieces()}
    for i in set(losses.here) - reached:
        raise ValueError(f"loss {losses.label(i)} does not depend on the features; gram='features' needs each loss to")
    return rows, Found({i: row[width:] for i, row in found.rows.items()})


def differentiate_trunk(
    losses: Losses,
    cut: Cut,
    features: Sequence[Rows],
    weights: Sequence[float],
    *,
    scale: float = 1.0,
    retain_graph: bool = False,
) -> Row:
    """One pass through the trunk, with the weighted sum of the features' gradients; heads too, for an extra term."""
    seeds = {z: torch.zeros_like(z) for z in cut.features}
    for r in features:
        if isinstance(r, SharedRows):
            total = r.stack.new_tensor([weights[i] for i in r.objectives]) @ r.stack
        else:
            total = r.stack[0] * r.block.spread([weights[i] for i in r.block.owners], r.stack)
        for z, part in r.block.parts():
            seeds[z] = total[part].view(z.shape)
    sums = replace(losses, roots=cut.features, units=tuple(seeds[z] for z in cut.features))
    ones = dict.fromkeys(range(len(cut.features)), 1.0)
    inputs = cut.trunk if losses.extra is None else [*cut.trunk, *cut.heads]
    found = differentiate(sums, inputs, (), ones, scale=scale, retain_graph=retain_graph)
    assert found.rest is not None
    return found.rest


def join_sides(cut: Cut, heads: Found, trunk: Row, params: Sequence[Tensor]) -> Found:
    """The gradients of both sides, in the order of ``params``."""
    place = {p: k for k, p in enumerate(params)}
    rows: dict[int, Row] = {i: [None] * len(params) for i in heads.rows}
    for i, row in heads.rows.items():
        for p, g in zip(cut.heads, row, strict=True):
            rows[i][place[p]] = g
    rest: Row = [None] * len(params)
    for p, g in zip([*cut.trunk, *cut.heads], trunk, strict=False):
        rest[place[p]] = g
    return Found(rows, rest)
