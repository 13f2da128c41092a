"""The numbers as Markdown tables, and the captions of the figures with every setting that the paper leaves open."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from madamoo.presentation.style import CONTROL_DEFINED, plus_minus
from madamoo.presentation.tables import Table, write_tables

from .claims import AFTER, COMPARED, HIGHER, SHOWN, STALLS, Numbers, geometric
from .experiments import (
    ADAM,
    ADAMS,
    COARSE,
    CONDITIONED,
    CONTROL,
    EUCLIDEAN,
    EVEN,
    EXECUTED,
    MADAM,
    NOISE,
    PAPER,
    PHASES,
    RATE,
    RATES,
    SEEDS,
    SHORT,
    SIGN_RATE,
    SIGN_START,
    START,
    STARTS,
    STEPS,
    UNEVEN,
    A,
    B,
)

_NOISE = (
    f"unequal noise: of standard deviation {NOISE[UNEVEN][0]:g} on every coordinate of the first gradient and "
    f"{NOISE[UNEVEN][1]:g} on the second"
)
_COMMON = (
    f"The paper's tilted quadratics; λ_A = {A}, λ_B = {B}; learning rate {RATE:g} for all; β = (0.9, 0.999); no "
    f"ramp-up. {CONTROL_DEFINED[0].upper()}{CONTROL_DEFINED[1:]}."
)
CAPTIONS = {
    "mismatch": (
        f"**One switch of the preference.** Paths from {START}: {STEPS} steps under λ_A (thin), then {STEPS} under λ_B "
        "(thick); rings: at the switch, dots: at the end. Shades: the loss after the switch, darker is lower. **a** "
        f"Without noise. **b** With {_NOISE}; one seed. **c** The signed effect of a step on each objective, as the "
        f"cosine of g_i and M⁻¹d, at the points of one run of Adam from {SIGN_START} at the rate {SIGN_RATE:.2g}, for "
        "the Euclidean metric, Adam's (Adam) and the preference-conditioned one (MAdam); below zero the step raises "
        "the objective. This start and this rate were chosen because they show what the paper describes. "
        f"{_COMMON}"
    ),
    "phases": (
        f"**Six phases of alternating preferences**, {STEPS} steps each, from {START}. Above: where Adam and MAdam "
        "went in each phase, without noise. Below: the loss above its minimum under the active preference, without "
        f"noise and with {_NOISE}; mean of {SEEDS} seeds. {_COMMON}"
    ),
    "trajectories": (
        f"**Fixed preferences.** Runs from {', '.join(map(str, STARTS))}, without noise; in each panel, the distance "
        "to the optimum for Adam (A) and MAdam (M), mean over the starts. The dashes of Adam lie on MAdam's line. "
        f"Under a preference that stays, MAdam is its control. {_COMMON}"
    ),
    "fronts": (
        "**Fronts on test data**, each optimizer at the learning rate that is best on validation data; mean over the "
        "seeds, ray by ray. HV: the hypervolume of this mean front."
    ),
}


def page(numbers: Numbers, files: dict[str, list[str]]) -> str:
    """All figures with captions and tables; ``files`` are the pictures of each figure."""
    parts = ["# The paper's figures\n", summary(numbers)]
    for name, caption in CAPTIONS.items():
        if name in numbers:
            pictures = [f"![{name}]({file})\n" for file in files.get(name, [])]
            parts += [f"## {name}\n", *pictures, f"{caption}\n", tables(name, numbers[name])]
    return "\n".join(parts)


def summary(numbers: Numbers) -> str:
    """What the captions claim, what was measured, and in how many settings it holds."""
    claims = {
        "mismatch": _mismatch_claims,
        "phases": _phases_claims,
        "trajectories": _trajectories_claims,
        "fronts": _fronts_claims,
    }
    rows = [row for name, made in claims.items() if name in numbers for row in made(numbers[name])]
    return _table("What the captions claim, and what was measured", ["figure", "claim", "measured", "holds in"], rows)


def _mismatch_claims(numbers: Numbers) -> Iterable[list[str]]:
    distances, shares, census, signs = (numbers[key] for key in ("distances", "shares", "census", "signs"))
    flipped, raised = census["flipped steps"], signs[ADAMS]["raised"][0]
    for noise in NOISE:
        yield [
            "1, left",
            f"after the switch Adam stalls, MAdam arrives (noise: {noise})",
            f"distance to the new optimum {STEPS} steps after: "
            + ", ".join(f"{v} {distances[noise][v][-1]:.2f}" for v in COMPARED),
            f"{_share(shares[noise][STALLS])} rates",
        ]
    yield [
        "1, right",
        "the Euclidean effect is non-negative for every task",
        f"negative in {100 * census[f'steps that raise an objective, {EUCLIDEAN}']:.0f} % of the steps",
        f"{_share(census['runs in which the Euclidean effect is never negative'])} runs",
    ]
    yield [
        "1, right",
        "Adam's metric turns an effect negative",
        f"in the figure's run objective 1 in {100 * raised:.0f} % of the steps, down to a cosine of "
        f"{signs[ADAMS]['lowest'][0]:.2f}; over all runs {100 * flipped[ADAMS]:.1f} % of the steps",
        f"{_share(census['flipped by Adam'])} cases",
    ]
    yield [
        "1, right",
        "MAdam's metric largely removes that",
        f"in the figure's run {100 * signs[CONDITIONED]['raised'][0]:.0f} %; over all runs "
        f"{100 * flipped[CONDITIONED]:.1f} % at the same points, {100 * flipped[EXECUTED]:.1f} % in MAdam's own runs",
        f"{_share(census[CONDITIONED]['half as often as Adam, of what Adam flips'])} of these cases",
    ]


def _phases_claims(numbers: Numbers) -> Iterable[list[str]]:
    gaps, shares = numbers["gaps"], numbers["shares"]
    for noise in NOISE:
        ends = {v: geometric(np.array(gaps[noise][v]["end"][1:])) for v in COMPARED}
        yield [
            "2",
            f"Adam's gap stays several orders of magnitude higher (noise: {noise})",
            "gap at the ends of phases 2 to 6: " + ", ".join(f"{v} {gap:.2g}" for v, gap in ends.items()),
            f"{_share(shares[noise][HIGHER])} settings",
        ]


def _trajectories_claims(numbers: Numbers) -> Iterable[list[str]]:
    ends = [(by[ADAM][-1], by[MADAM][-1]) for by in numbers["distances"].values()]
    yield [
        "3",
        "under a fixed preference MAdam is nearer to the optimum",
        f"after {STEPS} steps: " + ", ".join(f"A {a:.2f} / M {m:.2f}" for a, m in ends),
        f"{_share(numbers['MAdam is nearer'])} panels",
    ]
    yield [
        "3",
        "MAdam takes another way than Adam",
        f"Adam's paths lie within {numbers['path difference']:.2g} of MAdam's",
        "",
    ]


def _fronts_claims(numbers: Numbers) -> Iterable[list[str]]:
    for name, found in numbers.items():
        if ADAM in found and MADAM in found:
            before, after = (found[v]["hypervolume"] for v in (ADAM, MADAM))
            measured = f"mean over {len(found['seeds'])} seeds: Adam {before:.4f}, MAdam {after:.4f}"
            yield ["4", f"MAdam raises the hypervolume ({name})", measured, "yes" if after > before else "no"]


def tables(name: str, numbers: Numbers) -> str:
    """The tables of one figure."""
    made = {"mismatch": _mismatch, "phases": _phases, "trajectories": _trajectories, "fronts": _fronts}[name](numbers)
    return "\n".join(made)


def _mismatch(numbers: Numbers) -> Iterable[str]:
    distances, signs, census = numbers["distances"], numbers["signs"], numbers["census"]
    yield _table(
        f"Distance to the new optimum so many steps after the switch, at the rate {RATE:g}",
        ["noise", "optimizer", *("at the switch" if step == 0 else str(step) for step in AFTER)],
        ([noise, v, *(f"{d:.3f}" for d in distances[noise][v])] for noise in NOISE for v in distances[noise]),
    )
    yield _table(
        f"{STEPS} steps after the switch: at how many of {len(RATES)} rates from {RATES[0]:.2g} to {RATES[-1]:.2g}",
        ["", *_noises()],
        _by_noise(numbers["shares"]),
    )
    moments = numbers["moments"]
    yield _table(
        f"At a switch in a run of Adam at the rate {RATE:g}: the new d, what Adam remembers, and the conditioned C",
        ["noise", "switch to", "d", "√v", "√C", "d / √v"],
        (
            [noise, to, *(f"{value:.2f}" for value in (d, v, C)), f"{d / v:.1f}"]
            for noise in NOISE
            for to, (d, v, C) in moments[noise].items()
        ),
    )
    yield _table(
        "Signed effects in the run of panel c: share of the steps that raise an objective, and the lowest cosine",
        ["metric", "objective 1", "objective 2", "lowest, objective 1", "lowest, objective 2"],
        (
            [m, *(f"{100 * s:.0f} %" for s in signs[m]["raised"]), *(f"{c:+.2f}" for c in signs[m]["lowest"])]
            for m in (EUCLIDEAN, ADAMS, CONDITIONED, EXECUTED)
        ),
    )
    mine, own = census[CONDITIONED], census[EXECUTED]
    flipped = census["flipped steps"]
    yield _table(
        f"The same from a grid of starts at {len(COARSE)} rates: {census['runs']} runs",
        ["", ADAMS, CONDITIONED, EXECUTED],
        [
            ["steps that raise an objective which the Euclidean step lowers"]
            + [f"{100 * flipped[m]:.1f} %" for m in (ADAMS, CONDITIONED, EXECUTED)],
            ["objectives flipped in more than 1 % of a run"]
            + [_share(s) for s in (census["flipped by Adam"], mine["flipped"], own["flipped"])],
            ["... at most half as often, of those that Adam flips", "", *(
                _share(s["half as often as Adam, of what Adam flips"]) for s in (mine, own)
            )],
            ["... at least twice as often as by Adam, of those flipped", "", *(
                _share(s["twice as often as Adam, of what it flips"]) for s in (mine, own)
            )],
        ],
    )  # fmt: skip
    never, first = census["runs in which the Euclidean effect is never negative"], numbers["first objective"]
    raised = 100 * census[f"steps that raise an objective, {EUCLIDEAN}"]
    yield (
        f"Euclidean effect never negative: {_share(never)} runs; it is negative in {raised:.0f} % of all steps and "
        f"objectives. The first objective is {first['A']:.3f} at the optimum of A and "
        f"{first['B']:.3f} at that of B.\n"
    )


def _phases(numbers: Numbers) -> Iterable[str]:
    gaps = numbers["gaps"]
    yield _table(
        f"Loss gap one step into each phase and at its end, at the rate {RATE:g}",
        ["noise", "phase", *(f"{v}, {when}" for v in COMPARED for when in ("begin", "end"))],
        (
            [noise, f"{k + 1} ({'AB'[k % 2]})"]
            + [f"{gaps[noise][v][when][k]:.2g}" for v in COMPARED for when in ("begin", "end")]
            for noise in NOISE
            for k in range(len(PHASES))
        ),
    )
    others = [v for v in next(iter(gaps.values())) if v not in COMPARED]
    yield _table(
        f"Loss gap at the end of each phase, other forms, at the rate {RATE:g}",
        ["noise", "optimizer", *(f"{k + 1} ({'AB'[k % 2]})" for k in range(len(PHASES)))],
        ([noise, v, *(f"{g:.2g}" for g in gaps[noise][v]["end"])] for noise in NOISE for v in others),
    )
    yield _table(
        f"At how many of {len(RATES)} rates in phases of {STEPS} steps and {len(COARSE)} in phases of {SHORT}",
        ["", *_noises()],
        _by_noise(numbers["shares"]),
    )
    largest = numbers["largest ratio"]
    yield _table(
        f"Gap at the ends of phases of {STEPS} steps, at the rate where Adam's is the largest multiple of MAdam's",
        ["noise", "rate", *COMPARED],
        ([noise, f"{largest[noise]['rate']:.2g}", *(f"{largest[noise][v]:.2g}" for v in COMPARED)] for noise in NOISE),
    )
    best = numbers["best rates"]
    yield _table(
        "Each at the rate with its lowest mean gap: that rate, the mean gap after switches, the gap at the ends",
        ["optimizer", *(f"{noise}: {what}" for noise in NOISE for what in ("rate", "mean", "end"))],
        (
            [v, *(f"{best[noise][v][what]:.2g}" for noise in NOISE for what in ("rate", "mean", "end"))]
            for v in best[next(iter(NOISE))]
        ),
    )


def _trajectories(numbers: Numbers) -> Iterable[str]:
    yield _table(
        f"Distance to the optimum so many steps into a run, mean over the starts, at the rate {RATE:g}",
        ["preference", "optimizer", *map(str, SHOWN)],
        ([p, v, *(f"{d:.3f}" for d in by[v])] for p, by in numbers["distances"].items() for v in by),
    )
    by_rate, best = numbers["MAdam is nearer, by rate"], numbers["best rate"]
    yield _table(
        "How often MAdam is nearer than Adam, over all preferences and these numbers of steps, by rate",
        ["", "all rates", *by_rate],
        [["MAdam is nearer", _share(numbers["MAdam is nearer"]), *(_share(s) for s in by_rate.values())]],
    )
    yield _table(
        f"Each at the rate with its lowest mean distance after {STEPS} steps",
        ["optimizer", "rate", "distance"],
        ([v, f"{best[v]['rate']:.2g}", f"{best[v]['distance']:.2g}"] for v in (ADAM, MADAM, PAPER)),
    )


def _fronts(numbers: Numbers) -> Iterable[str]:
    header = [ADAM, CONTROL, MADAM]
    cells = []
    for name, found in numbers.items():
        cells.append([name, *(_hypervolume(found.get(v)) for v in header), ", ".join(map(str, found["seeds"]))])
    yield _table("Hypervolume, mean ± standard deviation over the seeds, at each one's best rate",
                 ["", *header, "seeds"], cells)  # fmt: skip


def _hypervolume(found: Numbers | None) -> str:
    if found is None:
        return ""
    return f"{plus_minus(found['hypervolume'], found['deviation'], 4)} ({found['rate']:g})"


def _noises() -> list[str]:
    return [f"noise: {noise}" for noise in NOISE]


def _by_noise(shares: Numbers) -> Iterable[list[str]]:
    for claim in shares[EVEN]:
        yield [claim, *(_share(shares[noise][claim]) for noise in NOISE)]


def _share(pair: Sequence[int]) -> str:
    return f"{pair[0]} of {pair[1]}"


def _table(title: str, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    return write_tables([Table(title, header, list(rows))], (), "markdown")
