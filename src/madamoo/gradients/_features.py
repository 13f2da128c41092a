"""Networks with a trunk and heads: differentiate the heads first, and the trunk for all objectives together."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import torch
from torch import Tensor
from torch.autograd.graph import Node

from ._losses import Losses
from ._rows import REST, Kinds, Rows, compute_rows, differentiate, pack

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
    roots = [r.grad_fn if isinstance(r, Tensor) else r.node for r in losses.roots if r is not None]
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


def compute_rows_together(
    losses: Losses,
    cut: Cut,
    passes: Mapping[int, Mapping[int, float]],
    kinds: Kinds,
    *,
    scale: float = 1.0,
    retain_graph: bool = False,
) -> list[Rows]:
    """:func:`compute_rows` by one pass a head, and one through the trunk with the gradients of the features stacked."""
    inputs = [*cut.features, *cut.heads]
    found = differentiate(losses, inputs, passes, scale=scale, retain_graph=retain_graph)
    at_features, at_heads = found[: len(cut.features)], found[len(cut.features) :]
    keys = [key for key in passes if any(key in at for at in at_features)]
    of_trunk: list[dict[int, Tensor]] = [{} for _ in cut.trunk]
    if keys and cut.trunk:
        seeds = [
            torch.stack([at.get(key, torch.zeros_like(z)) for key in keys]).mul_(scale)
            for z, at in zip(cut.features, at_features, strict=True)
        ]
        try:
            stacks = torch.autograd.grad(
                cut.features, cut.trunk, seeds, retain_graph=retain_graph, allow_unused=True, is_grads_batched=True
            )
        except RuntimeError as error:
            raise RuntimeError(
                "the trunk cannot be differentiated for all objectives together, which torch.vmap would do; leave out "
                f"features, and they take turns. {error}"
            ) from error
        for mine, stack in zip(of_trunk, stacks, strict=True):
            if stack is not None:
                mine.update(zip(keys, stack if scale == 1.0 else stack / scale, strict=True))
    order = [*cut.trunk, *cut.heads]
    return pack(dict(zip(order, [*of_trunk, *at_heads], strict=True)), kinds)


def compute_rows_at_features(
    losses: Losses, cut: Cut, kinds: Kinds, *, scale: float = 1.0, retain_graph: bool = False
) -> tuple[list[Rows], list[Rows]]:
    """The rows of the features and those of the heads, one pass a head; the trunk is left alone."""
    inputs = [*cut.features, *cut.heads]
    passes = {i: {i: 1.0} for i in losses.present}
    features = set(cut.features)

    def kinds_of_both(param: Tensor, keys: tuple[int, ...]) -> Hashable:
        return ("features", keys) if param in features else kinds(param, keys)

    rows = compute_rows(losses, inputs, passes, kinds_of_both, scale=scale, retain_graph=retain_graph)
    return [r for r in rows if r.params[0] in features], [r for r in rows if r.params[0] not in features]


def compute_trunk_row(
    losses: Losses,
    cut: Cut,
    features: Sequence[Rows],
    weights: Sequence[float],
    kinds: Kinds,
    *,
    scale: float = 1.0,
    retain_graph: bool = False,
) -> list[Rows]:
    """One pass through the trunk, with the weighted sum of the features' gradients: the row REST of its parameters."""
    seeds = {z: torch.zeros_like(z) for z in cut.features}
    for r in features:
        sums = r.stack.new_tensor([weights[key] for key in r.keys]) @ r.stack
        for z, part in zip(r.params, sums.split([z.numel() for z in r.params]), strict=True):
            seeds[z] = part.view(z.shape)
    heads = replace(losses, roots=cut.features, units=tuple(seeds[z] for z in cut.features))
    passes = {REST: dict.fromkeys(range(len(cut.features)), 1.0)}
    return compute_rows(heads, cut.trunk, passes, kinds, scale=scale, retain_graph=retain_graph)
