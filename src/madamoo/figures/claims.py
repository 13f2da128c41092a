"""What the captions of the paper claim, as numbers: each claim a function of the runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from madamoo.presentation.style import vector

from .experiments import (
    ADAM,
    ADAM_STILL,
    ADAMS,
    COARSE,
    CONDITIONED,
    CONTROL,
    EUCLIDEAN,
    EUCLIDEAN_THERE,
    EXACT,
    EXECUTED,
    FIXED,
    MADAM,
    NOISE,
    PAPER,
    PHASES,
    PROBLEM,
    RAMPED,
    RATE,
    RATES,
    SHORT,
    SIGN_RATE,
    SIGN_START,
    STEPS,
    A,
    Array,
    B,
    Preference,
    Switching,
    census_starts,
    fixed,
    gradients,
    optimum,
    signed_effects,
    switching,
)

Numbers = dict[str, Any]

COMPARED = (ADAM, CONTROL, MADAM)
AFTER = (0, 50, 100, STEPS)  # steps after a switch
SHOWN = (25, 50, 100, STEPS)  # steps under a fixed preference
SEVERAL = 100.0  # "several orders of magnitude": two at least
ARRIVED = 1e-12  # a gap below it counts as this: the last digits of float64 are not compared
NOTABLE = 0.01  # an objective is said to be flipped in a run if it is in more than this share of the steps

STALLS = "Adam has not, and MAdam is at less than half of its distance"
HIGHER = "Adam's gap at the ends is 100 times MAdam's"


@dataclass(frozen=True)
class Phases:
    """Runs through the six phases: figure 2 and the left of figure 1 are made of them."""

    main: Switching  # Adam, the control and MAdam, at all rates
    short: Switching  # the same in short phases
    others: Switching  # other forms of the optimizers, from the figure's rate up
    ramped: Switching  # MAdam with its ramp-up, at the figure's rate only

    @classmethod
    def measured(cls) -> Phases:
        return cls(
            main=switching(COMPARED, rates=RATES),
            short=switching(COMPARED, steps=SHORT),
            others=switching((PAPER, ADAM_STILL, EXACT), rates=COARSE[2:]),
            ramped=switching((RAMPED,), rates=(RATE,)),
        )

    @property
    def long(self) -> tuple[Switching, ...]:
        return self.main, self.ramped, self.others


@dataclass(frozen=True)
class Signs:
    """The signed effects from many starts, through one switch: the right of figure 1."""

    starts: list[tuple[float, float]]
    effects: dict[str, Array]  # by metric, [rate, step, run, objective]; the rates are COARSE

    @classmethod
    def measured(cls) -> Signs:
        starts = census_starts()
        return cls(starts, signed_effects(starts, [A] * STEPS + [B] * STEPS))

    def shown(self, metric: str) -> Array:
        """The cosines [step, objective] of the run in the figure."""
        return np.asarray(self.effects[metric][at(COARSE, SIGN_RATE), :, self.starts.index(SIGN_START)])


Trajectories = dict[Preference, dict[str, Array]]


def trajectories() -> Trajectories:
    """Paths under fixed preferences: figure 3."""
    return fixed((ADAM, MADAM, PAPER))


def at(rates: Sequence[float], rate: float) -> int:
    """The place of a rate."""
    return int(np.argmin(np.abs(np.log(np.asarray(rates) / rate))))


def how_often(held: Any) -> list[int]:
    """How often something held, and of how many."""
    held = np.asarray(held)
    return [int(held.sum()), int(held.size)]


def geometric(values: Array, axis: Any = None) -> Array:
    return np.asarray(np.exp(np.log(np.maximum(values, ARRIVED)).mean(axis=axis)))


# --- figure 1, left: does Adam stall near the old optimum? ------------------------------------------------------------


def switch_distances(phases: Phases, noise: str) -> Numbers:
    """The distance to the new optimum so many steps after the first switch, mean over the noise; at :data:`RATE`."""
    found: Numbers = {}
    for runs in phases.long:
        k = at(runs.rates, RATE)
        for variant in runs.paths:
            found[variant] = [float(runs.distances(variant, noise)[k, step].mean()) for step in AFTER]
    return found


def switch_shares(phases: Phases, noise: str) -> Numbers:
    """At how many of the rates it holds at the end of the phase after the first switch."""
    runs = phases.main
    ends = {v: runs.distances(v, noise)[:, -1].mean(axis=-1) for v in COMPARED}
    stalled = ends[ADAM] > runs.distances(ADAM, noise)[:, 0].mean(axis=-1) / 2
    return {
        "Adam has not gone half of the way": how_often(stalled),
        STALLS: how_often(stalled & (ends[MADAM] < ends[ADAM] / 2)),
        "MAdam is nearer than Adam": how_often(ends[MADAM] < ends[ADAM]),
        "MAdam is nearer than the control": how_often(ends[MADAM] < ends[CONTROL]),
    }


def switch_moments(phases: Phases, noise: str) -> Numbers:
    """What Adam remembers at a switch, and what it should: |d| after it, the roots of v and of the conditioned C.

    All in a run of Adam at the figure's rate; the root of the mean square over coordinates, runs and the switches to a
    preference. Adam's first step after a switch is |d| over the root of v, in units of the learning rate.
    """
    runs, beta = phases.main, 0.999
    k, chosen = at(runs.rates, RATE), phases.main.runs(noise)
    g = runs.seen(ADAM, k)[:, chosen]  # [step, run, objective, 2]
    d = np.einsum("ti,tnij->tnj", [p for p in PHASES for _ in range(runs.steps)], g)
    found: Numbers = {}
    for name, preference, switches in (("A", A, (2, 4)), ("B", B, (1, 3, 5))):
        squares = []
        for switch in switches:
            end = switch * runs.steps
            weights = beta ** np.arange(end - 1, -1, -1)
            weights /= weights.sum()
            here = np.einsum("i,nij->nj", preference, gradients(runs.paths[ADAM][k, end, chosen]))
            v = np.einsum("t,tnj->nj", weights, d[:end] ** 2)
            C = np.einsum("t,tnj->nj", weights, np.einsum("i,tnij->tnj", preference, g[:end]) ** 2)
            squares.append([(here**2).mean(), v.mean(), C.mean()])
        found[name] = np.sqrt(np.mean(squares, axis=0)).tolist()
    return found


# --- figure 1, right: which objectives does a step raise? -------------------------------------------------------------


def flipped(effects: dict[str, Array], metric: str) -> Any:
    """Where a step raises an objective that the Euclidean step would lower."""
    reference = effects[EUCLIDEAN_THERE if metric == EXECUTED else EUCLIDEAN]
    return (effects[metric] < 0) & (reference > 0)


def sign_numbers(signs: Signs) -> Numbers:
    """In the run of the figure, by objective: the share of steps that raise it, that flip it, and the lowest cosine."""
    run, rate = signs.starts.index(SIGN_START), at(COARSE, SIGN_RATE)
    found: Numbers = {}
    for metric in (EUCLIDEAN, ADAMS, CONDITIONED, EXECUTED):
        here = signs.shown(metric)
        found[metric] = {
            "raised": (here < 0).mean(axis=0).tolist(),
            "flipped": flipped(signs.effects, metric)[rate, :, run].mean(axis=0).tolist(),
            "lowest": here.min(axis=0).tolist(),
        }
    return found


def sign_census(signs: Signs) -> Numbers:
    """The same over all starts and rates; a case is an objective in a run."""
    effects = signs.effects
    shares = {m: flipped(effects, m).mean(axis=1) for m in (ADAMS, CONDITIONED, EXECUTED)}  # [rate, run, objective]
    by_adam = shares[ADAMS] > NOTABLE
    found: Numbers = {
        "runs": int(shares[ADAMS][..., 0].size),
        "runs in which the Euclidean effect is never negative": how_often(~(effects[EUCLIDEAN] < 0).any(axis=(1, 3))),
        "flipped by Adam": how_often(by_adam),
    }
    for metric in (EUCLIDEAN, ADAMS, CONDITIONED):
        found[f"steps that raise an objective, {metric}"] = float((effects[metric] < 0).mean())
    for metric in (CONDITIONED, EXECUTED):
        mine = shares[metric] > NOTABLE
        found[metric] = {
            "flipped": how_often(mine),
            "half as often as Adam, of what Adam flips": how_often((shares[metric] <= shares[ADAMS] / 2)[by_adam]),
            "twice as often as Adam, of what it flips": how_often((shares[metric] >= 2 * shares[ADAMS])[mine]),
        }
    found["flipped steps"] = {m: float(s.mean()) for m, s in shares.items()}
    return found


def first_objective(preference: Preference) -> float:
    """f_1 at the optimum of a preference. From A's to B's it rises: on every way there some step has to raise it."""
    return float(PROBLEM.losses(PROBLEM.solution(preference))[0])


# --- figure 2: does Adam's gap stay orders of magnitude higher? -------------------------------------------------------


def phase_gaps(phases: Phases, noise: str) -> Numbers:
    """The gap one step into each phase and at its end, at the figure's rate; mean over the noise."""
    found: Numbers = {}
    for runs in phases.long:
        k = at(runs.rates, RATE)
        for variant in runs.paths:
            gaps = runs.gaps(variant, noise)[k].mean(axis=-1)  # [phase, step]
            found[variant] = {"begin": gaps[:, 1].tolist(), "end": gaps[:, -1].tolist()}
    return found


