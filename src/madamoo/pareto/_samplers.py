"""Preference vectors for training: each sampler is called once per step and gives the rays of that step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import count as counting
from typing import Any

import torch
from torch import Tensor

from ._preferences import as_doubles, check_count, check_preferences, grid, lattice_size, normalise


class Sampler:
    """``sampler(progress)`` gives the rays [W, C] of a step; ``progress``, from 0 to 1, is how much training is done.

    A subclass implements :meth:`draw`. What it draws comes from a generator of its own, and :meth:`state_dict` holds
    all that changes: loaded into a sampler built alike, it gives the same rays from there on.

    Example:
        >>> from madamoo.pareto import Uniform
        >>> sampler = Uniform(2, count=3)
        >>> saved = sampler.state_dict()
        >>> rays = sampler(0.5)
        >>> sampler.load_state_dict(saved)
        >>> torch.equal(sampler(0.5), rays)
        True
    """

    def __init__(self, n_objectives: int, count: int, seed: int = 0) -> None:
        self.n_objectives = check_count("n_objectives", n_objectives, 2)
        self.count = check_count("count", count, 1)
        self.generator = torch.Generator().manual_seed(seed)

    def __call__(self, progress: float) -> Tensor:
        """The rays of the next step: non-negative, each with sum 1, of torch's default dtype."""
        if not 0 <= progress <= 1:
            raise ValueError(f"progress must lie between 0 and 1, the share of the training done, got {progress!r}")
        return self.draw(float(progress)).to(torch.get_default_dtype())

    def draw(self, progress: float) -> Tensor:
        """The rays [W, C] in float64."""
        raise NotImplementedError

    def state_dict(self) -> dict[str, Any]:
        return {
            "n_objectives": self.n_objectives,
            "count": self.count,
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name in ("n_objectives", "count"):
            if state[name] != getattr(self, name):
                raise ValueError(
                    f"the state is that of a sampler with {name}={state[name]}, this one has {getattr(self, name)}"
                )
        self.generator.set_state(state["generator"].cpu())


class Dirichlet(Sampler):
    """Independent draws from a Dirichlet distribution, as in PaMaL.

    Args:
        n_objectives: C.
        concentration: p, one number for all objectives or one for each. 1 is uniform on the simplex; more gathers the
            rays around p / sum p, less drives them to the corners.
        count: rays a step.
        seed: seed of the generator.

    Example:
        >>> sampler = Dirichlet(3, concentration=1.0, count=2)
        >>> rays = sampler(0.0)
        >>> rays.shape, rays.sum(1)
        (torch.Size([2, 3]), tensor([1., 1.]))
    """

    def __init__(
        self,
        n_objectives: int,
        concentration: float | Sequence[float] | Tensor = 1.0,
        count: int = 1,
        seed: int = 0,
    ) -> None:
        super().__init__(n_objectives, count, seed)
        given = as_doubles(concentration)
        if given.dim() > 1 or (given.dim() == 1 and len(given) != n_objectives):
            raise ValueError(f"concentration must be one number or {n_objectives}, got {given.tolist()}")
        if not bool((torch.isfinite(given) & (given > 0)).all()):
            raise ValueError(f"concentration must be positive and finite, got {given.tolist()}")
        self.concentration = given.expand(n_objectives).clone()

    def draw(self, progress: float) -> Tensor:
        return self._sample(self.concentration)

    def _sample(self, concentration: Tensor) -> Tensor:
        """Normalised gamma variables, as logarithms: at a concentration of 0.001 most of them are below 1e-300.

        G(p) = G(p + 1) U^(1/p) in distribution, and -log U is exponential.
        """
        p = concentration.clamp_min(1e-300).expand(self.count, -1)  # exponential / p must not overflow
        gamma = torch._standard_gamma(p + 1, generator=self.generator)
        exponential = torch.empty_like(gamma).exponential_(generator=self.generator)
        return (gamma.log() - exponential / p).softmax(dim=1)


class Uniform(Dirichlet):
    """Independent draws, uniform on the simplex.

    Example:
        >>> Uniform(3, count=2)(0.0).sum(1)
        tensor([1., 1.])
    """

    def __init__(self, n_objectives: int, count: int = 1, seed: int = 0) -> None:
        super().__init__(n_objectives, 1.0, count, seed)


class AnnealedDirichlet(Dirichlet):
    """Draws from Dirichlet(p (1 - t) + 0.001), t the progress: from Dirichlet(p) at first to the corners at the end.

    PaLoRA (`Dimitriadis et al., 2025 <https://arxiv.org/abs/2407.08056>`_) uses it for more than two objectives.

    Args:
        n_objectives: C.
        concentration: p, one number for all objectives or one for each.
        count: rays a step.
        seed: seed of the generator.

    Example:
        >>> sampler = AnnealedDirichlet(2, count=4)
        >>> late = sampler(0.999)
        >>> late.amax(1)  # at the end nearly corners
        tensor([1., 1., 1., 1.])
    """

    def draw(self, progress: float) -> Tensor:
        return self._sample(self.concentration * (1 - progress) + 0.001)


class DeterministicAnnealing(Sampler):
    """Rays that start together in the middle of the simplex and spread over all of it, without chance.

    PaLoRA (`Dimitriadis et al., 2025 <https://arxiv.org/abs/2407.08056>`_), with two objectives and ``count`` values of
    x spread evenly from 0.01 to 0.99: the rays (x, 1 - x)^(5t), divided by their sums, t the progress.

    With more objectives, the same of a = 0.98 b + 0.02 / C, b the points of a lattice on the simplex: with two they are
    just those (x, 1 - x). All ``count`` points of a small lattice in every step would leave the inside of the simplex
    out (with ``count`` = C they are its corners). So the lattice is finer, and each step takes the next ``count``
    points of it, chosen far from each other; each point comes once before any comes again.

    Args:
        n_objectives: C.
        count: rays a step. As each ray has a fixed place, at least 2.
        order: the order of the lattice. None: ``count - 1`` for two objectives, so that every step has all rays; for
            more, the highest with no more than 100 points (12 for three), but at least 2 and as many as ``count``.

    Example:
        >>> sampler = DeterministicAnnealing(2, count=3)
        >>> sampler(0.0)
        tensor([[0.5000, 0.5000],
                [0.5000, 0.5000],
                [0.5000, 0.5000]])
        >>> sampler(1.0).round(decimals=2)
        tensor([[0.0000, 1.0000],
                [0.5000, 0.5000],
                [1.0000, 0.0000]])
    """

    def __init__(self, n_objectives: int, count: int = 2, order: int | None = None) -> None:
        super().__init__(n_objectives, check_count("count", count, 2))
        self.order = self._default_order() if order is None else check_count("order", order, 1)
        size = lattice_size(n_objectives, self.order)
        if size < count:
            raise ValueError(f"the lattice of order {self.order} has {size} points, count must not exceed it: {count}")
        self.points = 0.98 * grid(n_objectives, self.order).flip(0) + 0.02 / n_objectives  # from (0.01, 0.99) on
        self.visits = _visits(self.points, count)
        self.position = 0

    def _default_order(self) -> int:
        if self.n_objectives == 2:
            return self.count - 1
        order = 2
        while lattice_size(self.n_objectives, order) < self.count or lattice_size(self.n_objectives, order + 1) <= 100:
            order += 1
        return order

    def draw(self, progress: float) -> Tensor:
        size = len(self.points)
        places = sorted(self.visits[(self.position + k) % size] for k in range(self.count))
        self.position = (self.position + self.count) % size
        return (self.points[places].log() * (5 * progress)).softmax(dim=1)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "order": self.order, "position": self.position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state["order"] != self.order:
            raise ValueError(f"the state is that of a sampler with order={state['order']}, this one has {self.order}")
        super().load_state_dict(state)
        self.position = int(state["position"])


def _visits(points: Tensor, count: int) -> list[int]:
    """An order of all points in which each run of ``count`` lies far apart: the farthest from those before it, next.

    A run starts N times the golden ratio, about, after the last one.
    """
    n = len(points)
    stride = next(s for s in counting(max(1, round(0.618 * n))) if math.gcd(s, n) == 1)
    waiting = [k * stride % n for k in range(n)]
    order: list[int] = []
    for _ in range(0, n, count):
        run = [waiting.pop(0)]
        while len(run) < count and waiting:
            nearest = torch.cdist(points[waiting], points[run]).amin(dim=1)
            run.append(waiting.pop(int(nearest.argmax())))
        order += run
    return order


class FixedRays(Sampler):
    """The rays given, each once before any comes again.

    Args:
        rays: [N, C], not negative; each is divided by its sum.
        count: rays a step.
        shuffle: a new order in each pass; else the order given.
        seed: seed of the generator.

    Example:
        >>> sampler = FixedRays([[1, 0], [0.5, 0.5], [0, 1]], shuffle=False)
        >>> [sampler(0.0).tolist() for _ in range(4)]
        [[[1.0, 0.0]], [[0.5, 0.5]], [[0.0, 1.0]], [[1.0, 0.0]]]
    """

    def __init__(
        self, rays: Sequence[Sequence[float]] | Tensor, count: int = 1, shuffle: bool = True, seed: int = 0
    ) -> None:
        self.rays = normalise(check_preferences("rays", rays))
        super().__init__(self.rays.shape[1], count, seed)
        self.shuffle = shuffle
        self.remaining: list[int] = []

    def draw(self, progress: float) -> Tensor:
        while len(self.remaining) < self.count:
            n = len(self.rays)
            order = torch.randperm(n, generator=self.generator, device="cpu").tolist() if self.shuffle else range(n)
            self.remaining += order
        now, self.remaining = self.remaining[: self.count], self.remaining[self.count :]
        return self.rays[now]

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "remaining": list(self.remaining)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if any(k >= len(self.rays) for k in state["remaining"]):
            raise ValueError(f"the state is that of a sampler with more than the {len(self.rays)} rays of this one")
        super().load_state_dict(state)
        self.remaining = list(state["remaining"])
