"""The mathematics of the diagnosis: from one step's gradients to one row of numbers, a few coordinates at a time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

METRICS = ("euclidean", "adam", "preference", "realised")
"""Under which the effect of a step on an objective is measured."""
DIAGONAL = ("adam", "preference")
"""Those that divide d coordinate by coordinate."""
CHUNK = 1 << 15  # coordinates at a time: copies in double precision are never larger
SAMPLE = 1 << 17  # coordinates from which percentiles are taken


@dataclass(frozen=True)
class Piece:
    """What is known of one parameter in one step.

    ``images`` holds d / M under each metric that is known; M itself is d divided by that, in the basis in which it is
    diagonal. If that is not the parameter's own, ``turned`` has d and the preference's image in it.
    """

    keys: tuple[int, ...]
    rows: tuple[Tensor, ...]  # each [some of the keys, *shape]; together the gradients of the objectives ``keys``
    d: Tensor
    before: Tensor  # the parameter before the step, and after
    after: Tensor
    images: dict[str, Tensor] = field(default_factory=dict)
    second_moment: Tensor | None = None  # Adam's, bias-corrected
    curvature: Tensor | None = None  # C_lambda, before floor and eps, in the basis of the metric
    turned: tuple[Tensor, Tensor] | None = None
    floor: float = 0.0  # 1 - beta: the floor of C is this times d^2
    eps: float = 0.0


class Sums:
    """What is summed over all coordinates, in float64; ``size`` is how many there will be."""

    def __init__(self, count: int, size: int) -> None:
        def zeros(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.float64, device="cpu")

        self.stride = max(1, math.ceil(size / SAMPLE))
        self.known = set(METRICS)  # in every piece so far
        self.gram = zeros(count, count)
        self.negative = zeros(count)  # N_i of the lemma
        self.effects, self.squares = zeros(count, len(METRICS)), zeros(len(METRICS))
        self.largest = dict.fromkeys(DIAGONAL, 0.0)
        self.smallest = dict.fromkeys(DIAGONAL, math.inf)
        self.samples: dict[str, list[Tensor]] = {name: [] for name in DIAGONAL}
        self.logs = zeros(7)  # of v_hat and C: n, |a - b|, a, b, a^2, b^2, ab
        self.active, self.floored, self.below = 0, 0, 0
        self._workspace = torch.empty(0, dtype=torch.float64, device="cpu")

    @property
    def positive(self) -> Tensor:
        """P_i of the lemma."""
        return (self.effects[:, 0] + self.negative).clamp_min(0)

    def add(self, piece: Piece) -> None:
        self.known -= set(DIAGONAL) - set(piece.images)
        index = torch.tensor(piece.keys, device="cpu")
        for start in range(0, piece.d.numel(), CHUNK):
            part = slice(start, start + CHUNK)

            def cut(x: Tensor, part: slice = part) -> Tensor:
                return x.detach().reshape(-1)[part].double()

            d = cut(piece.d)
            G = torch.cat(
                [stack.reshape(len(stack), -1)[:, part] for stack in piece.rows], out=self._room(len(index), d)
            )
            images = {name: cut(u) for name, u in piece.images.items()}
            U = torch.zeros(len(METRICS), len(d), dtype=d.dtype, device=d.device)
            U[0], U[-1] = d, cut(piece.before) - cut(piece.after)
            for name, u in images.items():
                U[METRICS.index(name)] = u
            self.gram[index[:, None], index] += (G @ G.T).cpu()
            self.effects[index] += (G @ U.T).cpu()
            self.squares += U.square().sum(1).cpu()
            self.negative[index] -= G.mul_(d).clamp_max_(0).sum(1).cpu()
            for name, u in images.items():
                in_basis = piece.turned if name == "preference" else None
                self._add_diagonal(name, *((d, u) if in_basis is None else map(cut, in_basis)))
            if piece.curvature is not None:
                self._add_curvature(piece, d if piece.turned is None else cut(piece.turned[0]), cut(piece.curvature))
                if piece.second_moment is not None and piece.turned is None:  # else of different coordinates
                    self._add_logs(cut(piece.second_moment), cut(piece.curvature))

    def _room(self, rows: int, like: Tensor) -> Tensor:
        """[rows, n] to write to; the same memory each time."""
        size = rows * len(like)
        if self._workspace.numel() < size or self._workspace.device != like.device:
            self._workspace = like.new_empty(size)
        return self._workspace[:size].view(rows, len(like))

    def _add_diagonal(self, name: str, d: Tensor, u: Tensor) -> None:
        alive = (d != 0) & (u != 0)
        M = d[alive] / u[alive]
        if M.numel():
            low, high = torch.aminmax(M)
            self.largest[name] = max(self.largest[name], float(high))
            self.smallest[name] = min(self.smallest[name], float(low))
            self.samples[name].append(M[:: self.stride].cpu())

    def _add_curvature(self, piece: Piece, d: Tensor, C: Tensor) -> None:
        alive = d != 0
        self.active += int(alive.sum())
        self.floored += int((alive & (piece.floor * d.square() >= C)).sum())
        self.below += int((alive & (piece.eps > C)).sum())

    def _add_logs(self, v: Tensor, C: Tensor) -> None:
        both = (v > 0) & (C > 0)
        a, b = v[both].log(), C[both].log()
        self.logs += torch.stack([both.sum(), (a - b).abs().sum(), a.sum(), b.sum(), a @ a, b @ b, a @ b]).cpu()


def make_row(
    sums: Sums, names: Sequence[str], losses: Tensor, weights: Tensor, present: Iterable[int]
) -> dict[str, Any]:
    """The row of one step; what is not known, not finite or not in the batch is None."""
    here = set(present)
    norms = sums.gram.diagonal().sqrt()
    sizes = sums.squares.sqrt()
    cosines = (sums.gram / torch.outer(norms, norms)).tolist()
    pairs = [cosines[i][j] for i in here for j in here if i < j and math.isfinite(cosines[i][j])]

    def by_name(values: Tensor | Sequence[Any]) -> dict[str, Any]:
        listed = values.tolist() if isinstance(values, Tensor) else values
        return {name: x if i in here else None for i, (name, x) in enumerate(zip(names, listed, strict=True))}

    def by_metric(values: Tensor) -> dict[str, Any]:
        return {m: by_name(values[:, k]) if m in sums.known else None for k, m in enumerate(METRICS)}

    flips: dict[str, Any] = {}
    for k, metric in enumerate(METRICS[1:], start=1):
        flipped = [e[k] < 0 if e[0] > 0 else None for e in sums.effects.tolist()]  # None: d does not improve it
        flips[metric] = by_name(flipped) if metric in sums.known else None
    row = {
        "objectives": list(names),
        "losses": by_name(losses),
        "weights": by_name(weights),
        "norms": by_name(norms),
        "direction_norm": float(sizes[0]),
        "cosines": [[c if {i, j} <= here else None for j, c in enumerate(line)] for i, line in enumerate(cosines)],
        "conflict_rate": sum(c < 0 for c in pairs) / len(pairs) if pairs else None,
        "effects": by_metric(sums.effects),
        "alignments": by_metric(sums.effects / torch.outer(norms, sizes)),
        "flips": flips,
        "positive": by_name(sums.positive),
        "negative": by_name(sums.negative),
        "threshold": by_name(sums.positive / sums.negative),
        "condition": {m: _ratio(sums, m) for m in DIAGONAL},
        "spread": {m: _spread(sums, m) for m in DIAGONAL},
        "predicted": by_name(-sums.effects[:, -1]),
        "observed": None,
        "marginalisation": _marginalisation(sums),
        "floored": sums.floored / sums.active if sums.active else None,
        "below_eps": sums.below / sums.active if sums.active else None,
    }
    return clean(row)


def _ratio(sums: Sums, metric: str) -> float | None:
    low = sums.smallest[metric]
    return sums.largest[metric] / low if metric in sums.known and 0 < low < math.inf else None


def _spread(sums: Sums, metric: str) -> Any:
    """The 99th percentile of M by the 1st: outliers make the condition number."""
    if metric not in sums.known or not sums.samples[metric]:
        return None
    low, high = np.quantile(torch.cat(sums.samples[metric]).numpy(), [0.01, 0.99])
    return float(high / low) if low > 0 else None


def _marginalisation(sums: Sums) -> dict[str, Any] | None:
    """How far Adam's second moment is from the curvature at the preference of now, over coordinates with both."""
    n, distance, a, b, aa, bb, ab = sums.logs.tolist()
    if not n:
        return None
    variances = (aa - a * a / n) * (bb - b * b / n)
    return {
        "log_distance": distance / n,
        "log_correlation": (ab - a * b / n) / math.sqrt(variances) if variances > 0 else None,
    }


def clean(value: Any) -> Any:
    """The same with None for numbers that are not finite."""
    if isinstance(value, dict):
        return {key: clean(x) for key, x in value.items()}
    if isinstance(value, list | tuple):
        return [clean(x) for x in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