def ends(runs: Switching, variant: str, noise: str, phases: slice = slice(1, None)) -> Array:
    """The gap at the end of the phases that follow a switch, by rate: a geometric mean."""
    return geometric(runs.gaps(variant, noise)[:, phases, -1], axis=(1, 2))


def means(runs: Switching, variant: str, noise: str) -> Array:
    """The mean gap over all steps that follow a switch, by rate."""
    return np.asarray(runs.gaps(variant, noise)[:, 1:, 1:].mean(axis=(1, 2, 3)))


def phase_shares(phases: Phases, noise: str) -> Numbers:
    """At how many of the rates and lengths of a phase it holds."""

    def over(claim: Callable[[Switching], Any]) -> list[int]:
        return how_often(np.concatenate([claim(runs) for runs in (phases.main, phases.short)]))

    def ratio(runs: Switching, above: str, below: str, which: slice = slice(1, None)) -> Array:
        return ends(runs, above, noise, which) / ends(runs, below, noise, which)

    def mean_ratio(runs: Switching, above: str, below: str) -> Array:
        return means(runs, above, noise) / means(runs, below, noise)

    under_b = slice(1, None, 2)
    return {
        HIGHER: over(lambda r: ratio(r, ADAM, MADAM) >= SEVERAL),
        "it is 10 times MAdam's": over(lambda r: ratio(r, ADAM, MADAM) >= 10),
        "it is 10 times MAdam's in the phases of B": over(lambda r: ratio(r, ADAM, MADAM, under_b) >= 10),
        "MAdam's gap at the ends is 10 times Adam's": over(lambda r: ratio(r, MADAM, ADAM) >= 10),
        "MAdam's gap at the ends is lower than Adam's": over(lambda r: ratio(r, ADAM, MADAM) > 1),
        "it is lower than the control's": over(lambda r: ratio(r, CONTROL, MADAM) > 1),
        "MAdam's mean gap is lower than Adam's": over(lambda r: mean_ratio(r, ADAM, MADAM) > 1),
        "it is lower than the control's mean gap": over(lambda r: mean_ratio(r, CONTROL, MADAM) > 1),
    }


