"""The page: what to use, how sure that is, what it costs, and all that it rests on."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from statistics import stdev

import optuna
from optuna.trial import FrozenTrial, TrialState

from madamoo.files import write_text
from madamoo.presentation.page import Block, Facts, Notes, Page, Section, Verdict, write_page
from madamoo.presentation.plots import Figure, Group, Series, curves, dots
from madamoo.presentation.style import counted, listed, rate_text
from madamoo.presentation.tables import Cell, Table, Value, finite, number

from ._contenders import SPOKEN, Contender
from ._result import Finalist, Settings, Tuned
from ._setup import Setup
from ._studies import DIVERGED, Search, complete, ended
from ._words import advice, verdict

PAGE, RESULT = "page.html", "result.json"


def write(
    tuned: Tuned, search: Search, settings: Settings, setup: Setup, adam: optuna.Study, others: optuna.Study
) -> Tuned:
    """Write page and result into the folder of the search; returns the result with the page's path."""
    folder = search.folder
    assert folder is not None
    tuned = replace(tuned, page=folder / PAGE)
    write_page(make_page(tuned, search, settings, setup, adam, others), folder / PAGE)
    write_text(folder / RESULT, _json(tuned, settings))
    return tuned


def _json(tuned: Tuned, settings: Settings) -> str:
    record = {
        "use": {**asdict(tuned.use), "beats_adam": tuned.beats_adam},
        "verdict": verdict(tuned),
        "baseline": asdict(tuned.baseline),
        "finalists": [asdict(finalist) for finalist in tuned.finalists],
        "notes": list(tuned.notes),
        "settings": asdict(settings),
    }
    return json.dumps(finite(record), indent=1, allow_nan=False) + "\n"


def make_page(
    tuned: Tuned, search: Search, settings: Settings, setup: Setup, adam: optuna.Study, others: optuna.Study
) -> Page:
    name, code = search.source.name, search.field.code(tuned.use)
    notes: list[Block] = [Notes(tuned.notes)] if tuned.notes else []
    lead = f"{counted(len(ended(adam)), 'trial')} of Adam's rate, {counted(len(ended(others)), 'trial')} of all others."
    return Page(
        f"Which one for {name}?",
        lead,
        [
            Section("Answer", [Verdict(verdict(tuned), advice(tuned, settings, code)), *notes]),
            Section("On fresh seeds", _final(tuned, settings)),
            Section("What a step costs", _costs(tuned)),
            Section("The search", _search(adam, others, settings)),
            Section("How this was made", [Facts(_facts(name, settings, setup, [adam, others])), _HOW]),
        ],
    )


_HOW = (
    "Adam with LS got as many trials for its learning rate as all others together got for solver, optimizer and rate. "
    "All trials of the search have one seed. The finalists, one per pair of solver and optimizer, then met Adam on "
    "seeds that the search never used, and differences were taken seed by seed. The intervals are those of the paired "
    "t-test, at the level that Holm's correction for the number of finalists asks of each: if no finalist differs from "
    "Adam in truth, one is told apart from it in at most 5 of 100 such searches, and called better in about half of "
    "these."
)


def _final(tuned: Tuned, settings: Settings) -> list[Block]:
    if not tuned.finalists:
        return ["No contender but Adam with LS came that far."]
    unit = "how much better than Adam with LS"
    found = [f.comparison for f in tuned.finalists if f.comparison is not None]
    names = [f.contender.label for f in tuned.finalists]
    group = Group("gain", 0, [c.gain for c in found], [(c.low, c.high) for c in found])
    caption = (
        f"Mean over {settings.seeds} paired seeds with its interval, in the unit of the validation number; to the "
        "right of zero is better than Adam."
    )
    rows = [_row(f) for f in (tuned.baseline, *tuned.finalists)]
    header = ["contender", "rate", "validation", "gain over Adam", "p", "better in"]
    more = f"Validation: mean and standard deviation over the seeds, {_sense(settings)} is better. p is Holm's."
    seeds = range(settings.seed + 1, settings.seed + 1 + settings.seeds)
    lines = [
        _dots(f.contender.label, seeds, [None if math.isnan(v) else v for v in f.values], k)
        for k, f in enumerate((*tuned.finalists, tuned.baseline))
    ]
    return [
        dots("Gain over Adam", [group], names, unit, caption=caption, zero=True),
        Table("Finalists", header, rows, more),
        curves("Seed by seed", lines, "seed", "validation", caption="Each contender on each fresh seed.", height=300),
    ]


def _dots(name: str, x: Sequence[float], y: Sequence[float | None], k: int) -> Series:
    return Series(name, list(x), y, k, mode="lines+markers", width=0)


