"""Learning rates tuned on a few seeds: the runs of all seeds, at the chosen rates alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace

from ..runs import Config, Record, Say, identity, to_stderr
from ..training import metrics_of, problem_of
from ._table import Seeds, best_rate, end_of, has_metrics


def finalists(
    records: Sequence[Record],
    trials: Sequence[Config],
    seeds: Sequence[int],
    contenders: Mapping[str, str] | None = None,
    say: Say = to_stderr,
) -> list[Config]:
    """What was tried, at the best of its learning rates and with all seeds, seed by seed.

    Validation data choose the rate of each solver and contender, from the trials alone: runs that are there besides
    change nothing, so that a sweep which is started again makes the same choice.

    Args:
        records: at least those of all trials.
        trials: every learning rate, on the seeds to tune by.
        contenders: optimizers that are one contender, by a common name, of which the best is chosen as well; an
            optimizer that is not among them is a contender by itself.
        say: gets the choices, and which of them are at an end of the rates that were tried.
    """
    found = {identity(record["config"]): record for record in records}
    tried: dict[Config, dict[tuple[float, str], Seeds]] = {}
    for trial in trials:
        contender = replace(trial, optimizer=(contenders or {}).get(trial.optimizer, trial.optimizer), lr=0.0, seed=0)
        mine = tried.setdefault(contender, {}).setdefault((trial.lr, trial.optimizer), {})
        mine[trial.seed] = found[identity(asdict(trial))]
    several = len({contender.benchmark for contender in tried}) > 1
    chosen = []
    for contender, tries in tried.items():
        benchmark, _ = problem_of(contender)
        where = f"{contender.benchmark} {contender.solver}" if several else contender.solver
        whole = [has_metrics(record, benchmark, say) for runs in tries.values() for record in runs.values()]
        if not all(whole):
            raise ValueError(f"{where} {contender.optimizer}: some of its runs cannot be compared, see above")
        lr, optimizer = best_rate(tries, metrics_of(benchmark, contender.solver)[0])
        end = end_of(lr, {rate for rate, _ in tries})
        note = f", the {end} that was tried" if end else ""
        say(f"{where} {optimizer}: rate {lr:g}{note} ({len(tries)} trials)")
        chosen.append(replace(contender, optimizer=optimizer, lr=lr))
    return [replace(config, seed=seed) for seed in dict.fromkeys(seeds) for config in chosen]