def largest_ratio(phases: Phases, noise: str) -> Numbers:
    """Where Adam's gap at the ends of long phases is the largest multiple of MAdam's, and who shares in that."""
    by_variant = {v: ends(phases.main, v, noise) for v in COMPARED}
    k = int((by_variant[ADAM] / by_variant[MADAM]).argmax())
    return {"rate": RATES[k], **{v: float(gaps[k]) for v, gaps in by_variant.items()}}


def best_rates(phases: Phases, noise: str) -> Numbers:
    """Each at the rate with its lowest mean gap: that rate, the mean gap, and the gap at the ends."""
    found: Numbers = {}
    for runs in (phases.main, phases.others):
        for variant in runs.paths:
            mean = means(runs, variant, noise)
            k = int(mean.argmin())
            found[variant] = {
                "rate": runs.rates[k],
                "mean": float(mean[k]),
                "end": float(ends(runs, variant, noise)[k]),
            }
    return found


# --- figure 3: who is nearer under a preference that stays? -----------------------------------------------------------


def trajectory_numbers(paths: Trajectories) -> Numbers:
    """d_A and d_M after so many steps, mean over the starts; how often d_M is the smaller; each at its best rate."""
    distances = {
        v: np.stack([np.linalg.norm(paths[p][v] - optimum(p), axis=-1).mean(axis=-1) for p in FIXED])
        for v in (ADAM, MADAM, PAPER)
    }  # [preference, rate, step]
    k, shown = at(COARSE, RATE), list(SHOWN)
    last = {v: d[:, :, -1].mean(axis=0) for v, d in distances.items()}
    nearer = distances[MADAM][:, :, shown] < distances[ADAM][:, :, shown]
    return {
        "distances": {
            vector(p): {v: d[j, k, shown].tolist() for v, d in distances.items()} for j, p in enumerate(FIXED)
        },
        "MAdam is nearer": how_often(nearer),
        "MAdam is nearer, by rate": {f"{rate:.2g}": how_often(nearer[:, j]) for j, rate in enumerate(COARSE)},
        "the paper's plain form is nearer": how_often(distances[PAPER][:, :, shown] < distances[ADAM][:, :, shown]),
        "path difference": path_difference(paths),
        "best rate": {v: {"rate": COARSE[int(e.argmin())], "distance": float(e.min())} for v, e in last.items()},
    }


