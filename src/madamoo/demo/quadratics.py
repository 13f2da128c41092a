"""The demo's runs on the paper's two tilted quadratics: under a preference that switches, and under fixed ones.

The quadratics and the optimizers on them are those of :mod:`madamoo.figures.experiments`. There is no noise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from madamoo.figures.experiments import KINDS, SILENT, STARTS, A, Array, B, Preference, descend, optimum, switching

FIXED: tuple[Preference, ...] = (A, (0.5, 0.5), B)

# The optima of the two preferences are 1.4 apart: Adam's full steps cover that in 70 steps, and a phase of 200 leaves
# time to settle. The decays are the defaults, so the averages remember several phases; that memory is the point.
LR = 0.02


@dataclass(frozen=True)
class SwitchingRun:
    """A run through all phases: where it went, and how far above the best scalarised loss it was after each step."""

    contender: str
    path: Array  # [step + 1, 2]
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
class FixedRun:
    """Runs under one preference, one from each start."""

    contender: str
    preference: Preference
    paths: Array  # [start, step + 1, 2]

    @property
    def distances(self) -> Array:
        """Distance to the optimum after each step, averaged over the starts."""
        return np.asarray(np.linalg.norm(self.paths - optimum(self.preference), axis=2).mean(axis=0))


def run_switching(contender: str, steps: int) -> SwitchingRun:
    """Six phases of ``steps`` steps that alternate between two preferences."""
    runs = switching([contender], steps, rates=(LR,), kinds=KINDS[:1])
    return SwitchingRun(contender, runs.paths[contender][0, :, 0], runs.gaps(contender, SILENT)[0, :, 1:, 0])


def run_fixed(contender: str, preference: Preference, steps: int) -> FixedRun:
    paths = descend(contender, STARTS, [preference] * steps, rates=(LR,))[0]
    return FixedRun(contender, preference, paths.swapaxes(0, 1))
