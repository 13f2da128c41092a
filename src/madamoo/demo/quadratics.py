"""The paper's two tilted quadratics: Adam and MAdam under a preference that switches, and under fixed ones.

f_i(x) = (x - c_i)' H_i (x - c_i) / 2: both Hessians have the same eigenvalues, only their stiff directions differ, so
that the curvature of lambda_1 f_1 + lambda_2 f_2 turns with the preference lambda. There is no noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from madamoo import MultiObjective, solvers
from madamoo.pareto import TiltedQuadratics

from .contenders import build

Array = NDArray[np.float64]
Preference = tuple[float, float]

PROBLEM = TiltedQuadratics()

PHASES: tuple[Preference, ...] = ((0.9, 0.1), (0.1, 0.9)) * 3
FIXED: tuple[Preference, ...] = ((0.9, 0.1), (0.5, 0.5), (0.1, 0.9))
START = (0.0, 2.5)
STARTS = ((-2.0, -1.0), (2.0, -1.0), (0.0, 2.5))

# The optima of the two preferences are 1.4 apart: Adam's full steps cover that in 70 steps, and a phase of 200 leaves
# time to settle. The decays are the defaults, so the averages remember several phases; that memory is the point.
LR = 0.02
# A ramp-up waits for noisy averages to settle. Here nothing is noisy, and with bias correction the first average is
# exact: MAdam can be itself from the first step on.
RAMPUP = 0


@dataclass(frozen=True)
class Switching:
    """A run through all phases: where it went, and how far above the best scalarised loss it was after each step."""

    contender: str
    path: Array  # [phase, step + 1, 2]; a phase begins where the last one ended
    gaps: Array  # [phase, step]

    @property
    def phase_means(self) -> list[float]:
        return [float(g) for g in self.gaps.mean(axis=1)]

    @property
    def phase_ends(self) -> list[float]:
        return [float(g) for g in self.gaps[:, -1]]

    @property
    def mean_after_switches(self) -> float:
        """Over all phases but the first, which no switch precedes."""
        return float(self.gaps[1:].mean())

    @property
    def end_after_switches(self) -> float:
        return float(self.gaps[1:, -1].mean())


@dataclass(frozen=True)
class Fixed:
    """Runs under one preference, one from each start."""

    contender: str
    preference: Preference
    paths: Array  # [start, step + 1, 2]

    @property
    def distances(self) -> Array:
        """Distance to the optimum after each step, averaged over the starts."""
        target = optimum(self.preference).numpy()
        return np.asarray(np.linalg.norm(self.paths - target, axis=2).mean(axis=0))


def objectives(x: Tensor) -> Tensor:
    """f_1 and f_2 at x."""
    return torch.stack([0.5 * (x - c) @ H @ (x - c) for H, c in zip(PROBLEM.hessians, PROBLEM.centres, strict=True)])


def optimum(preference: Preference) -> Tensor:
    """x*(lambda), where sum_i lambda_i H_i (x - c_i) = 0."""
    return PROBLEM.solution(preference)


def scalarised(x: Tensor, preference: Preference) -> float:
    return float(torch.tensor(preference, dtype=torch.float64) @ objectives(x))


def run_switching(contender: str, steps: int) -> Switching:
    """Six phases of ``steps`` steps that alternate between two preferences."""
    x, opt = _begin(contender, START)
    path = [_descend(x, opt, preference, steps) for preference in PHASES]
    gaps = [
        [scalarised(torch.from_numpy(point), preference) - scalarised(optimum(preference), preference) for point in p]
        for preference, p in zip(PHASES, (p[1:] for p in path), strict=True)
    ]
    return Switching(contender, np.array(path), np.array(gaps))


def run_fixed(contender: str, preference: Preference, steps: int) -> Fixed:
    paths = [_descend(*_begin(contender, start), preference, steps) for start in STARTS]
    return Fixed(contender, preference, np.array(paths))


def _begin(contender: str, start: Sequence[float]) -> tuple[nn.Parameter, MultiObjective]:
    x = nn.Parameter(torch.tensor(start, dtype=torch.float64))
    return x, build(contender, [x], lr=LR, solver=solvers.Preference(), rampup=RAMPUP)


def _descend(x: nn.Parameter, opt: MultiObjective, preference: Preference, steps: int) -> Array:
    """The points visited in ``steps`` steps, the first one included."""
    path = [x.detach().numpy().copy()]
    for _ in range(steps):
        opt.zero_grad()
        opt.backward(objectives(x), preference=preference)
        opt.step()
        path.append(x.detach().numpy().copy())
    return np.array(path)