def path_difference(paths: Trajectories) -> float:
    """How far Adam's paths lie from MAdam's at the most, at the figure's rate: do they take different ways?"""
    k = at(COARSE, RATE)
    widest = 0.0
    for by_variant in paths.values():
        adam, madam = (by_variant[v][k].swapaxes(0, 1) for v in (ADAM, MADAM))  # [start, step, 2]
        apart = np.linalg.norm(adam[:, :, None] - madam[:, None], axis=-1)
        widest = max(widest, float(apart.min(axis=2).max()))
    return widest


# --- all numbers of a figure, rounded for a file ----------------------------------------------------------------------


def mismatch_numbers(phases: Phases, signs: Signs) -> Numbers:
    by_noise: dict[str, Callable[[Phases, str], Numbers]] = {
        "distances": switch_distances,
        "shares": switch_shares,
        "moments": switch_moments,
    }
    return rounded(
        {
            **{name: {noise: f(phases, noise) for noise in NOISE} for name, f in by_noise.items()},
            "signs": sign_numbers(signs),
            "census": sign_census(signs),
            "first objective": {"A": first_objective(A), "B": first_objective(B)},
        }
    )


def phases_numbers(phases: Phases) -> Numbers:
    by_noise: dict[str, Callable[[Phases, str], Numbers]] = {
        "gaps": phase_gaps,
        "shares": phase_shares,
        "largest ratio": largest_ratio,
        "best rates": best_rates,
    }
    return rounded({name: {noise: f(phases, noise) for noise in NOISE} for name, f in by_noise.items()})


def rounded(value: Any, digits: int = 4) -> Any:
    """Floats to so many significant digits, everywhere in nested lists and dictionaries."""
    if isinstance(value, dict):
        return {key: rounded(entry, digits) for key, entry in value.items()}
    if isinstance(value, list):
        return [rounded(entry, digits) for entry in value]
    return float(f"{value:.{digits - 1}e}") if isinstance(value, float) else value