def _row(f: Finalist) -> list[Value]:
    known = [v for v in f.values if not math.isnan(v)]
    c, lost = f.comparison, f" ({f.diverged} diverged)" if f.diverged else ""
    spread = stdev(known) if len(known) > 1 else None
    mean = sum(known) / len(known) if known else math.nan
    shown = f"{mean:.4g}" + (f" ± {spread:.2g}" if spread is not None else "") if known else ""
    start: list[Value] = [f.contender.name, Cell(rate_text(f.contender.lr), value=f.contender.lr), f"{shown}{lost}"]
    if c is None:
        return [*start, "", "", ""]
    gain = "" if c.gain is None else f"{c.gain:+.3g} [{c.low:+.3g}, {c.high:+.3g}]"
    return [*start, Cell(gain, value=c.gain), number(c.p, ".2g"), f"{c.wins} of {c.seeds}"]


def _costs(tuned: Tuned) -> list[Block]:
    rows: list[Sequence[Value]] = [
        [f.contender.name, number(f.cost.cpu, ".2f"), number(f.cost.wall, ".2f"), number(1e3 * f.cost.seconds, ".3g")]
        for f in tuned.finalists
        if f.cost is not None
    ]
    caption = "Losses, backward and step, as a multiple of those of Adam with LS; the two took turns, step by step."
    return [Table("A step", ["contender", "CPU time", "time", "ms"], rows, caption)] if rows else []


def _sense(settings: Settings) -> str:
    return "higher" if settings.higher_is_better else "lower"


def _search(adam: optuna.Study, others: optuna.Study, settings: Settings) -> list[Block]:
    done = [*complete(adam), *complete(others)]
    if not done:
        return []
    return [_scatter(adam, others), _pairs([*ended(adam), *ended(others)], settings)]


def _scatter(adam: optuna.Study, others: optuna.Study) -> Figure:
    groups = {"ls, adam": complete(adam)}
    for trial in complete(others):
        groups.setdefault(trial.params["optimizer"], []).append(trial)
    series = [
        _dots(name, [t.params["lr"] for t in trials], [t.value for t in trials], k)
        for k, (name, trials) in enumerate(groups.items())
    ]
    caption = "One dot per trial that trained to the end, by optimizer, all solvers together."
    figure = curves("Validation by learning rate", series, "learning rate", "validation", caption=caption, height=360)
    axis = {key: value for key, value in figure.layout["xaxis"].items() if key != "rangemode"}
    return figure.with_layout(xaxis={**axis, "type": "log", "exponentformat": "power"})


def _pairs(trials: Sequence[FrozenTrial], settings: Settings) -> Table:
    """One row per pair of solver and optimizer."""
    found: dict[tuple[str, str], list[FrozenTrial]] = {}
    for trial in trials:
        found.setdefault((trial.params["solver"], trial.params["optimizer"]), []).append(trial)
    rows: list[Sequence[Value]] = []
    for (solver, optimizer), mine in found.items():
        lost = sum(DIVERGED in t.user_attrs for t in mine)
        whole = [t for t in mine if t.state == TrialState.COMPLETE and DIVERGED not in t.user_attrs]
        best = (max if settings.higher_is_better else min)(whole, key=lambda t: t.value or 0.0, default=None)
        stopped = sum(t.state == TrialState.PRUNED for t in mine)
        rate = None if best is None else best.params["lr"]
        rows.append(
            [
                Contender(solver, optimizer, 0.0).name,
                number(None if best is None else best.value, ".4g"),
                Cell(rate_text(rate), value=rate),
                len(mine),
                stopped,
                lost,
            ]
        )
    header = ["contender", "best validation", "at rate", "trials", "stopped early", "diverged"]
    caption = (
        f"On the one seed of the search, {settings.seed}; {_sense(settings)} is better. A click on a header sorts."
    )
    return Table("Trials", header, rows, caption)


def _facts(name: str, settings: Settings, setup: Setup, studies: Sequence[optuna.Study]) -> dict[str, str]:
    first, budget = settings.seed + 1, settings.budget
    return {
        "Problem": f"{name}: {counted(setup.size, 'parameter')}, {counted(settings.steps, 'step')} per run",
        "Solvers": listed(settings.solvers, 20),
        "Optimizers": listed([SPOKEN.get(o, o) for o in settings.optimizers], 20),
        "Learning rates": f"{rate_text(settings.rates[0])} to {rate_text(settings.rates[1])}, log-uniform",
        "Trials": f"{budget} for Adam with LS, {budget} for all others; by Optuna {optuna.__version__}",
        "Seeds": f"{settings.seed} in the search; {first} to {first + settings.seeds - 1} at the end",
    }
