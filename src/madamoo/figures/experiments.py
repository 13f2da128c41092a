"""The runs behind the figures: real optimizers on the paper's two tilted quadratics, many runs at a time.

The quadratics have the same curvatures and differ only in their stiff directions, so that the curvature of
lambda_1 f_1 + lambda_2 f_2 turns with the preference lambda.

Adam acts on each coordinate by itself, and so does the metric where there is no ramp-up: the points of many runs can be
rows of one tensor, and learning rates are parameter groups. Every row goes exactly where it would go alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from madamoo import MultiObjective, PreferenceMetric, solvers
from madamoo.pareto import TiltedQuadratics
from madamoo.presentation import style
from madamoo.presentation.style import ADAM, CONTROL, MADAM

Array = NDArray[np.float64]
Preference = tuple[float, float]

PROBLEM = TiltedQuadratics()
A: Preference = (0.9, 0.1)
B: Preference = (0.1, 0.9)

# The paper gives the problem, not the rate, the number of steps, the starts or the noise: these are ours. The optima of
# A and B are 1.39 apart, so that Adam's full steps of 0.01 cover the way in 139 of a phase's 250 steps.
RATE = 0.01
RATES = tuple(10 ** (k / 4) for k in range(-12, -1))  # 0.001 to 0.32, RATE among them
COARSE = RATES[::2]
STEPS = 250
SHORT = 100  # the other length of a phase that is tried
PHASES: tuple[Preference, ...] = (A, B) * 3
START = (0.0, 2.5)
STARTS = ((-2.0, -1.0), (2.0, -1.0), (0.0, 2.5))
FIXED: tuple[Preference, ...] = ((0.9, 0.1), (0.5, 0.5), (0.3, 0.7))
# Where the signs are shown: the start and the rate at which they come nearest to what the paper's caption says.
SIGN_START = (1.0, -2.5)
SIGN_RATE = COARSE[1]

# The standard deviation of the noise on the gradients of both objectives. Gradients are of size 1 to 4 on the way.
SILENT, EVEN, UNEVEN = "none", "equal", "unequal"
NOISE: dict[str, tuple[float, float]] = {SILENT: (0.0, 0.0), EVEN: (0.3, 0.3), UNEVEN: (3.0, 0.03)}
SEEDS = 4  # runs of a noisy kind; without noise there is one
KINDS = [NOISE[SILENT], *[NOISE[EVEN]] * SEEDS, *[NOISE[UNEVEN]] * SEEDS]  # of the runs through the phases

PAPER = "MAdam, the paper's plain form"
RAMPED = "MAdam, default ramp-up"
ADAM_STILL = "Adam without momentum"
EXACT = "M⁻¹d without Adam (eq. 11)"

EUCLIDEAN, ADAMS, CONDITIONED = (style.METRICS[key] for key in ("euclidean", "adam", "preference"))
EXECUTED = "MAdam's own run"
EUCLIDEAN_THERE = "Euclidean in MAdam's own run"


@dataclass(frozen=True)
class Variant:
    """An optimizer in one of its forms, to be built for parameter groups that have their rates."""

    contender: str
    metric: dict[str, Any] = field(default_factory=dict)
    momentum: float = 0.9
    alone: bool = False  # whether a run needs a tensor of its own, because its metric looks at the whole tensor

    def build(self, groups: list[dict[str, Any]]) -> MultiObjective:
        solver = solvers.Preference()
        if self.contender == EXACT:
            return MultiObjective(torch.optim.SGD(groups), solver, PreferenceMetric(**self.metric))
        options = {"estimator": "marginal"} if self.contender == CONTROL else {}
        metric = None if self.contender == ADAM else PreferenceMetric(**{**options, **self.metric})
        # AdamW without decay is Adam; its own default is not zero.
        adam = torch.optim.AdamW(groups, betas=(self.momentum, 0.999), weight_decay=0.0, fused=True)
        return MultiObjective(adam, solver, metric)


# With bias correction the averages are right from the first step on; a ramp-up only delays the comparison.
AT_ONCE = {"rampup": 0}
FULL = {"estimator": "full"}
PLAIN = {**FULL, "eps": 1e-8, "ramp": "paper", "bias_correction": False, "floor": False}
VARIANTS: dict[str, Variant] = {
    ADAM: Variant(ADAM),
    CONTROL: Variant(CONTROL, AT_ONCE),
    MADAM: Variant(MADAM, {**FULL, **AT_ONCE}),
    PAPER: Variant(MADAM, PLAIN),
    RAMPED: Variant(MADAM, FULL, alone=True),
    ADAM_STILL: Variant(ADAM, momentum=0.0),
    EXACT: Variant(EXACT, {**FULL, **AT_ONCE}),
}


def optimum(preference: Preference) -> Array:
    """x*(lambda)."""
    return np.asarray(PROBLEM.solution(preference).numpy())


def gap(x: Array, preference: Preference) -> Array:
    """l_lambda(x) - l_lambda(x*) [...] at x [..., 2], as the quadratic form that it is: no cancellation."""
    away = x - optimum(preference)
    return np.asarray(0.5 * np.einsum("...i,k,kij,...j->...", away, preference, PROBLEM.hessians.numpy(), away))


def gradients(x: Array) -> Array:
    """g_i(x) [..., objective, 2] without noise."""
    away = x[..., None, :] - PROBLEM.centres.numpy()
    return np.asarray(np.einsum("kij,...kj->...ki", PROBLEM.hessians.numpy(), away))


def alternating(steps: int) -> list[Preference]:
    """The preference of every step of six phases."""
    return [preference for preference in PHASES for _ in range(steps)]


def descend(
    variant: str,
    starts: Sequence[Sequence[float]],
    schedule: Sequence[Preference],
    *,
    rates: Sequence[float] = COARSE,
    noise: Sequence[Sequence[float]] | None = None,
    seed: int = 0,
) -> Array:
    """Where the runs were [rate, step, run, 2], beginning with their starts.

    Args:
        variant: one of :data:`VARIANTS`.
        starts: one per run, [run, 2].
        schedule: the preference of each step.
        noise: the standard deviation of the noise on every run's two gradients, [run, 2]; None for none.
        seed: of the noise, which is the same for all rates and variants.
    """
    points = _Points(variant, starts, rates)
    spread = None if noise is None else torch.tensor(noise, dtype=torch.float64)
    path = [points.now()]
    for preference, shift in zip(schedule, _noise(spread, len(schedule), seed), strict=True):
        points.step(preference, shift)
        path.append(points.now())
    return np.stack(path, axis=1)


def _noise(spread: Tensor | None, steps: int, seed: int) -> Iterator[Tensor | None]:
    """What is added to the gradients [run, objective, 2] in each step."""
    draw = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        if spread is None:
            yield None
        else:
            yield torch.randn(len(spread), 2, 2, generator=draw, dtype=torch.float64) * spread[:, :, None]


class _Points:
    """The points of all runs at all rates, and the optimizer that moves them."""

    def __init__(self, variant: str, starts: Sequence[Sequence[float]], rates: Sequence[float]) -> None:
        chosen = VARIANTS[variant]
        rows = torch.tensor(starts, dtype=torch.float64)
        tensors = list(rows.split(1)) if chosen.alone else [rows]
        self.params = [[nn.Parameter(t.clone()) for t in tensors] for _ in rates]
        self.groups = [{"params": p, "lr": rate} for p, rate in zip(self.params, rates, strict=True)]
        self.opt = chosen.build(self.groups)

    def now(self) -> Array:
        return self._stacked().detach().numpy().copy()

    def step(self, preference: Preference, shift: Tensor | None = None) -> None:
        self.backward(preference, shift)
        self.opt.step()

    def backward(self, preference: Preference, shift: Tensor | None = None) -> None:
        x = self._stacked()
        losses = PROBLEM.losses(x).sum(dim=(0, 1))
        if shift is not None:  # a linear term is noise on the gradient
            losses = losses + torch.einsum("nkj,rnj->k", shift, x)
        self.opt.zero_grad()
        self.opt.backward(losses, preference=preference)

    def given(self) -> Array:
        """What the inner optimizer was given by the last ``backward``: d, or d / M."""
        grads = [torch.cat([_there(p.grad) for p in params]) for params in self.params]
        return np.asarray(torch.stack(grads).numpy().copy())

    def scale(self) -> Array:
        """sqrt(v) + eps of the inner Adam after its last step, with its bias correction."""
        roots = []
        for params, group in zip(self.params, self.opt.param_groups, strict=True):
            states = [self.opt.state[p] for p in params]
            v = torch.cat([s["exp_avg_sq"] / (1 - group["betas"][1] ** float(s["step"])) for s in states])
            roots.append(v.sqrt() + group["eps"])
        return np.asarray(torch.stack(roots).numpy())

    def place(self, x: Array) -> None:
        """Move the points to x [rate, run, 2]."""
        with torch.no_grad():
            for params, rows in zip(self.params, torch.from_numpy(x), strict=True):
                for param, row in zip(params, rows.split([len(p) for p in params]), strict=True):
                    param.copy_(row)

    def _stacked(self) -> Tensor:
        return torch.stack([params[0] if len(params) == 1 else torch.cat(list(params)) for params in self.params])


def _there(grad: Tensor | None) -> Tensor:
    assert grad is not None
    return grad


def signed_effects(
    starts: Sequence[Sequence[float]], schedule: Sequence[Preference], rates: Sequence[float] = COARSE
) -> dict[str, Array]:
    """How a step changes each objective: the cosine of g_i and M^-1 d, by metric, [rate, step, run, objective].

    Positive: the objective falls. The length of M^-1 d is the learning rate's business, so that only cosines compare.
    M is the identity, Adam's sqrt(v) and M_lambda at the same points, those of an Adam run; and, for
    :data:`EXECUTED`, M_lambda and the sqrt(v) of the Adam behind it in a run of MAdam itself.
    """
    adam, madam = _Points(ADAM, starts, rates), _Points(MADAM, starts, rates)
    # M_lambda along Adam's run: an optimizer that is put where Adam is and does not move.
    observer = _Points(EXACT, starts, [0.0] * len(rates))
    cosines: dict[str, list[Array]] = {name: [] for name in (EUCLIDEAN, ADAMS, CONDITIONED, EXECUTED, EUCLIDEAN_THERE)}
    for preference in schedule:
        x, own = adam.now(), madam.now()
        observer.place(x)
        for points in (adam, observer, madam):
            points.step(preference)
        g, d = gradients(x), adam.given()
        cosines[EUCLIDEAN].append(_cosines(g, d))
        cosines[ADAMS].append(_cosines(g, d / adam.scale()))
        cosines[CONDITIONED].append(_cosines(g, observer.given()))
        g = gradients(own)
        cosines[EXECUTED].append(_cosines(g, madam.given() / madam.scale()))
        cosines[EUCLIDEAN_THERE].append(_cosines(g, np.einsum("i,...ij->...j", preference, g)))
    return {name: np.stack(values, axis=1) for name, values in cosines.items()}


def _cosines(g: Array, s: Array) -> Array:
    """Of the rows of g [..., objective, 2] with s [..., 2]; zero where one of them is zero."""
    lengths = np.linalg.norm(g, axis=-1) * np.linalg.norm(s, axis=-1)[..., None]
    products = np.einsum("...ij,...j->...i", g, s)
    return np.asarray(np.divide(products, lengths, out=np.zeros_like(products), where=lengths > 0))


@dataclass(frozen=True)
class Switching:
    """Runs through the six phases with every noise: paths [rate, step, run, 2] by variant."""

    steps: int
    rates: tuple[float, ...]
    paths: dict[str, Array]

    def runs(self, noise: str) -> slice:
        """The runs with this noise."""
        first = {SILENT: 0, EVEN: 1, UNEVEN: 1 + SEEDS}[noise]
        return slice(first, first + (1 if noise == SILENT else SEEDS))

    def gaps(self, variant: str, noise: str) -> Array:
        """Of the active preference, [rate, phase, step, run]; a phase begins where the one before it ended."""
        path = self.paths[variant][:, :, self.runs(noise)]
        phases = [
            gap(path[:, k * self.steps : (k + 1) * self.steps + 1], preference) for k, preference in enumerate(PHASES)
        ]
        return np.stack(phases, axis=1)

    def seen(self, variant: str, rate: int) -> Array:
        """The gradients that the optimizer was given, their noise included, [step, run, objective, 2]."""
        g = gradients(self.paths[variant][rate, :-1])
        added = _noise(torch.tensor(KINDS, dtype=torch.float64), len(g), 0)
        return g + np.stack([shift.numpy() for shift in added if shift is not None])

    def distances(self, variant: str, noise: str) -> Array:
        """To the optimum of B from the first switch on, [rate, step, run], the switch itself first."""
        path = self.paths[variant][:, self.steps : 2 * self.steps + 1, self.runs(noise)]
        return np.asarray(np.linalg.norm(path - optimum(B), axis=-1))


def switching(
    variants: Sequence[str],
    steps: int = STEPS,
    rates: Sequence[float] = COARSE,
    kinds: Sequence[tuple[float, float]] = KINDS,
) -> Switching:
    """The six phases, for each of the variants at each of the rates, with the noises of :data:`KINDS` or the first."""
    starts = [START] * len(kinds)
    paths = {v: descend(v, starts, alternating(steps), rates=rates, noise=kinds) for v in variants}
    return Switching(steps, tuple(rates), paths)


def fixed(variants: Sequence[str]) -> dict[Preference, dict[str, Array]]:
    """Paths [rate, step, start, 2] under preferences that stay, without noise."""
    return {preference: {v: descend(v, STARTS, [preference] * STEPS) for v in variants} for preference in FIXED}


def census_starts(count: int = 13, reach: float = 3.0) -> list[tuple[float, float]]:
    """A square grid of starts around both optima."""
    ticks = np.linspace(-reach, reach, count).tolist()
    return [(x, y) for x in ticks for y in ticks]
